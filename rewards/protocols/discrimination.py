"""Does a higher score mean right? AUC over all completions and within questions; pairs; top of a list.

AUC over all mixes in how hard questions are: a model that only tells easy questions from hard ones does well
in it. Within questions it cannot. Ties count half in an AUC and nothing in a pair or a top place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from rewards.errors import DataError


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Probability that a right one scores above a wrong one; None without both kinds.

    Formula: (rank sum of the right - r (r + 1) / 2) / (r w), tied ranks averaged (Mann and Whitney, 1947).

    >>> auc([0.9, 0.5, 0.5], [True, True, False])
    0.75
    """
    values, right = _arrays(scores, labels)
    r = int(right.sum())
    w = len(right) - r
    if r == 0 or w == 0:
        return None
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[right].sum() - r * (r + 1) / 2) / (r * w))


def auc_within(
    scores: Sequence[float], labels: Sequence[bool], questions: Sequence[Hashable]
) -> float | None:
    """AUC over the pairs of a right and a wrong one of the same question, every pair alike; None without any.

    Questions with one kind only have no pair and do not count.
    """
    values, right = _arrays(scores, labels)
    if len(questions) != len(values):
        raise DataError(f"auc_within: {len(values)} scores, {len(questions)} questions: expected as many")
    members: dict[Hashable, list[int]] = {}
    for place, question in enumerate(questions):
        members.setdefault(question, []).append(place)
    won = pairs = 0.0
    for places in members.values():
        own = auc(values[places].tolist(), right[places].tolist())
        if own is not None:
            count = int(right[places].sum()) * int((~right[places]).sum())
            won += own * count
            pairs += count
    return won / pairs if pairs else None


def pair_accuracy(
    chosen: Sequence[float], rejected: Sequence[float], subsets: Sequence[str]
) -> Mapping[str, float]:
    """Share of pairs whose chosen one scores strictly higher, by subset, and over all pairs as "all".

    Raises:
        DataError: no pairs, lengths that differ, or a score that is not finite.
    """
    if not len(chosen) == len(rejected) == len(subsets) >= 1:
        raise DataError(
            f"pairs: {len(chosen)} chosen, {len(rejected)} rejected, {len(subsets)} subsets: expected "
            "as many of each, and at least one"
        )
    values, others = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    if not (np.isfinite(values).all() and np.isfinite(others).all()):
        raise DataError("pairs: a score is not finite: leave the pair out or score it again")
    won, names = values > others, np.asarray(subsets)
    return {"all": float(won.mean())} | {
        str(name): float(won[names == name].mean()) for name in np.unique(names)
    }


def top_one(right: Sequence[float], wrong: Sequence[Sequence[float]]) -> float:
    """Share of questions whose one right completion scores strictly above every wrong one (RewardMATH).

    Raises:
        DataError: no questions, or one without a wrong completion.
    """
    if not len(right) == len(wrong) >= 1 or not all(len(others) for others in wrong):
        raise DataError("top_one: expected at least one question, each with a right and some wrong scores")
    return float(np.mean([own > max(others) for own, others in zip(right, wrong, strict=True)]))


def _arrays(scores: Sequence[float], labels: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    values, right = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    if len(values) != len(right):
        raise DataError(f"auc: {len(values)} scores, {len(right)} labels: expected as many")
    if not np.isfinite(values).all():
        raise DataError("auc: a score is not finite: leave the completion out or score it again")
    return values, right
