"""Step statistics of real model outputs, beside plain splitting at blank lines and the reference's figures.

    python tests/bench/bench_steps.py

Reads model_outputs from the shared data (PLUMBLINE_SHARED). For every file and strategy: median / 90 % /
largest number of steps; outputs with a step that is only a heading, only a formula or begins inside a code
fence, and outputs of one step; characters in the median and the longest step; megabytes a second.
"""

import gzip
import json
import re
import time
from itertools import pairwise
from pathlib import Path

from real_outputs import SHARED

from rewards.blocks import BlockKind, find_blocks
from rewards.steps import STRATEGIES, StepSettings, split_steps

REFERENCE = {
    "math500__Qwen2.5-Math-7B": "8 / 18 / 176, heading-only 139, formula-only 106, blank line in code 307",
    "math500__gemma-2-27b-it": "12 / 22 / 40, heading-only 483, formula-only 74, blank line in code 2",
    "minerva_math__Qwen2.5-14B-Instruct": "(MATH-500 of the same model: 8 / 19 / 59, 101, 119, 0)",
    "think_traces_skythought": "13 / 123 / 1890, heading-only 146, formula-only 82, blank line in code 0",
}
"""Of splitting at blank lines, from the reference on reward models, section 4; its rules for heading-only and
formula-only differ a little from ours, as the line `plain split` shows."""

HEADING = re.compile(r"#{1,6}\s[^\n]*|(?:\d+[.)]\s+)?\*\*[^\n*]+(?<![.!?])\*\*:?|Step \d+[:.]?")
FORMULA = re.compile(r"(?:\\\[(?:(?!\\\]).)*\\\]|\$\$(?:(?!\$\$).)*\$\$)[.,]?", re.DOTALL)

Spans = list[tuple[int, int]]


def at_blank_lines(text: str) -> Spans:
    """What a plain split on blank lines gives, empty pieces left out."""
    cuts = [0, *(match.end() for match in re.finditer(r"\n[^\S\n]*\n\s*", text)), len(text)]
    return [(a, b) for a, b in pairwise(cuts) if text[a:b].strip()]


def cuts_code(text: str, spans: Spans) -> bool:
    """Whether a step begins inside a code fence."""
    blocks = find_blocks(text, 0)
    code = [block for block in blocks if block.kind is BlockKind.CODE and block.end - block.start <= 2000]
    return any(block.start < a < block.end for a, _ in spans for block in code)


def describe(name: str, texts: list[str], results: list[Spans], seconds: float) -> str:
    counts = sorted(len(spans) for spans in results)
    sizes = sorted(b - a for spans in results for a, b in spans)
    pieces = [[text[a:b].strip() for a, b in spans] for text, spans in zip(texts, results, strict=True)]
    headings = sum(any(HEADING.fullmatch(p) for p in row) for row in pieces)
    formulas = sum(any(FORMULA.fullmatch(p) for p in row) for row in pieces)
    in_code = sum(cuts_code(text, spans) for text, spans in zip(texts, results, strict=True))
    single = sum(count == 1 for count in counts)
    speed = sum(map(len, texts)) / 1e6 / seconds
    median, most = sizes[len(sizes) // 2], sizes[-1]
    return (
        f"  {name:14} {counts[len(counts) // 2]:4} / {counts[int(len(counts) * 0.9)]:4} / {counts[-1]:5}"
        f" {headings:9} {formulas:9} {in_code:8} {single:7} {median:8} {most:8} {speed:7.1f}"
    )


def bench_file(path: Path) -> None:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["completion"] for line in lines]
    print(f"\n{path.name.removesuffix('.jsonl.gz')}: {len(texts)} outputs")
    print(f"  reference: {REFERENCE.get(path.name.removesuffix('.jsonl.gz'), 'none')}")
    print(
        f"  {'strategy':14} median/ 90 % /   max  headings  formulas  in code  single"
        f"   median  longest    MB/s"
    )
    started = time.perf_counter()
    plain = [at_blank_lines(text) for text in texts]
    print(describe("plain split", texts, plain, time.perf_counter() - started))
    for strategy in STRATEGIES:
        settings = StepSettings(strategy=strategy)  # type: ignore[arg-type]
        started = time.perf_counter()
        results = [[(s.start, s.end) for s in split_steps(text, settings)] for text in texts]
        print(describe(strategy, texts, results, time.perf_counter() - started))


def main() -> None:
    files = sorted((SHARED / "data/model_outputs").glob("*.jsonl.gz"))
    if not files:
        raise SystemExit(f"no outputs under {SHARED / 'data/model_outputs'}: set PLUMBLINE_SHARED")
    for path in files:
        bench_file(path)


if __name__ == "__main__":
    main()
