"""processbench and steps: whether a process reward model finds the first wrong step.

And whether it tells right steps from wrong ones at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.errors import ConfigError, DataError
from rewards.evaluation.curves import DIAGONAL, roc, thinned
from rewards.evaluation.resampling import by_question, measured, rows_of
from rewards.evaluation.results import Chart, Findings, Line, Table
from rewards.evaluation.settings import Measuring
from rewards.evaluation.solutions import Solution
from rewards.intervals import Statistics
from rewards.options import suggest
from rewards.protocols.processbench import SIZES, StepFinding, best_threshold, first_error, threshold_curve
from rewards.protocols.steps import measure_steps

_STEPS = {
    "auc": "a right step's value is above a wrong step's",
    "error_ap": "average precision of finding wrong steps by low values",
    "first_error_recall": "the first step below the threshold is the first wrong one, where there is one",
}


def process_bench(rows: Sequence[Solution], settings: Measuring) -> Findings:
    """ProcessBench by its definition, for each set and on average.

    Raises:
        ConfigError: threshold_set is none of the sets. DataError: a set of the benchmark's name is not whole,
        or has no right or no wrong solutions.
    """
    labelled = [row for row in rows if row.first_error is not None]
    judged, said = _judged(labelled, "count as right")
    if len(labelled) < len(rows):
        said.append(f"left out: {len(rows) - len(labelled):,} solutions that are not labelled throughout")
    sets: dict[str, list[Solution]] = {}
    for row in judged:
        sets.setdefault(row.subset, []).append(row)
    said += _check_sizes(sets, len(rows) - len(judged))
    threshold = _threshold(sets, settings)
    chosen = settings.threshold_set
    how = "as set" if chosen is None else f"the best on {chosen}, whose own figures it flatters"
    said.append(f"threshold {threshold:.6g}: {how}")
    places = by_question([row.question for row in judged])
    statistics = _findings_of(judged, places, threshold, list(sets), chosen)
    measures = measured(statistics, len(places), _meanings(sets, chosen), settings, percent=True)
    counts = tuple(
        (name, f"{len(own):,}", f"{sum(row.first_error != -1 for row in own):,}")
        for name, own in sets.items()
    )
    lines = tuple(Line(name, _curve(own)) for name, own in sets.items())
    return Findings(
        len(places),
        tuple(measures),
        (Table("sets", ("set", "solutions", "wrong"), counts),),
        (Chart("F1 by threshold", "threshold", "F1", lines),),
        tuple(said),
    )


def step_errors(rows: Sequence[Solution], settings: Measuring) -> Findings:
    """The measures of labelled steps.

    Raises:
        DataError: no solution has values.
    """
    judged, said = _judged(rows, "are not measured")
    places = by_question([row.question for row in judged])
    values = [_values(row) for row in judged]
    labels = [
        [label if value is not None else None for value, label in zip(row.values, row.labels, strict=True)]
        for row in judged
    ]

    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        chosen: list[int] = rows_of(places, drawn).tolist()
        found = measure_steps([values[i] for i in chosen], [labels[i] for i in chosen], settings.threshold)
        return {"auc": found.auc, "error_ap": found.error_ap, "first_error_recall": found.first_error_recall}

    measures = measured(statistics, len(places), _STEPS, settings)
    flat = [
        (value, label)
        for row, marks in zip(values, labels, strict=True)
        for value, label in zip(row, marks, strict=True)
        if label is not None
    ]
    right = np.array([label for _, label in flat], np.bool_)
    solutions = sum(any(mark is not None for mark in marks) for marks in labels)
    said.append(f"{len(flat):,} labelled steps of {solutions:,} solutions, {int((~right).sum()):,} wrong")
    said.append(f"threshold {settings.threshold:g}")
    curve = roc(np.array([value for value, _ in flat]), right)
    lines = (Line("chance", DIAGONAL, guide=True), Line("steps", curve))
    chart = Chart("right steps above wrong ones", "share of wrong", "share of right", lines)
    return Findings(len(places), tuple(measures), (), (chart,), tuple(said))


def _judged(rows: Sequence[Solution], unread: str) -> tuple[list[Solution], list[str]]:
    """The solutions of which the first step has a value, and lines on the others; unread: what steps do."""
    kept = [row for row in rows if row.values and row.values[0] is not None]
    if not kept:
        raise DataError(
            f"none of the {len(rows):,} solutions has values for its steps: expected a process reward model, "
            "or a reward that judges steps"
        )
    said: list[str] = []
    if len(kept) < len(rows):
        said.append(f"left out: {len(rows) - len(kept):,} of {len(rows):,} solutions without values")
    cut = sum(None in row.values for row in kept)
    if cut:
        said.append(f"{cut:,} solutions have steps without a value: those steps {unread}")
    return kept, said


def _values(row: Solution) -> list[float]:
    """Values of all steps; one without a value is never below a threshold."""
    return [math.inf if value is None else value for value in row.values]


def _check_sizes(sets: Mapping[str, Sequence[Solution]], left_out: int) -> list[str]:
    """Refuses a set that has the name but not the size of one of the benchmark's; says what was checked."""
    if left_out:
        return []  # told already
    faults = [
        f"{name}: {len(own):,} solutions, but ProcessBench's set of this name has {SIZES[name]:,}, and its "
        "figures are for whole sets: read it without a limit, or give a part another name"
        for name, own in sets.items()
        if len(own) != SIZES.get(name, len(own))
    ]
    if faults:
        raise DataError("\n".join(faults))
    known = [name for name in sets if name in SIZES]
    return [f"sizes checked: {', '.join(known)}"] if known else []


