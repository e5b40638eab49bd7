"""From the judged samples of every problem to the figures of an evaluation, each with its interval.

The estimators themselves are in grpo.estimators, intervals in rewards.intervals. A problem without a verdict
is in no figure; a sample that our own machinery failed to judge is left out of its problem, and a problem
with fewer than k judged samples out of the figures of k. Knows nothing of text, models or files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from grpo.estimators import best_of_n, majority_at_k, pass_at_k
from rewards.intervals import Interval, bootstrap_interval, share_interval

TRIALS = 100
"""Subsets that vote for a maj@k; over many problems their noise is small beside the interval."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One completion. right, formatted: None when it could not be judged, or no layout is asked for.

    answer: number of its class of equal answers among the samples of the problem, None without an answer.
    score: of the scorer that chooses, None without one. length: in tokens.
    """

    right: bool | None
    answer: int | None
    score: float | None
    formatted: bool | None
    length: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Answers:
    """What was sampled for one problem."""

    greedy: Judged
    samples: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Intervals:
    """How intervals are made: the confidence level, resamples of the problems, and their seed."""

    level: float = 0.95
    resamples: int = 2000
    seed: int = 0


def measures(
    problems: Sequence[Answers], ks: Sequence[int], intervals: Intervals, *, chosen: bool
) -> dict[str, Interval]:
    """The figures by name; one without any problem is left out, never 0.

    Args:
        problems: at least one.
        ks: numbers of samples, such as (1, 2, 4).
        intervals: see there.
        chosen: whether a scorer gave scores, for best@k.
    """
    judged = [(p.greedy, [s for s in p.samples if s.right is not None]) for p in problems]
    found: dict[str, list[float]] = {
        "greedy": [float(greedy.right) for greedy, _ in judged if greedy.right is not None]
    }
    rules: dict[str, Callable[[Sequence[Judged], int], float]] = {"pass": _passed, "maj": _majority}
    if chosen:
        rules["best"] = _best
    for name, rule in rules.items():
        for k in ks:
            if k > 1 or name == "pass":  # with one sample there is nothing to choose from
                found[f"{name}@{k}"] = [rule(samples, k) for _, samples in judged if len(samples) >= k]
    layouts = [[s.formatted for s in p.samples if s.formatted is not None] for p in problems]
    found["format"] = [fmean(layout) for layout in layouts if layout]
    found["length"] = [fmean(s.length for s in p.samples) for p in problems]
    found["clipped_ratio"] = [fmean(s.truncated for s in p.samples) for p in problems]
    found["unscored"] = [fmean(s.right is None for s in p.samples) for p in problems]
    return {
        name: (bootstrap_interval if name == "length" else share_interval)(
            values, level=intervals.level, resamples=intervals.resamples, seed=intervals.seed
        )
        for name, values in found.items()
        if values
    }


def sample_counts(samples: int) -> list[int]:
    """The k that figures are given for: 1, 2, 4, ... and the number of samples.

    >>> sample_counts(6)
    [1, 2, 4, 6]
    """
    return sorted({1 << i for i in range(samples.bit_length())} | {samples})


def _passed(samples: Sequence[Judged], k: int) -> float:
    return pass_at_k(len(samples), sum(bool(s.right) for s in samples), k)


def _majority(samples: Sequence[Judged], k: int) -> float:
    return majority_at_k([s.answer for s in samples], [bool(s.right) for s in samples], k, trials=TRIALS)


def _best(samples: Sequence[Judged], k: int) -> float:
    return best_of_n([s.score for s in samples], [bool(s.right) for s in samples], k)
