"""What is wrong with a dataset before anyone trains on it: golds, duplicates, types, by row.

Knows problems, not rewards. Rows count from 1, as lines of the file do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rewards.golds import GoldFault, find_gold_faults
from rewards.types import Problem, Reason
from rewards.verifiers.equivalence import EquivalenceSettings, prepare_gold


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that share what they should not share."""

    what: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """What a check of a dataset found.

    faults: golds that cannot be verified, with GoldFault.index from 0. types: resolved answer types, "none"
    and "unreadable" where there is none. same_ids, same_prompts: groups of rows; conflicts: same prompt,
    other gold. empty_prompts, leaks: rows without a question, or whose question holds a marked answer.
    """

    problems: int
    faults: list[GoldFault]
    types: Counter[str]
    same_ids: list[Group] = field(default_factory=list[Group])
    same_prompts: list[Group] = field(default_factory=list[Group])
    conflicts: list[Group] = field(default_factory=list[Group])
    empty_prompts: list[int] = field(default_factory=list[int])
    leaks: list[int] = field(default_factory=list[int])

    def invalid_share(self) -> float:
        """Share (0 to 1) of problems whose gold cannot be verified."""
        return len(self.faults) / self.problems if self.problems else 0.0


def check_dataset(problems: Sequence[Problem]) -> DatasetReport:
    """Checks every problem of a dataset."""
    prompts = _groups([" ".join(problem.prompt.split()).casefold() for problem in problems])
    conflicts = [group for group in prompts if len({problems[row - 1].gold for row in group.rows}) > 1]
    return DatasetReport(
        problems=len(problems),
        faults=find_gold_faults(problems),
        types=Counter(_type_of(problem) for problem in problems),
        same_ids=_groups([problem.id for problem in problems]),
        same_prompts=[group for group in prompts if group not in conflicts],
        conflicts=conflicts,
        empty_prompts=[row for row, problem in enumerate(problems, start=1) if not problem.prompt.strip()],
        leaks=[row for row, problem in enumerate(problems, start=1) if _leaks(problem)],
    )


def _groups(keys: Sequence[str]) -> list[Group]:
    """Keys that stand at more than one place; an empty key is no duplicate of another."""
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys, start=1):
        rows.setdefault(key, []).append(row)
    return [Group(key, tuple(places)) for key, places in rows.items() if key and len(places) > 1]


def _type_of(problem: Problem) -> str:
    gold = prepare_gold(problem.gold, problem.answer_type, EquivalenceSettings())
    if isinstance(gold, Reason):
        return "none" if gold is Reason.NO_GOLD else "unreadable"
    return gold.answer_type


def _leaks(problem: Problem) -> bool:
    """Whether a marked final answer stands in the question itself."""
    return any(mark in problem.prompt for mark in ("\\boxed{", "\n#### "))
