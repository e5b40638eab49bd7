"""How sure a figure is: intervals over problems, the unit that was drawn.

Samples of one problem are not independent, so problems are resampled, never samples. Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Statistics = Callable[[NDArray[np.int64]], Mapping[str, float | None]]
"""Figures by name of the problems at the places given, some of them several times; None: not to be had."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over problems and a confidence interval around it."""

    mean: float
    low: float
    high: float
    level: float
    problems: int


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """The mean of one value a problem, with a percentile bootstrap interval over problems (Efron 1979).

    Problems, not samples, are drawn with replacement: samples of one problem are not independent. For the
    difference of two models on the same problems, pass the differences.

    Raises:
        ValueError: without problems, with values that are not finite, or a level outside (0, 1).
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) == 0 or not np.isfinite(numbers).all():
        raise ValueError("values: expected one finite number for each of one or more problems")
    _check(level, resamples)
    generator = np.random.default_rng(seed)
    # One row at a time: resamples x problems indices at once would need gigabytes for a large set.
    means = [numbers[generator.integers(0, len(numbers), len(numbers))].mean() for _ in range(resamples)]
    return Interval(float(numbers.mean()), *_percentiles(means, level), level, len(numbers))


def bootstrap_bounds(
    statistics: Statistics, problems: int, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """(low, high) of figures that are no means over problems, such as an AUC, by the percentile bootstrap.

    Draws in which a figure cannot be had (an AUC without a wrong sample) do not count for it; without any
    draw left it is not in the result.

    >>> bootstrap_bounds(lambda places: {"share": float((places < 5).mean())}, 10, resamples=200)
    {'share': (0.2, 0.8)}

    Raises:
        ValueError: without problems or resamples, or for a level outside (0, 1).
    """
    if problems < 1:
        raise ValueError(f"problems={problems}: expected 1 or more")
    _check(level, resamples)
    generator = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(resamples):
        for name, value in statistics(generator.integers(0, problems, problems)).items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return {name: _percentiles(values, level) for name, values in found.items()}


def wilson_interval(share: float, problems: int, *, level: float = 0.95) -> tuple[float, float]:
    """(low, high) of a share of `problems` >= 1 that were drawn independently (Wilson 1927).

    Never of width 0, also where the share is 0 or 1. For a mean of values between 0 and 1 it is no narrower
    than for right and wrong alone, because such values spread less.

    >>> [round(end, 3) for end in wilson_interval(0.0, 8)]
    [0.0, 0.324]
    """
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    scale = 1.0 + z * z / problems
    middle = (share + z * z / (2 * problems)) / scale
    half = z * sqrt(share * (1.0 - share) / problems + (z / (2 * problems)) ** 2) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def share_interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """As `bootstrap_interval`, for values in [0, 1]; where all are 0 or all are 1, Wilson's interval.

    Resampling would give an interval of width 0 there, as if 0 of 8 right settled the matter. Equal values
    between are no answers of yes or no, of which Wilson's interval speaks.
    """
    found = bootstrap_interval(values, level=level, resamples=resamples, seed=seed)
    if min(values) < max(values) or values[0] not in (0.0, 1.0):
        return found
    low, high = wilson_interval(values[0], len(values), level=level)
    return replace(found, low=low, high=high)


def _percentiles(values: Sequence[float], level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def _check(level: float, resamples: int) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level}: expected between 0 and 1")
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: expected 1 or more")
