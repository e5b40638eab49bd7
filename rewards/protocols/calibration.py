"""Are the probabilities of a reward model as often right as they say?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewards.errors import DataError


@dataclass(frozen=True, slots=True)
class Bin:
    """A row of the reliability table: completions with a probability in [low, high), 1.0 in the last."""

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


def calibrate(probabilities: Sequence[float], labels: Sequence[bool], bins: int = 10) -> Calibration:
    """Expected calibration error (Guo and others, 1706.04599, equation 3), Brier score, reliability table.

    bins: of equal width; empty ones are left out.

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
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    table = tuple(
        Bin(i / bins, (i + 1) / bins, int(own.sum()), float(p[own].mean()), float(y[own].mean()))
        for i in range(bins)
        if (own := place == i).any()
    )
    ece = sum(row.count * abs(row.accuracy - row.mean_probability) for row in table) / len(p)
    return Calibration(ece, float(((p - y) ** 2).mean()), table)
