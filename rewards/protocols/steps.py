"""Does a process reward model tell wrong steps from right ones? Over labelled steps only.

Steps after the first wrong one carry no label in most sets: None, and they do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewards.errors import DataError
from rewards.protocols.discrimination import auc
from rewards.protocols.processbench import first_error


@dataclass(frozen=True, slots=True)
class StepMeasures:
    """Of the labelled steps of some solutions; None where the labels leave nothing to measure.

    auc: that a right step's value is above a wrong step's. error_ap: average precision of finding wrong steps
    by low values. first_error_recall: share of solutions with a wrong step in which the first step below the
    threshold is the first wrong one.
    """

    auc: float | None
    error_ap: float | None
    first_error_recall: float | None


def measure_steps(
    values: Sequence[Sequence[float]], labels: Sequence[Sequence[bool | None]], threshold: float = 0.5
) -> StepMeasures:
    """The measures of step values against labels: True right, False wrong, None not labelled.

    Raises:
        DataError: values and labels differ in length, or a value is not finite.
    """
    if [len(row) for row in values] != [len(row) for row in labels]:
        raise DataError(
            "steps: values and labels of different lengths: expected a label or null for each step"
        )
    pairs = [
        (value, label)
        for row, marks in zip(values, labels, strict=True)
        for value, label in zip(row, marks, strict=True)
        if label is not None
    ]
    flat, right = [value for value, _ in pairs], [label for _, label in pairs]
    wrong = [
        (row, list(marks).index(False)) for row, marks in zip(values, labels, strict=True) if False in marks
    ]
    found = [first_error(row, threshold) == place for row, place in wrong]
    return StepMeasures(
        auc(flat, right),
        average_precision([-value for value in flat], [not label for label in right]),
        sum(found) / len(found) if found else None,
    )


def average_precision(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Sum over thresholds of (recall_k - recall_(k-1)) * precision_k, ties at once; None without a positive.

    >>> average_precision([3.0, 2.0, 1.0], [True, False, True])
    0.8333333333333333
    """
    values, hits = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    if not hits.any():
        return None
    order = np.argsort(-values, kind="stable")
    values, hits = values[order], hits[order]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # the last of each run of equal scores
    true = np.cumsum(hits)[ends]
    recall = true / hits.sum()
    return float(np.sum(np.diff(recall, prepend=0.0) * true / (ends + 1)))
