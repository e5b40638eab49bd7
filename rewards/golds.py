"""Golds checked against themselves: one that is no right answer to its own problem can reward nothing.

Knows how to give a gold as an answer; the judging is the accuracy verifier's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample
from rewards.verifiers.accuracy import AccuracyVerifier


@dataclass(frozen=True, slots=True)
class GoldFault:
    """A gold that cannot be relied on: index of the problem in the list it came from, and why."""

    index: int
    problem_id: str
    gold: tuple[str, ...]
    reason: Reason


def find_gold_faults(problems: Sequence[Problem]) -> list[GoldFault]:
    """The problems, in order, whose gold is empty, unreadable, or not accepted as the answer to itself.

    >>> find_gold_faults([Problem("a", "1+1=", ("2",)), Problem("b", "2+2=", ())])
    [GoldFault(index=1, problem_id='b', gold=(), reason=<Reason.NO_GOLD: 'no_gold'>)]
    """
    verifier = AccuracyVerifier(FormatSpec(mode="off"))
    scores = verifier.score([Sample(problem, _as_answer(problem.gold)) for problem in problems])
    return [
        GoldFault(index, problem.id, problem.gold, score.reason)
        for index, (problem, score) in enumerate(zip(problems, scores, strict=True))
        if score.value != 1.0
    ]


def _as_answer(gold: Sequence[str]) -> str:
    """The gold as a completion: each required value in a box, side by side."""
    return ", ".join(rf"\boxed{{{value}}}" for value in gold)
