"""Figures with intervals: questions are resampled, and their rows with them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.evaluation.columns import called
from rewards.evaluation.results import Measure
from rewards.evaluation.settings import Measuring
from rewards.intervals import Statistics, bootstrap_bounds, wilson_interval


def by_question(questions: Sequence[Hashable]) -> list[NDArray[np.int64]]:
    """The places of each question's rows, questions in order of their first."""
    places: dict[Hashable, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(question, []).append(place)
    return [np.array(own) for own in places.values()]


def rows_of(places: Sequence[NDArray[np.int64]], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the rows of the questions drawn, one question after the other."""
    questions: list[int] = drawn.tolist()
    return np.concatenate([places[question] for question in questions])


def measured(
    statistics: Statistics,
    questions: int,
    meanings: Mapping[str, str],
    settings: Measuring,
    *,
    column: str = "",
    percent: bool = False,
) -> list[Measure]:
    """The figures that can be had of all questions, with their bounds.

    percent: they are shares; where all draws agree on 0 or 1, the bounds are Wilson's, not of width 0.
    """
    found = bootstrap_bounds(
        statistics, questions, level=settings.level, resamples=settings.resamples, seed=settings.seed
    )
    whole = statistics(np.arange(questions))
    measures: list[Measure] = []
    for name, meaning in meanings.items():
        if (value := whole.get(name)) is not None:
            bounds = found.get(name)
            if percent and bounds == (value, value) and value in (0.0, 1.0):
                bounds = wilson_interval(value, questions, level=settings.level)
            measures.append(Measure(called(name, column), value, bounds, meaning, percent))
    return measures
