"""best_of_n: what a reward model's pick among the completions of a question is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rewards.errors import DataError
from rewards.evaluation.columns import called, columns_of, probabilities
from rewards.evaluation.completions import Completion
from rewards.evaluation.figures import interval, percent, percent_range
from rewards.evaluation.resampling import by_question
from rewards.evaluation.results import Chart, Findings, Line, Measure, Table
from rewards.evaluation.settings import Measuring
from rewards.intervals import share_interval
from rewards.protocols.best_of_n import Candidates, Ties, measure, picks, subsample

Found = TypeVar("Found")
_MEANINGS = {
    "pass@1": "a random completion is right",
    "majority": "the answer given most often is right",
    "weighted": "the answer with the largest sum of probabilities is right",
    "best_of_n": "the completion of the highest score is right",
    "worst_of_n": "the completion of the lowest score is right",
    "pass@n": "any completion is right: the oracle",
}
_BY_SCORE = ("weighted", "best_of_n", "worst_of_n")
_RULES: Mapping[Ties, str] = {
    "share": "tied picks share",
    "first": "the first listed counts",
    "lose": "a tie is lost",
}


def best_of_n(rows: Sequence[Completion], settings: Measuring, *, answers: bool) -> Findings:
    """The picks on all completions, by every rule of ties, and on N of them.

    answers: whether votes can be counted.

    Raises:
        DataError: no question has two completions.
    """
    places: list[list[int]] = [own.tolist() for own in by_question([row.question for row in rows])]
    sizes = sorted({len(own) for own in places})
    if not sizes or sizes[-1] < 2:
        raise DataError(
            "best_of_n: every question has one completion, there is nothing to choose from: "
            "fields.question=NAME tells which lines share a question"
        )
    columns, said = columns_of([row.values for row in rows], settings.aggregation)
    candidates: dict[str, list[Candidates]] = {}
    for column, scores in columns.items():
        votes, how = probabilities(scores, settings.scale)
        said += [how] if answers and how not in said else []
        candidates[column] = [
            Candidates(
                [scores[i] for i in own],
                [bool(rows[i].correct) for i in own],
                [rows[i].answer for i in own] if answers else None,
                [votes[i] for i in own],
            )
            for own in places
        ]
    if not answers:
        said.append(
            "votes are not counted: no field tells answers (fields.answer=NAME), nor do texts with golds"
        )
    if len(sizes) > 1:
        said.append(f"questions have {sizes[0]} to {sizes[-1]} completions")
    other: Ties = "share" if settings.ties == "first" else "first"
    others = {name: share for name, _, share in _each(candidates, partial(measure, ties=other))}
    measures = tuple(
        _with_other_rule(_measure(name, values, _MEANINGS[pick], settings), others[name], other)
        for name, pick, values in _each(candidates, partial(picks, ties=settings.ties))
    )
    curves, chart = _curves(candidates, sizes[0], settings)
    return Findings(len(places), measures, (_by_rule(candidates), curves), (chart,), tuple(said))


def _each(
    candidates: Mapping[str, Sequence[Candidates]],
    measured: Callable[[Sequence[Candidates]], Mapping[str, Found]],
) -> Iterator[tuple[str, str, Found]]:
    """Name, pick and what is measured of it; of picks that no score decides only once for all columns."""
    for place, (column, questions) in enumerate(candidates.items()):
        for pick, found in measured(questions).items():
            if pick in _BY_SCORE:
                yield called(pick, column), pick, found
            elif place == 0:
                yield pick, pick, found


def _with_other_rule(found: Measure, share: float, rule: Ties) -> Measure:
    """The figure with what another rule of ties, by which others publish, makes of it where it differs."""
    if percent(share) == percent(found.value):
        return found
    return replace(found, meaning=f"{found.meaning}; {percent(share)} where {_RULES[rule]}")


def _by_rule(candidates: Mapping[str, Sequence[Candidates]]) -> Table:
    """What the picks that can tie are worth by every rule."""
    shares: dict[str, list[str]] = {}
    for rule in _RULES:
        for name, pick, share in _each(candidates, partial(measure, ties=rule)):
            if pick not in ("pass@1", "pass@n"):
                shares.setdefault(name, []).append(percent(share))
    rows = tuple((name, *cells) for name, cells in shares.items())
    return Table("by the rule of ties", ("pick", *_RULES.values()), rows)


def _curves(
    candidates: Mapping[str, Sequence[Candidates]], most: int, settings: Measuring
) -> tuple[Table, Chart]:
    """The picks among N completions, N in powers of two up to what every question has."""
    rows: list[tuple[str, ...]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for n in sorted({most, *(2**power for power in range(most.bit_length()))}):
        drawn = partial(subsample, n=n, trials=settings.draws, seed=settings.seed, ties=settings.ties)
        for name, pick, found in _each(candidates, drawn):
            if pick not in ("pass@1", "worst_of_n"):
                mean = _measure(name, found.by_question, "", settings)
                cells = percent(mean.value), percent_range(mean.bounds), f"{100 * found.spread:.2f}"
                rows.append((f"{n}", name, *cells))
                lines.setdefault(name, []).append((float(n), mean.value))
    headings = ("N", "pick", "mean", interval(settings.level), "deviation of a draw")
    drawn_lines = tuple(Line(name, tuple(points)) for name, points in lines.items())
    table = Table("N completions of each question", headings, tuple(rows))
    return table, Chart("picks among N completions", "N", "right", drawn_lines)


def _measure(name: str, values: Sequence[float], meaning: str, settings: Measuring) -> Measure:
    found = share_interval(values, level=settings.level, resamples=settings.resamples, seed=settings.seed)
    return Measure(name, found.mean, (found.low, found.high), meaning, percent=True)
