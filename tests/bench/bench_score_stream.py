"""How `python -m rewards.score` behaves on long files: seconds and peak memory by number of lines.

    python tests/bench/bench_score_stream.py --lines 10000 100000 1000000 --workers 2

The lines are the real outputs of shared/data/model_outputs, repeated; in repetition k every plain number of
completion and gold is raised by k (exponents and indices are left alone), so that right answers stay right
and no verdict comes out of a cache. Memory is the resident size of the whole process tree, and of its largest
process, sampled ten times a second.
"""

import argparse
import gzip
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
_PLAIN_NUMBER = re.compile(r"(?<![\d.,^_])(?<!\^\{)(?<!_\{)\d{1,6}(?![\d.,])")
_MIB = 2**20


def real_outputs(folder: Path) -> list[dict[str, Any]]:
    """The recorded outputs, reduced to what scoring reads."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                gold = row.get("gold", row.get("gold_harness"))
                rows.append({"prompt": row["problem"], "gold": gold, "completion": row["completion"]})
    return rows


def fresh(text: object, shift: int) -> object:
    """The text with every plain number raised by shift."""
    if not isinstance(text, str):
        return text
    return _PLAIN_NUMBER.sub(lambda found: str(int(found[0]) + shift), text)


def repeated(rows: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """count rows, each repetition with fresh numbers."""
    for number in range(count):
        shift, place = divmod(number, len(rows))
        row = rows[place]
        yield {
            "id": number,
            "prompt": row["prompt"],
            "gold": fresh(row["gold"], shift),
            "completion": fresh(row["completion"], shift),
        }


def measure(command: list[str]) -> tuple[float, float, float]:
    """Runs a command; returns (seconds, peak MiB of the process tree, peak MiB of its largest process)."""
    started = time.monotonic()
    process = psutil.Popen(command, stderr=subprocess.PIPE)
    tree = largest = 0.0
    while process.poll() is None:
        sizes: list[float] = []
        for member in [process, *process.children(recursive=True)]:
            try:
                sizes.append(member.memory_info().rss / _MIB)
            except psutil.NoSuchProcess:
                continue
        tree, largest = max(tree, sum(sizes)), max([largest, *sizes])
        time.sleep(0.1)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(said.decode())
    return time.monotonic() - started, tree, largest


def main() -> None:
    """Prints one row for each number of lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--reward", default="verifiable+format")
    parser.add_argument("--outputs", type=Path, default=SHARED / "data" / "model_outputs")
    options = parser.parse_args()
    rows = real_outputs(options.outputs)
    print(f"{len(rows)} real outputs, reward={options.reward}, workers={options.workers}")
    print(
        f"{'lines':>9} {'input MiB':>9} {'seconds':>8} {'outputs/s':>9} {'tree MiB':>8} {'largest MiB':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for count in options.lines:
            source, output = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
            with source.open("w", encoding="utf-8") as handle:
                handle.writelines(
                    json.dumps(row) + "\n" for row in itertools.islice(repeated(rows, count), count)
                )
            seconds, tree, largest = measure(
                [sys.executable, "-m", "rewards.score", f"reward={options.reward}", f"input={source}",
                 f"output={output}", "overwrite=true", f"workers={options.workers}", "max_failed_share=1"]
            )  # fmt: skip
            with output.open("rb") as lines:
                written = sum(1 for _ in lines)
            if written != count:
                raise SystemExit(f"{written} lines written, expected {count}")
            size = source.stat().st_size / _MIB
            print(
                f"{count:>9,} {size:>9,.0f} {seconds:>8.1f} {count / seconds:>9,.0f} "
                f"{tree:>8,.0f} {largest:>11,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
