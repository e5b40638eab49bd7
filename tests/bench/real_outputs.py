"""The recorded model outputs of ../shared/data/model_outputs, as the benches read them."""

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(os.environ.get("PLUMBLINE_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))


@dataclass(frozen=True, slots=True)
class Output:
    """One recorded output. key names it: file, row from 1. recorded is its harness's own verdict."""

    file: str
    row: int
    problem: str
    gold: str
    completion: str
    recorded: bool

    @property
    def key(self) -> str:
        return f"{self.file}:{self.row}"


def read_outputs() -> list[Output]:
    """All rows of all files, in order.

    Raises:
        SystemExit: the folder is not there.
    """
    folder = SHARED / "data" / "model_outputs"
    if not folder.is_dir():
        raise SystemExit(f"{folder} is not here: set PLUMBLINE_SHARED to the folder of shared cases and data")
    return [output for path in sorted(folder.glob("*.jsonl.gz")) for output in _read_file(path)]


def _read_file(path: Path) -> Iterator[Output]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row, line in enumerate(lines, start=1):
            record = json.loads(line)
            yield Output(
                file=path.name.removesuffix(".jsonl.gz"),
                row=row,
                problem=record["problem"],
                gold=record["gold"],
                completion=record["completion"],
                recorded=bool(record["recorded_correct"]),
            )
