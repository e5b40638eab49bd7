"""Accuracy from several samples a problem: pass@k, maj@k, best-of-n.

Knows numbers only: which samples are right, which answers are the same, which score each got; nothing of
text, models or files. Each estimate is of one problem, in [0, 1]; rewards.intervals averages problems. No
estimate depends on the order of the samples: ties share their credit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import comb, prod

import numpy as np
from numpy.typing import NDArray


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that at least one of k samples is right, unbiased from `samples` >= k of which `correct` are.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1).

    >>> round(pass_at_k(8, 2, 4), 7)
    0.7857143
    """
    _check_sizes(samples, k)
    if not 0 <= correct <= samples:
        raise ValueError(f"correct={correct}: expected 0 to {samples}, the number of samples")
    # A product of factors below 1 instead of two binomials: exact enough for any n, and never too large.
    return 1.0 - prod((samples - correct - i) / (samples - i) for i in range(k))


def majority_at_k(
    classes: Sequence[Hashable | None],
    correct: Sequence[bool],
    k: int,
    *,
    trials: int = 400,
    seed: int = 0,
    weights: Sequence[float] | None = None,
) -> float:
    """Chance that the most frequent answer of k samples is right (self-consistency, Wang et al. 2022).

    Args:
        classes: for each sample the class of its answer (`rewards.agreement.equivalence_classes`); None for
            no answer, which has no vote.
        correct: for each sample whether it is right.
        k: samples that vote; with fewer than all, the mean over `trials` subsets drawn without replacement.
        trials: subsets, when k is less than the number of samples.
        seed: of the subsets.
        weights: votes of each sample, >= 0 (weighted majority); one each by default. Raw logits are no votes.

    Returns:
        The share of right samples in the winning class, averaged over classes that tie and over subsets; 0
        where nothing was answered.
    """
    _check_sizes(len(classes), k)
    votes = np.ones(len(classes)) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(correct) != len(classes) or len(votes) != len(classes):
        raise ValueError(
            f"{len(classes)} classes, {len(correct)} correct, {len(votes)} weights: expected as many"
        )
    if not (np.isfinite(votes).all() and (votes >= 0).all()):
        raise ValueError("weights: expected finite numbers >= 0: turn logits into probabilities first")
    if k == len(classes):
        return _majority(range(k), classes, correct, votes)
    generator = np.random.default_rng(seed)
    subsets = (generator.choice(len(classes), size=k, replace=False).tolist() for _ in range(trials))
    return float(np.mean([_majority(subset, classes, correct, votes) for subset in subsets]))


def _majority(
    subset: Sequence[int],
    classes: Sequence[Hashable | None],
    correct: Sequence[bool],
    votes: NDArray[np.float64],
) -> float:
    members: dict[Hashable, list[int]] = {}
    for i in subset:
        if classes[i] is not None:
            members.setdefault(classes[i], []).append(i)
    if not members:
        return 0.0
    # Sorted, so that rounding does not depend on the order of the samples.
    totals = {name: sum(sorted(float(votes[i]) for i in rows)) for name, rows in members.items()}
    best = max(totals.values())
    winners = [members[name] for name, total in totals.items() if total == best]
    return float(np.mean([np.mean([correct[i] for i in rows]) for rows in winners]))


def best_of_n(scores: Sequence[float | None], correct: Sequence[bool], n: int) -> float:
    """Chance that the best scored of n samples is right, exact over all subsets of n without replacement.

    A sample with b samples below it is the best of a subset with probability C(b, n - 1) / C(N, n); samples
    of equal score share the probability of their tie. A sample without a score (None) is never chosen; a
    subset of such samples counts as wrong.

    >>> best_of_n([0.9, 0.1], [True, False], 2)
    1.0
    >>> best_of_n([0.5, 0.5], [True, False], 2)
    0.5
    """
    total = len(scores)
    _check_sizes(total, n)
    if len(correct) != total:
        raise ValueError(f"{total} scores and {len(correct)} correct: expected as many")
    ties: dict[float, list[bool]] = {}
    below = 0
    for score, right in zip(scores, correct, strict=True):
        if score is None:
            below += 1
        elif score != score:
            raise ValueError("scores: expected numbers or None, got NaN")
        else:
            ties.setdefault(score, []).append(right)
    chance = 0.0
    for score in sorted(ties):
        tied = ties[score]
        subsets = comb(below + len(tied), n) - comb(below, n)  # whose best lies in this tie
        chance += subsets / comb(total, n) * (sum(tied) / len(tied))
        below += len(tied)
    return chance


def _check_sizes(samples: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k={k}: expected 1 to {samples}, the number of samples of the problem")
