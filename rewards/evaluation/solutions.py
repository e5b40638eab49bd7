"""Files -> solutions in steps with labels, for ProcessBench and the measures of steps.

Knows no reward model and no protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import cast

from rewards.errors import DataError
from rewards.evaluation.files import OR_A_SCORER, InputFile, Source, stem
from rewards.evaluation.roles import Record, as_list
from rewards.types import Sample

_BETWEEN_STEPS = "\n\n"


@dataclass(frozen=True, slots=True)
class Solution:
    """A completion in steps.

    subset: the set that it belongs to. values: one a step, None where there is none; labels: True right,
    False wrong, None not judged. first_error: index of the first wrong step, -1 where all are right, None
    where that is not known. sample: the steps joined; spans: where they are in it.
    """

    question: str
    subset: str
    values: tuple[float | None, ...]
    labels: tuple[bool | None, ...]
    first_error: int | None
    sample: Sample
    spans: tuple[tuple[int, int], ...]


def read_solutions(source: Source) -> tuple[list[Solution], list[str]]:
    """The solutions of all files, a set each, and one line a file of what was taken for what.

    A label between 0 and 1 is a share of right completions, and right from 0.5 on; neutral steps are right.

    Raises:
        ConfigError: for a field that is missing. DataError: for a line that does not fit.
    """
    rows: list[Solution] = []
    said: list[str] = []
    for path in source.paths:
        roles = ["question", "prompt", "labels", "steps"]
        file = InputFile(path, [*roles, "values"] if source.scored else roles, source)
        file.require("labels")
        if source.scored:
            file.require("values", instead=OR_A_SCORER)
        else:
            file.require("steps", "prompt")
        rows += [_solution(file, number, record) for number, record in file.lines]
        said.append(file.said())
    return rows, said


def _solution(file: InputFile, number: int, record: Record) -> Solution:
    scored = file.source.scored
    stored = cast("Sequence[float]", file.needed(number, record, "values")) if scored else None
    given = file.value(number, record, "steps") if scored else file.needed(number, record, "steps")
    steps = cast("Sequence[str] | None", given)
    values = tuple(map(float, stored)) if stored is not None else (None,) * len(steps or ())
    if steps is not None and len(steps) != len(values):
        raise DataError(
            f"{file.path}, line {number}: {len(steps)} steps and {len(values)} values: expected as many"
        )
    marks = _labels(file, number, record, len(values))
    text, spans = _joined(steps if steps is not None else [""] * len(values))
    return Solution(
        file.key(number, record),
        stem(file.path),
        values,
        marks,
        _first_error(marks),
        Sample(file.problem(number, record), text),
        spans,
    )


def _joined(steps: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of steps with blank lines behind them, and where each is in it, its blank line included."""
    pieces = [step + _BETWEEN_STEPS for step in steps]
    ends = list(accumulate(map(len, pieces), initial=0))
    return "".join(pieces), tuple(pairwise(ends))


def _labels(file: InputFile, number: int, record: Record, steps: int) -> tuple[bool | None, ...]:
    """One a step, from such a list or from the index of the first wrong step."""
    label = file.needed(number, record, "labels")
    listed = as_list(label)
    if listed is not None and len(listed) == steps:
        return tuple(map(_mark, listed))
    if listed is not None or not -1 <= cast(int, label) < steps:
        file.refuse(number, "labels", label)
    return _marks(cast(int, label), steps)


def _marks(first_error: int, count: int) -> tuple[bool | None, ...]:
    if first_error == -1:
        return (True,) * count
    return (True,) * first_error + (False,) + (None,) * (count - first_error - 1)


def _mark(label: object) -> bool | None:
    return None if label is None else label == "neutral" or cast(float, label) >= 0.5


def _first_error(marks: Sequence[bool | None]) -> int | None:
    if False in marks:
        return list(marks).index(False)
    return None if None in marks else -1
