"""Step values -> one value for the completion.

Knows the common reductions; knows nothing of where the values come from. Every function takes one or more
finite values, in order; an empty list is a ValueError, because no reduction has a natural value for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

Aggregation = Literal["min", "product", "mean", "last", "soft_min"]
SOFT_MIN_TEMPERATURE = 0.1
"""PURE's temperature (Cheng et al. 2025, arXiv:2504.15275)."""


def product(values: Sequence[float]) -> float:
    """The product of probabilities in [0, 1], summed in log space so that long solutions do not underflow.

    It punishes many steps: 0.9 for each of 20 gives 0.12.

    >>> round(product([0.5, 0.5]), 12)
    0.25
    """
    if any(value < 0 for value in values):
        raise ValueError("product: expected probabilities; a value is negative")
    if min(values) == 0:
        return 0.0
    return math.exp(math.fsum(map(math.log, values)))


def last(values: Sequence[float]) -> float:
    """The value of the last step, which for labels made by completions estimates the whole."""
    return values[-1]


def soft_min(values: Sequence[float]) -> float:
    """sum_k w_k r_k with w = softmax(-r / T) over the steps, T = SOFT_MIN_TEMPERATURE (PURE, eq. 5).

    >>> round(soft_min([1.0, 0.0]), 6)
    4.5e-05
    """
    lowest = min(values)
    weights = [math.exp((lowest - value) / SOFT_MIN_TEMPERATURE) for value in values]
    total = math.fsum(weights)
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total


AGGREGATIONS: Mapping[Aggregation, Callable[[Sequence[float]], float]] = {
    "min": min,
    "product": product,
    "mean": fmean,
    "last": last,
    "soft_min": soft_min,
}
"""The reductions by name."""


def aggregate(values: Sequence[float], name: Aggregation) -> float:
    """One value for one or more step values.

    Raises:
        ValueError: for no values, or a negative one under `product`.
    """
    if not values:
        raise ValueError(f"aggregate {name}: expected one or more values")
    return AGGREGATIONS[name](values)
