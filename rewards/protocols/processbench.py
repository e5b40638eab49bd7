"""Does a process reward model find the first wrong step? (ProcessBench, Zheng and others, 2412.06559)

A prediction is the first step whose value lies below a threshold, -1 where none does. The threshold is 0.5
for models trained with labels; otherwise it is chosen on one named set and kept for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewards.errors import DataError

SIZES: Mapping[str, int] = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}
"""Solutions of the benchmark's four sets; figures of other numbers are of another set."""


@dataclass(frozen=True, slots=True)
class StepFinding:
    """Shares, 0 to 1. error: wrong solutions whose first wrong step is found exactly; correct: right ones
    said to be right; f1: their harmonic mean, 0 where both are 0."""

    error: float
    correct: float
    f1: float

    @staticmethod
    def of(error: float, correct: float) -> StepFinding:
        """The finding of the two shares."""
        both = error + correct
        return StepFinding(error, correct, 2 * error * correct / both if both else 0.0)


def first_error(values: Sequence[float], threshold: float) -> int:
    """Index of the first step below the threshold, -1 for none.

    >>> first_error([0.9, 0.4, 0.2], 0.5)
    1
    """
    return next((place for place, value in enumerate(values) if value < threshold), -1)


def step_finding(predictions: Sequence[int], labels: Sequence[int]) -> StepFinding:
    """The measures of predictions against labels: index of the first wrong step, -1 for a right solution.

    Raises:
        DataError: lengths that differ, or no right or no wrong solution among the labels.
    """
    found, truth = np.asarray(predictions, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    wrong = truth != -1
    if len(found) != len(truth) or wrong.all() or not wrong.any():
        raise DataError(
            f"processbench: {len(found)} predictions, {len(truth)} labels, {int(wrong.sum())} of them of "
            "wrong solutions: expected as many of each, and right and wrong solutions"
        )
    return StepFinding.of(float((found == truth)[wrong].mean()), float((found == truth)[~wrong].mean()))


def best_threshold(values: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """The threshold of the highest F1 on a set, the smallest of equals; for a named set, kept for the others.

    Raises:
        DataError: as `threshold_curve`.
    """
    thresholds, f1 = threshold_curve(values, labels)
    return thresholds[int(np.argmax(f1))]


def threshold_curve(
    values: Sequence[Sequence[float]], labels: Sequence[int]
) -> tuple[list[float], list[float]]:
    """All thresholds that give different predictions, ascending, and the F1 of each.

    They are every step value, and one above them all. A wrong solution is found by the thresholds t with
    value of its first wrong step < t <= each value before it, a right one by t <= each of its values; so that
    counting the ends of such ranges tries all thresholds at once.

    Raises:
        DataError: lengths that differ, no right or no wrong solution, or a label that is not -1 or the index
            of a step.
    """
    if len(values) != len(labels):
        raise DataError(f"processbench: {len(values)} solutions, {len(labels)} labels: expected as many")
    for row, label in zip(values, labels, strict=True):
        if not row or not -1 <= label < len(row):
            raise DataError(
                f"processbench: label {label} for {len(row)} step values: expected -1 or a step's"
            )
    right = np.sort([min(row) for row, label in zip(values, labels, strict=True) if label == -1])
    if len(right) in (0, len(values)):
        raise DataError(
            f"processbench: {len(right)} of {len(values)} solutions are right: expected both kinds"
        )
    steps = np.unique(np.concatenate([np.asarray(row, dtype=np.float64) for row in values]))
    thresholds = np.append(steps, np.nextafter(steps[-1], np.inf))
    ranges = [
        (row[label], min(row[:label], default=np.inf))
        for row, label in zip(values, labels, strict=True)
        if label != -1
    ]
    ends = np.array([(low, high) for low, high in ranges if low < high]).reshape(-1, 2)
    lows, highs = np.sort(ends, axis=0).T
    found = np.searchsorted(lows, thresholds) - np.searchsorted(highs, thresholds)
    error = found / len(ranges)
    correct = 1.0 - np.searchsorted(right, thresholds) / len(right)
    both = error + correct
    f1 = np.divide(2 * error * correct, both, out=np.zeros_like(both), where=both > 0)
    return thresholds.tolist(), f1.tolist()
