"""pairs: whether the better of two completions, or of more, scores highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewards.errors import DataError
from rewards.evaluation.columns import called, columns_of
from rewards.evaluation.figures import interval, percent, percent_range
from rewards.evaluation.pairs import Pair
from rewards.evaluation.resampling import by_question, measured
from rewards.evaluation.results import Findings, Measure, Table
from rewards.evaluation.settings import Measuring

_UNNAMED = "(none)"
_SHARES = {
    "accuracy": "the chosen completion scores strictly above every rejected one",
    "ties": "it scores as high as the highest of them: counted as wrong",
}
_SUBSET_MEAN = {"subset_mean": "mean of the subsets' accuracies"}


@dataclass(frozen=True, slots=True)
class _Outcome:
    question: str
    subset: str
    won: bool
    tied: bool


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
        said.append(f"left out: {len(pairs) - len(kept):,} of {len(pairs):,} pairs, a side has no score")
    measures: list[Measure] = []
    tables: list[Table] = []
    for column, scores in columns.items():
        outcomes = _outcomes(kept, [score for score in scores if score is not None])
        measures += _shares(outcomes, settings, column)
        subsets = sorted({outcome.subset for outcome in outcomes})
        if subsets != [_UNNAMED]:
            rows = (_subset_row(name, outcomes, settings) for name in subsets)
            headings = ("subset", "pairs", "accuracy", interval(settings.level), "ties")
            tables.append(Table(called("by subset", column), headings, tuple(rows)))
    questions = len({pair.question for pair in kept})
    said.append(f"{len(kept):,} pairs of {questions:,} questions")
    return Findings(questions, tuple(measures), tuple(tables), (), tuple(said))


def _outcomes(pairs: Sequence[Pair], scores: Sequence[float]) -> list[_Outcome]:
    """What became of each pair; scores: of all sides in order."""
    outcomes: list[_Outcome] = []
    rest = iter(scores)
    for pair in pairs:
        chosen, *rejected = (next(rest) for _ in pair.sides)
        best = max(rejected)
        outcomes.append(_Outcome(pair.question, pair.subset or _UNNAMED, chosen > best, chosen == best))
    return outcomes


def _shares(outcomes: Sequence[_Outcome], settings: Measuring, column: str = "") -> list[Measure]:
    """The figures of some pairs; the mean over subsets where there are several."""
    places = by_question([outcome.question for outcome in outcomes])
    subsets = sorted({outcome.subset for outcome in outcomes})
    member = np.array([[outcome.subset == name for name in subsets] for outcome in outcomes])
    kinds = np.array([[outcome.won, outcome.tied, True] for outcome in outcomes])
    counts = np.stack([(member[own, :, None] & kinds[own, None]).sum(axis=0) for own in places])

    def statistics(drawn: NDArray[np.int64]) -> Mapping[str, float | None]:
        by_subset = counts[drawn].sum(axis=0)  # (subsets, [won, tied, all])
        won, tied, pairs = by_subset.sum(axis=0).tolist()
        figures: dict[str, float | None] = {"accuracy": won / pairs, "ties": tied / pairs}
        if by_subset[:, 2].all():
            figures["subset_mean"] = float((by_subset[:, 0] / by_subset[:, 2]).mean())
        return figures

    meanings = _SHARES | (_SUBSET_MEAN if len(subsets) > 1 else {})
    return measured(statistics, len(places), meanings, settings, column=column, percent=True)


def _subset_row(name: str, outcomes: Sequence[_Outcome], settings: Measuring) -> tuple[str, ...]:
    own = [outcome for outcome in outcomes if outcome.subset == name]
    accuracy, _ = _shares(own, settings)
    ties = sum(outcome.tied for outcome in own)
    return name, f"{len(own):,}", percent(accuracy.value), percent_range(accuracy.bounds), f"{ties:,}"
