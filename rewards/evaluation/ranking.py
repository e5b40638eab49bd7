"""auc, calibration and pairs: whether higher scores mean right, and as often as they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError
from rewards.evaluation.columns import by_question, called, columns_of, probabilities, rows_of, thinned
from rewards.evaluation.completions import Completion
from rewards.evaluation.figures import interval, percent, percent_range
from rewards.evaluation.pairs import Pair
from rewards.evaluation.results import Chart, Findings, Line, Measure, Table
from rewards.evaluation.settings import Measuring
from rewards.intervals import Statistics, bootstrap_bounds, wilson_interval
from rewards.protocols.calibration import Calibration, calibrate
from rewards.protocols.discrimination import auc

DIAGONAL = ((0.0, 0.0), (1.0, 1.0))


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


def roc(values: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """Points (share of wrong, share of right) at or above each score; empty without both kinds."""
    if right.all() or not right.any():
        return ()
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
    hits, misses = np.cumsum(right[order])[ends], np.cumsum(~right[order])[ends]
    points = zip((misses / misses[-1]).tolist(), (hits / hits[-1]).tolist(), strict=True)
    return thinned([(0.0, 0.0), *points])


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


def preference(pairs: Sequence[Pair], settings: Measuring) -> Findings:
    """Strict accuracy of pairs and their ties, over all and by subset.

    Raises:
        DataError: no pair has scores for all its completions.
    """
    kept = [pair for pair in pairs if None not in pair.sides]
    if not kept:
        raise DataError(f"none of the {len(pairs):,} pairs has scores for all its completions")
    columns, said = columns_of([side for pair in kept for side in pair.sides], settings.aggregation)
    if len(kept) < len(pairs):
        said.append(
            f"left out: {len(pairs) - len(kept):,} of {len(pairs):,} pairs with a side without a score"
        )
    names = sorted({pair.subset for pair in kept} - {""})
    places = by_question([pair.question for pair in kept])
    measures: list[Measure] = []
    tables: list[Table] = []
    for column, scores in columns.items():
        won, tied = _outcomes(kept, [score for score in scores if score is not None])
        of_pair = np.array([names.index(pair.subset) if pair.subset else -1 for pair in kept])
        measures += measured(
            _shares_of(won, tied, places), len(places), _PAIRS, settings, column=column, percent=True
        )
        if names:
            rows = [
                _subset_row(name, kept, of_pair == i, (won, tied), settings) for i, name in enumerate(names)
            ]
            mean = float(np.mean([won[of_pair == i].mean() for i in range(len(names))]))
            measures.append(
                Measure(
                    called("subset_mean", column), mean, None, "mean of the subsets' accuracies", percent=True
                )
            )
            headings = ("subset", "pairs", "accuracy", interval(settings.level), "ties")
            tables.append(Table(called("by subset", column), headings, tuple(rows)))
    said.append(f"{len(kept):,} pairs of {len(places):,} questions")
    return Findings(len(places), tuple(measures), tuple(tables), (), tuple(said))


_PAIRS = {
    "accuracy": "the chosen completion scores strictly above every rejected one",
    "ties": "it scores as high as the highest of them: counted as wrong",
}


def _outcomes(pairs: Sequence[Pair], scores: Sequence[float]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which pairs are won, and which tied; scores: of all sides in order."""
    won: list[bool] = []
    tied: list[bool] = []
    rest = iter(scores)
    for pair in pairs:
        chosen, *rejected = (next(rest) for _ in pair.sides)
        won.append(chosen > max(rejected))
        tied.append(chosen == max(rejected))
    return np.array(won), np.array(tied)


def _shares_of(
    won: NDArray[np.bool_], tied: NDArray[np.bool_], places: Sequence[NDArray[np.int64]]
) -> Statistics:
    sums = np.array([[won[own].sum(), tied[own].sum(), len(own)] for own in places])

    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        wins, ties, count = sums[drawn].sum(axis=0).tolist()
        return {"accuracy": wins / count, "ties": ties / count}

    return statistics


def _subset_row(
    name: str,
    pairs: Sequence[Pair],
    chosen: NDArray[np.bool_],
    outcomes: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    settings: Measuring,
) -> tuple[str, ...]:
    own = [pair for pair, is_own in zip(pairs, chosen, strict=True) if is_own]
    places = by_question([pair.question for pair in own])
    won, tied = (flags[chosen] for flags in outcomes)
    accuracy, _ = measured(_shares_of(won, tied, places), len(places), _PAIRS, settings, percent=True)
    shown = percent(accuracy.value), percent_range(accuracy.bounds)
    return name, f"{len(own):,}", *shown, f"{int(tied.sum()):,}"
