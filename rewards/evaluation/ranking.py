"""auc and calibration: whether higher scores mean right, and as often as they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError
from rewards.evaluation.columns import called, columns_of, probabilities
from rewards.evaluation.completions import Completion
from rewards.evaluation.curves import DIAGONAL, roc
from rewards.evaluation.resampling import by_question, measured, rows_of
from rewards.evaluation.results import Chart, Findings, Line, Measure, Table
from rewards.evaluation.settings import Measuring
from rewards.intervals import Statistics
from rewards.protocols.calibration import Calibration, calibrate
from rewards.protocols.discrimination import auc


def ranking(rows: Sequence[Completion], settings: Measuring) -> Findings:
    """AUC over all completions and within questions.

    Raises:
        DataError: no completion has a score.
    """
    rows, columns, said = _scored(rows, settings)
    right = np.array([row.correct for row in rows], np.bool_)
    places = by_question([row.question for row in rows])
    measures: list[Measure] = []
    lines = [Line("chance", DIAGONAL, guide=True)]
    for column, scores in columns.items():
        values = np.array(scores)
        measures += measured(_auc_of(values, right, places), len(places), _AUCS, settings, column=column)
        lines.append(Line(called("scores", column), roc(values, right)))
    mixed = [own for own in places if 0 < right[own].sum() < len(own)]
    pairs = sum(int(right[own].sum() * (~right[own]).sum()) for own in mixed)
    said.append(f"{len(mixed):,} of {len(places):,} questions have right and wrong ones: {pairs:,} pairs")
    chart = Chart("right above wrong, over all completions", "share of wrong", "share of right", tuple(lines))
    return Findings(len(places), tuple(measures), (), (chart,), tuple(said))


_AUCS = {
    "auc": "a right completion scores above a wrong one, over all questions",
    "auc_within": "and above a wrong one of the same question",
}


def _auc_of(
    values: NDArray[np.float64], right: NDArray[np.bool_], places: Sequence[NDArray[np.int64]]
) -> Statistics:
    pairs = np.array([int(right[own].sum() * (~right[own]).sum()) for own in places], np.float64)
    own_aucs = [auc(values[own].tolist(), right[own].tolist()) or 0.0 for own in places]
    won = pairs * np.array(own_aucs)

    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        chosen = rows_of(places, drawn)
        total = pairs[drawn].sum()
        return {
            "auc": auc(values[chosen].tolist(), right[chosen].tolist()),
            "auc_within": float(won[drawn].sum() / total) if total else None,
        }

    return statistics


def calibration(rows: Sequence[Completion], settings: Measuring) -> Findings:
    """Calibration errors, Brier score and reliability of scores as probabilities.

    Raises:
        DataError: no completion has a score, or one is no probability.
    """
    rows, columns, said = _scored(rows, settings)
    right = np.array([row.correct for row in rows], np.bool_)
    places = by_question([row.question for row in rows])
    measures: list[Measure] = []
    tables: list[Table] = []
    lines = [Line("as often as said", DIAGONAL, guide=True)]
    for column, scores in columns.items():
        likely, how = probabilities(scores, settings.scale)
        said += [how] if how not in said else []
        p = np.array(likely)
        measures += measured(
            _errors_of(p, right, places, settings.bins), len(places), _ERRORS, settings, column=column
        )
        found = calibrate(p.tolist(), right.tolist(), settings.bins)
        mass = calibrate(p.tolist(), right.tolist(), settings.bins, "mass")
        tables.append(_reliability(called("reliability, bins of equal width", column), found))
        for kind, result in (("equal width", found), ("equal mass", mass)):
            points = tuple((row.mean_probability, row.accuracy) for row in result.bins)
            lines.append(Line(called(kind, column), points))
    said.append(f"{right.mean():.1%} of {len(rows):,} completions are right")
    chart = Chart("reliability", "mean probability", "share of right", tuple(lines))
    return Findings(len(places), tuple(measures), tuple(tables), (chart,), tuple(said))


_ERRORS = {
    "ece": "expected calibration error, bins of equal width",
    "ece_mass": "the same, bins of equally many completions",
    "brier": "mean squared error of the probabilities",
}


def _errors_of(
    p: NDArray[np.float64], right: NDArray[np.bool_], places: Sequence[NDArray[np.int64]], bins: int
) -> Statistics:
    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        chosen = rows_of(places, drawn)
        own, labels = p[chosen].tolist(), right[chosen].tolist()
        width = calibrate(own, labels, bins)
        return {
            "ece": width.ece,
            "ece_mass": calibrate(own, labels, bins, "mass").ece,
            "brier": width.brier,
        }

    return statistics


def _reliability(title: str, found: Calibration) -> Table:
    rows = (
        (
            f"{row.low:.2f} to {row.high:.2f}",
            f"{row.count:,}",
            f"{row.mean_probability:.3f}",
            f"{row.accuracy:.3f}",
        )
        for row in found.bins
    )
    return Table(title, ("probability", "completions", "mean probability", "right"), tuple(rows))


def _scored(
    rows: Sequence[Completion], settings: Measuring
) -> tuple[list[Completion], Mapping[str, list[float]], list[str]]:
    """The rows that have a score, with their columns."""
    kept = [row for row in rows if row.values is not None]
    if not kept:
        raise DataError(f"none of the {len(rows):,} completions has a score")
    columns, said = columns_of([row.values for row in kept], settings.aggregation)
    if len(kept) < len(rows):
        said.append(f"left out: {len(rows) - len(kept):,} of {len(rows):,} completions without a score")
    known = {name: [score for score in scores if score is not None] for name, scores in columns.items()}
    return kept, known, said
