"""Curves for charts, of no more points than a page needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIAGONAL = ((0.0, 0.0), (1.0, 1.0))


def roc(values: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """Points (share of wrong, share of right) at or above each score; empty without both kinds."""
    if right.all() or not right.any():
        return ()
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    hits, misses = np.cumsum(right[order])[ends], np.cumsum(~right[order])[ends]
    points = zip((misses / misses[-1]).tolist(), (hits / hits[-1]).tolist(), strict=True)
    return thinned([(0.0, 0.0), *points])


def thinned(points: Sequence[tuple[float, float]], most: int = 200) -> tuple[tuple[float, float], ...]:
    """Some of the points of a curve, its first and last among them."""
    if len(points) <= most:
        return tuple(points)
    chosen: list[int] = np.linspace(0, len(points) - 1, most).round().astype(int).tolist()
    return tuple(points[place] for place in chosen)
