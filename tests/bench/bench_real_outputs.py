"""Our verdicts on recorded model outputs beside the recording harness's, every disagreement settled by hand.

    python tests/bench/bench_real_outputs.py [--all]

Prints the agreement for each file, and the disagreements with what was found: settled_outputs.jsonl says, for
a file and row, what is true and why. Exit status 1 when a disagreement is unsettled, or when ours is wrong in
more than 0.5 % of a file's outputs; settled rows on which both now say the wrong thing count too.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from real_outputs import Output, read_outputs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rewards.format import FormatSpec
from rewards.types import Problem, Sample, Score, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier

SETTLED = Path(__file__).with_name("settled_outputs.jsonl")
MOST_WRONG = 0.005
"""Largest share of a file's outputs on which our verdict may be wrong."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """truth: whether the output is right by mathematics and its problem; None when both can be defended."""

    truth: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Judged:
    """An output with our score and, where somebody looked, the settlement."""

    output: Output
    score: Score
    settled: Settlement | None

    @property
    def ours(self) -> bool:
        return self.score.verdict is Verdict.SCORED and self.score.value == 1.0

    @property
    def standing(self) -> Literal["agreed", "ours right", "ours wrong", "both defensible", "unsettled"]:
        if self.settled is None:
            return "agreed" if self.ours == self.output.recorded else "unsettled"
        if self.settled.truth is None:
            return "both defensible"
        if self.settled.truth != self.ours:
            return "ours wrong"
        return "agreed" if self.ours == self.output.recorded else "ours right"


def main() -> None:
    parser = argparse.ArgumentParser(description="our verdicts beside the recorded ones")
    parser.add_argument("--all", action="store_true", help="show the settled disagreements too")
    arguments = parser.parse_args()
    console = Console(width=160)
    judged = judge(read_outputs())
    console.print(summary(judged))
    shown = [one for one in judged if one.standing not in ("agreed", "ours right") or arguments.all]
    console.print(disagreements([one for one in shown if one.standing != "agreed"]))
    wrong = sum(one.standing == "ours wrong" for one in judged)
    unsettled = sum(one.standing == "unsettled" for one in judged)
    console.print(f"ours wrong: {wrong} of {len(judged)} ({wrong / len(judged):.2%}); unsettled: {unsettled}")
    too_many = any(one > MOST_WRONG * size for size, one in wrong_by_file(judged).values())
    raise SystemExit(int(unsettled > 0 or too_many))


def judge(outputs: Sequence[Output]) -> list[Judged]:
    """All outputs by the accuracy verifier with default settings; a thought is looked for, not asked for."""
    settled = read_settlements()
    verifier = AccuracyVerifier(FormatSpec(mode="optional", answer_style="free"))
    scores = verifier.score(
        [Sample(Problem(one.key, one.problem, (one.gold,)), one.completion) for one in outputs]
    )
    return [Judged(one, score, settled.get(one.key)) for one, score in zip(outputs, scores, strict=True)]


def wrong_by_file(judged: Sequence[Judged]) -> dict[str, tuple[int, int]]:
    """(outputs, those on which ours is wrong) of each file."""
    counts: dict[str, tuple[int, int]] = {}
    for one in judged:
        size, wrong = counts.get(one.output.file, (0, 0))
        counts[one.output.file] = (size + 1, wrong + (one.standing == "ours wrong"))
    return counts


def read_settlements() -> dict[str, Settlement]:
    """By the key of the output."""
    rows = [json.loads(line) for line in SETTLED.read_text(encoding="utf-8").splitlines()]
    return {f"{row['file']}:{row['row']}": Settlement(row["truth"], row["why"]) for row in rows}


def summary(judged: Sequence[Judged]) -> Table:
    """One row a file: how often both say the same, and the disagreements by direction."""
    table = Table("file", "outputs", "agreement", "only ours accepts", "only theirs accepts", "ours wrong")
    for file in dict.fromkeys(one.output.file for one in judged):
        rows = [one for one in judged if one.output.file == file]
        agreed = sum(one.ours == one.output.recorded for one in rows)
        table.add_row(
            file,
            str(len(rows)),
            f"{agreed / len(rows):.2%}",
            str(sum(one.ours and not one.output.recorded for one in rows)),
            str(sum(one.output.recorded and not one.ours for one in rows)),
            str(sum(one.standing == "ours wrong" for one in rows)),
        )
    return table


def disagreements(judged: Sequence[Judged]) -> Table:
    """What was asked, what was answered, and what was found."""
    table = Table("output", "gold", "answer", "ours", "theirs", "standing", "why", show_lines=True)
    for one in judged:
        table.add_row(
            one.output.key,
            escape(one.output.gold),
            escape(one.score.notes.get("answer", "")),
            f"{one.ours} ({one.score.reason})",
            str(one.output.recorded),
            one.standing,
            one.settled.why if one.settled else "",
        )
    return table


if __name__ == "__main__":
    main()
