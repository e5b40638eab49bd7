"""How good is the completion that a reward model picks among N of the same question, beside plainer picks?

All picks are measured on the same samples. Where several picks are equally good, a rule says what they are
worth; the figures of the field differ by it more often than by the model.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError

Ties = Literal["share", "first", "lose"]
"""Of k equally good picks: each counts 1/k, so that no result depends on the order in which completions are
listed; the one listed first counts, as many published figures have it; or a tie with a wrong one is lost."""
Measures = dict[str, float]
_Flags = NDArray[np.bool_]
_DIGITS = 12
"""Sums of votes are equal when they agree to so many: rounding must not break a tie."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The completions of one question, one or more.

    Args:
        scores: of the reward model, any scale; None where it gave none: such a one is never picked.
        correct: whether the verifier says it is right.
        answers: equal for completions whose answers are equivalent; None where there is no answer: it has no
            vote. None instead of a list: nobody knows the answers, and votes are not measured.
        votes: weights >= 0 in the weighted vote, such as probabilities; None takes sigmoid(score), which
            unlike a raw logit is never negative.

    Raises:
        DataError: lists of different lengths, or none.
    """

    scores: Sequence[float | None]
    correct: Sequence[bool]
    answers: Sequence[Hashable] | None
    votes: Sequence[float | None] | None = None

    def __post_init__(self) -> None:
        lists = {
            "scores": self.scores,
            "verdicts": self.correct,
            "answers": self.answers,
            "votes": self.votes,
        }
        sizes = {name: len(values) for name, values in lists.items() if values is not None}
        if set(sizes.values()) != {max(1, len(self.scores))}:
            told = ", ".join(f"{size} {name}" for name, size in sizes.items())
            raise DataError(f"Candidates: {told}: expected one of each for each of one or more completions")


@dataclass(frozen=True, slots=True)
class Subsampled:
    """A pick among n completions: its mean over subsets by question, and how far a draw strays from it.

    spread: standard deviation of the mean over questions, when one subset of each is drawn.
    """

    by_question: tuple[float, ...]
    spread: float


def picks(questions: Sequence[Candidates], ties: Ties = "share") -> dict[str, tuple[float, ...]]:
    """What each pick is worth, 0 to 1, by question.

    pass@1: a random completion. majority: an answer given most often. weighted: one with the largest sum of
    votes. best_of_n, worst_of_n: a completion of the highest, of the lowest score. pass@n: whether any is
    right, the oracle that no pick can beat. The votes are left out where a question's answers are not known.

    >>> picks([Candidates([2.0, 1.0, 0.5], [True, False, False], ["4", "5", "5"])])["best_of_n"]
    (1.0,)

    Raises:
        DataError: there is no question.
    """
    rows = [_worth(question, np.ones((1, len(question.scores)), np.bool_), ties) for question in questions]
    return {name: tuple(float(row[name][0]) for row in rows) for name in _names(rows)}


def measure(questions: Sequence[Candidates], ties: Ties = "share") -> Measures:
    """Shares of questions that each pick answers rightly: the means of `picks`.

    Raises:
        DataError: there is no question.
    """
    return {name: float(np.mean(values)) for name, values in picks(questions, ties).items()}


def subsample(
    questions: Sequence[Candidates], n: int, *, trials: int, seed: int, ties: Ties = "share"
) -> dict[str, Subsampled]:
    """The picks among n completions of each question, drawn without replacement.

    Exact over all subsets where there are no more than trials, else over so many draws.

    Raises:
        DataError: a question has fewer than n completions, there is no question, or n or trials is below 1.
    """
    short = sum(len(question.scores) < n for question in questions)
    if short or n < 1 or trials < 1:
        raise DataError(f"best_of_n: n={n}, trials={trials}: {short} questions have fewer completions than n")
    noise = np.random.default_rng(seed)
    rows = [
        _worth(question, _subsets(len(question.scores), n, trials, noise), ties) for question in questions
    ]
    found: dict[str, Subsampled] = {}
    for name in _names(rows):
        by_question = tuple(float(row[name].mean()) for row in rows)
        # Questions are drawn from independently, so the variances of their means add up.
        variance = sum(float(row[name].var()) for row in rows)
        found[name] = Subsampled(by_question, math.sqrt(variance) / len(rows))
    return found


def _subsets(size: int, n: int, trials: int, noise: np.random.Generator) -> _Flags:
    """Which completions are in each subset: all subsets, or as many draws; (subsets, size)."""
    if math.comb(size, n) > trials:
        return noise.permuted(np.tile(np.arange(size), (trials, 1)), axis=1) < n
    chosen = np.array(list(itertools.combinations(range(size), n)))
    flags = np.zeros((len(chosen), size), np.bool_)
    flags[np.arange(len(chosen))[:, None], chosen] = True
    return flags


def _names(rows: Sequence[dict[str, NDArray[np.float64]]]) -> list[str]:
    if not rows:
        raise DataError("best_of_n: no questions")
    return [name for name in rows[0] if all(name in row for row in rows)]


def _worth(question: Candidates, drawn: _Flags, ties: Ties) -> dict[str, NDArray[np.float64]]:
    """What each pick is worth in each draw; drawn: (draws, completions)."""
    right = np.asarray(question.correct, np.bool_)
    scored = drawn & np.array([score is not None for score in question.scores])
    scores = np.array([0.0 if score is None else score for score in question.scores])
    best = np.where(scored, scores, -np.inf).max(axis=1, keepdims=True)
    worst = np.where(scored, scores, np.inf).min(axis=1, keepdims=True)
    votes = _sigmoid(scores) if question.votes is None else np.array([vote or 0.0 for vote in question.votes])
    found = {"pass@1": (drawn & right).sum(axis=1) / drawn.sum(axis=1)}
    if question.answers is not None:
        found["majority"] = _vote(question.answers, drawn, np.ones(len(right)), right, ties)
        found["weighted"] = _vote(question.answers, scored, votes, right, ties)
    found["best_of_n"] = _settle(scored & (scores == best), right.astype(np.float64), ties)
    found["worst_of_n"] = _settle(scored & (scores == worst), right.astype(np.float64), ties)
    found["pass@n"] = (drawn & right).any(axis=1).astype(np.float64)
    return found


def _vote(
    answers: Sequence[Hashable], voting: _Flags, votes: NDArray[np.float64], right: _Flags, ties: Ties
) -> NDArray[np.float64]:
    """What the winning answers are worth: each the share of right ones among those who gave it."""
    known = list(dict.fromkeys(answer for answer in answers if answer is not None))
    if not known:
        return np.zeros(len(voting))
    member = np.array([[answer == name for name in known] for answer in answers], np.float64)  # (N, answers)
    counts = voting @ member  # (draws, answers)
    totals = np.where(counts > 0, np.round(voting @ (member * votes[:, None]), _DIGITS), -np.inf)
    winners = (counts > 0) & (totals == totals.max(axis=1, keepdims=True))
    worth = (voting @ (member * right[:, None])) / np.maximum(counts, 1)
    if ties == "first":
        # By the order of completions, not of answers: of a draw, the first may not be the first of all.
        return _settle(voting & (winners @ member.T > 0), worth @ member.T, ties)
    return _settle(winners, worth, ties)


def _settle(tied: _Flags, worth: NDArray[np.float64], ties: Ties) -> NDArray[np.float64]:
    """What the tied are worth together in each draw, by the rule; 0 where there is none.

    tied: (draws, candidates). worth: of a candidate, (candidates,) or (draws, candidates).
    """
    some = tied.any(axis=1)
    if ties == "share":
        return (tied * worth).sum(axis=1) / np.maximum(tied.sum(axis=1), 1)
    each = np.broadcast_to(worth, tied.shape)
    if ties == "first":
        return np.where(some, each[np.arange(len(tied)), tied.argmax(axis=1)], 0.0)
    return np.where(some, np.where(tied, each, np.inf).min(axis=1), 0.0)


def _sigmoid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1.0 + np.tanh(0.5 * scores))