def _threshold(sets: Mapping[str, Sequence[Solution]], settings: Measuring) -> float:
    name = settings.threshold_set
    if name is None:
        return settings.threshold
    if name not in sets:
        raise ConfigError(f"threshold_set={name}: the sets are {', '.join(sets)}{suggest(name, sets)}")
    return best_threshold([_values(row) for row in sets[name]], _labels(sets[name]))


def _labels(rows: Sequence[Solution]) -> list[int]:
    return [-1 if row.first_error is None else row.first_error for row in rows]


def _meanings(sets: Mapping[str, object], chosen: str | None) -> Mapping[str, str]:
    meanings: dict[str, str] = {}
    for name in sets:
        meanings[f"error ({name})"] = "wrong solutions whose first wrong step is found exactly"
        meanings[f"correct ({name})"] = "right solutions said to be right"
        meanings[f"f1 ({name})"] = "harmonic mean of both"
    meanings["f1 (average)"] = f"mean over {len(sets)} sets"
    if chosen is not None and len(sets) > 1:
        meanings["f1 (others)"] = f"the same without {chosen}, on which the threshold was chosen"
    return meanings


def _findings_of(
    rows: Sequence[Solution],
    places: Sequence[NDArray[np.int64]],
    threshold: float,
    sets: Sequence[str],
    chosen: str | None,
) -> Statistics:
    """The shares of every set and their means, of the questions drawn from all sets together."""
    labels = np.array(_labels(rows))
    found = np.array([first_error(_values(row), threshold) for row in rows]) == labels
    wrong = labels != -1
    kinds = np.stack([found & wrong, wrong, found & ~wrong, ~wrong], axis=1)  # (solutions, 4)
    member = np.array([[row.subset == name for name in sets] for row in rows])  # (solutions, sets)
    counts = np.stack([(member[own, :, None] & kinds[own, None]).sum(axis=0) for own in places])
    for name, (_, of_wrong, _, of_right) in zip(sets, counts.sum(axis=0).tolist(), strict=True):
        if not of_wrong or not of_right:
            raise DataError(f"{name}: {of_wrong} wrong and {of_right} right solutions: expected both kinds")

    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        figures: dict[str, float | None] = {}
        f1: dict[str, float] = {}
        for name, (hit, of_wrong, kept, of_right) in zip(
            sets, counts[drawn].sum(axis=0).tolist(), strict=True
        ):
            if of_wrong and of_right:
                one = StepFinding.of(hit / of_wrong, kept / of_right)
                figures |= {
                    f"error ({name})": one.error,
                    f"correct ({name})": one.correct,
                    f"f1 ({name})": one.f1,
                }
                f1[name] = one.f1
        if len(f1) == len(sets):
            figures["f1 (average)"] = float(np.mean(list(f1.values())))
            others = [value for name, value in f1.items() if name != chosen]
            figures["f1 (others)"] = float(np.mean(others)) if others else None
        return figures

    return statistics


def _curve(rows: Sequence[Solution]) -> tuple[tuple[float, float], ...]:
    thresholds, f1 = threshold_curve([_values(row) for row in rows], _labels(rows))
    return thinned([point for point in zip(thresholds, f1, strict=True) if math.isfinite(point[0])])
