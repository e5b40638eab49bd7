"""Are the probabilities of a reward model as often right as they say?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError

Binning = Literal["width", "mass"]


@dataclass(frozen=True, slots=True)
class Bin:
    """A row of the reliability table: completions with a probability from low to high."""

    low: float
    high: float
    count: int
    mean_probability: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """ece: mean over completions of |accuracy - mean probability| of their bin. brier: mean squared error."""

    ece: float
    brier: float
    bins: tuple[Bin, ...]


def calibrate(
    probabilities: Sequence[float], labels: Sequence[bool], bins: int = 10, binning: Binning = "width"
) -> Calibration:
    """Expected calibration error (Guo and others, 1706.04599, equation 3), Brier score, reliability table.

    bins: empty ones are left out. binning: width: bins of equal width, [0, 0.1) to [0.9, 1]. mass: bins of
    equally many completions, where equal probabilities stay together.

    >>> calibrate([1.0, 0.0], [True, True]).brier
    0.5

    Raises:
        DataError: nothing to measure, lengths that differ, or a probability outside [0, 1].
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(p) != len(y) or len(p) == 0 or bins < 1:
        raise DataError(f"calibration: {len(p)} probabilities, {len(y)} labels, {bins} bins")
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError("calibration: a probability outside [0, 1]: pass logits through a sigmoid first")
    rank = p if binning == "width" else np.searchsorted(np.sort(p), p) / len(p)
    place = np.minimum((rank * bins).astype(np.int64), bins - 1)
    table = tuple(
        _bin(p[own], y[own], (i / bins, (i + 1) / bins) if binning == "width" else None)
        for i in range(bins)
        if (own := place == i).any()
    )
    ece = sum(row.count * abs(row.accuracy - row.mean_probability) for row in table) / len(p)
    return Calibration(ece, float(((p - y) ** 2).mean()), table)


def _bin(p: NDArray[np.float64], y: NDArray[np.float64], ends: tuple[float, float] | None) -> Bin:
    low, high = ends or (float(p.min()), float(p.max()))
    return Bin(low, high, len(p), float(p.mean()), float(y.mean()))
