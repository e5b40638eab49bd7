"""Counts over scores, of the whole and of each part: what the summary of a scoring run is made of.

Knows scores, not files. Tallies of parts of a file add up to that of the file; memory does not grow with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from rewards.types import Reason, Score, Verdict

_MAX_FAULTS = 5
_SHOWN_REASONS = 6


@dataclass(slots=True)
class Count:
    """Verdicts, reasons and the sum of values of one column of scores."""

    weight: float | None = None
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    reasons: Counter[Reason] = field(default_factory=Counter[Reason])
    total: float = 0.0

    def add(self, score: Score) -> None:
        """Counts one score."""
        self.verdicts[score.verdict] += 1
        self.reasons[score.reason] += 1
        self.total += score.value or 0.0

    def merge(self, other: Count) -> None:
        """Counts all that another has counted."""
        self.verdicts.update(other.verdicts)
        self.reasons.update(other.reasons)
        self.total += other.total

    def mean(self) -> float | None:
        """Mean value over what was scored; None when nothing was."""
        scored = self.verdicts[Verdict.SCORED]
        return self.total / scored if scored else None


@dataclass(slots=True)
class Tally:
    """Counts of a run: the whole score, each part by name, and the first few faults in words."""

    whole: Count = field(default_factory=Count)
    parts: dict[str, Count] = field(default_factory=dict[str, Count])
    faults: list[str] = field(default_factory=list[str])

    def add(self, score: Score) -> None:
        """Counts one score and its parts."""
        self.whole.add(score)
        for part in score.parts:
            self.parts.setdefault(part.name, Count(part.weight)).add(part.score)
            if "error" in part.score.notes and len(self.faults) < _MAX_FAULTS:
                self.faults.append(part.score.notes["error"])

    def merge(self, other: Tally) -> None:
        """Counts all that another has counted."""
        self.whole.merge(other.whole)
        for name, count in other.parts.items():
            self.parts.setdefault(name, Count(count.weight)).merge(count)
        self.faults = [*self.faults, *other.faults][:_MAX_FAULTS]

    def lines(self) -> int:
        """How many scores were counted."""
        return self.whole.verdicts.total()

    def failed(self) -> int:
        """How many failed through our own fault, unreadable input lines left out."""
        return self.whole.verdicts[Verdict.FAILED] - self.whole.reasons[Reason.BAD_INPUT]


def summary_table(tally: Tally) -> Table:
    """A table of means, verdicts and reasons, one row for the whole and one for each part."""
    table = Table()
    table.add_column("part")
    for heading in ("weight", "mean", "scored", "abstained", "failed"):
        table.add_column(heading, justify="right")
    table.add_column("reasons")
    for name, count in [("total", tally.whole), *tally.parts.items()]:
        mean = count.mean()
        table.add_row(
            escape(name),
            "" if count.weight is None else f"{count.weight:g}",
            "-" if mean is None else f"{mean:.4f}",
            *(f"{count.verdicts[verdict]:,}" for verdict in Verdict),
            _reasons_text(count.reasons),
        )
    return table


def _reasons_text(reasons: Counter[Reason]) -> str:
    shown = [f"{reason.value} {number:,}" for reason, number in reasons.most_common(_SHOWN_REASONS)]
    hidden = reasons.total() - sum(number for _, number in reasons.most_common(_SHOWN_REASONS))
    return ", ".join([*shown, f"others {hidden:,}"] if hidden else shown)
