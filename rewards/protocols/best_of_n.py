"""How good is the completion that a reward model picks among N of the same question, beside plainer picks?

All picks are measured on the same samples. Ties are shared: of k picks that are equally good, each counts
1/k, so that no result depends on the order in which completions are listed; `majority_first` alone does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError

Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The completions of one question.

    scores: of the reward model, any scale; None where it gave none: such a one is never picked. correct:
    whether the verifier says it is right. answers: equal for completions whose answers are equivalent, None
    where there is no answer; they never win a vote. All of one length, at least 1.
    """

    scores: Sequence[float | None]
    correct: Sequence[bool]
    answers: Sequence[Hashable]

    def __post_init__(self) -> None:
        if not len(self.scores) == len(self.correct) == len(self.answers) >= 1:
            raise DataError(
                f"Candidates: {len(self.scores)} scores, {len(self.correct)} verdicts and "
                f"{len(self.answers)} answers: expected one of each for every completion, and at least one"
            )


def measure(questions: Sequence[Candidates]) -> Measures:
    """Shares of questions, 0 to 1, that each pick answers rightly.

    pass@1: a random completion. majority: an answer given most often; majority_first: of several such the one
    listed first, as many published figures have it. weighted: one with the largest sum of
    sigmoid(score), which unlike raw logits are never negative. best_of_n, worst_of_n: a completion of the
    highest, of the lowest score. pass@n: whether any is right, the oracle that no pick can beat.

    >>> measure([Candidates([2.0, 1.0, 0.5], [True, False, False], ["4", "5", "5"])])["best_of_n"]
    1.0

    Raises:
        DataError: there is no question.
    """
    if not questions:
        raise DataError("best_of_n: no questions")
    rows = [_measure_one(question) for question in questions]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def subsample(
    questions: Sequence[Candidates], n: int, *, trials: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Each measure's mean and standard deviation over trials of n completions of each question.

    The n are drawn without replacement, a question apart from the others.

    Raises:
        DataError: a question has fewer than n completions, or n or trials is below 1.
    """
    short = sum(len(question.scores) < n for question in questions)
    if short or n < 1 or trials < 1:
        raise DataError(f"best_of_n: n={n}, trials={trials}: {short} questions have fewer completions than n")
    noise = np.random.default_rng(seed)
    runs = [
        measure([_some(question, noise.permutation(len(question.scores))[:n]) for question in questions])
        for _ in range(trials)
    ]
    values = {name: [run[name] for run in runs] for name in runs[0]}
    return {name: (float(np.mean(found)), float(np.std(found))) for name, found in values.items()}


def _some(question: Candidates, places: NDArray[np.int64]) -> Candidates:
    chosen: list[int] = places.tolist()
    return Candidates(
        [question.scores[i] for i in chosen],
        [question.correct[i] for i in chosen],
        [question.answers[i] for i in chosen],
    )


def _measure_one(question: Candidates) -> Measures:
    correct = question.correct
    scored = [
        (score, right) for score, right in zip(question.scores, correct, strict=True) if score is not None
    ]
    best = max((score for score, _ in scored), default=None)
    worst = min((score for score, _ in scored), default=None)
    return {
        "pass@1": _share(correct),
        "majority": _vote(question, [1.0] * len(correct)),
        "majority_first": _vote(question, [1.0] * len(correct), first=True),
        "weighted": _vote(question, [0.0 if s is None else _sigmoid(s) for s in question.scores]),
        "best_of_n": _share([right for score, right in scored if score == best]),
        "worst_of_n": _share([right for score, right in scored if score == worst]),
        "pass@n": float(any(correct)),
    }


def _vote(question: Candidates, weights: Sequence[float], *, first: bool = False) -> float:
    """The share of right ones among the completions of the winning answer; mean over answers that tie.

    first: only the answer listed first of those that tie.
    """
    totals: dict[Hashable, float] = defaultdict(float)
    members: dict[Hashable, list[bool]] = defaultdict(list)
    for answer, weight, right in zip(question.answers, weights, question.correct, strict=True):
        if answer is not None:
            totals[answer] += weight
            members[answer].append(right)
    most = max(totals.values(), default=0.0)
    winners = [_share(members[answer]) for answer, total in totals.items() if total == most]
    return float(np.mean((winners[:1] if first else winners) or [0.0]))


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _sigmoid(score: float) -> float:
    return float(0.5 * (1.0 + np.tanh(0.5 * score)))
