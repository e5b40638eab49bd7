"""Scores of completions as columns of numbers, aggregated, and as probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rewards.aggregate import AGGREGATIONS, Aggregation, aggregate
from rewards.errors import DataError
from rewards.evaluation.files import Values
from rewards.evaluation.settings import Scale

Columns = Mapping[str, list[float | None]]
"""Scores by the name of their aggregation; of plain scores the name is empty."""


def columns_of(values: Sequence[Values | None], aggregation: Aggregation | None) -> tuple[Columns, list[str]]:
    """One column of scores for each aggregation, and lines on what was done.

    Values of which none has more than one step are plain scores. Without an aggregation named, all are taken
    but the product of negative values.

    Raises:
        DataError: the product of negative values was asked for.
    """
    steps = [len(row) for row in values if row is not None]
    if max(steps, default=0) <= 1:
        return {"": [None if row is None else row[0] for row in values]}, []
    names: list[Aggregation] = list(AGGREGATIONS) if aggregation is None else [aggregation]
    said = [f"scores are {sum(steps):,} step values, aggregated by {', '.join(names)}"]
    if "product" in names and any(value < 0 for row in values for value in row or ()):
        if aggregation is not None:
            raise DataError(
                "aggregation=product: a step value is negative: expected probabilities; take another"
            )
        names.remove("product")
        said.append("some step values are negative: no product")
    columns = {name: [None if row is None else aggregate(row, name) for row in values] for name in names}
    return columns, said


def called(name: str, column: str) -> str:
    """The name of a figure of a column."""
    return f"{name} ({column})" if column else name


def probabilities(scores: Sequence[float | None], scale: Scale) -> tuple[list[float | None], str]:
    """Scores as probabilities, and a line on how; of logits the sigmoid."""
    known = [score for score in scores if score is not None]
    bounded = all(0 <= score <= 1 for score in known)
    if scale == "probability" or (scale == "auto" and bounded):
        return list(scores), "scores are taken for probabilities"
    logistic = [None if score is None else float(0.5 * (1 + np.tanh(score / 2))) for score in scores]
    return logistic, "scores are taken for logits: probabilities are their sigmoid"
