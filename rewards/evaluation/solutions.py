"""Files -> solutions in steps with labels, for ProcessBench and the measures of steps.

Knows no reward model and no protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    steps = cast("Sequence[str] | None", file.value(number, record, "steps"))
    values = cast("Sequence[float] | None", file.value(number, record, "values"))
    if "values" in file.fields and values is None:
        file.refuse(number, "values", None)
    count = len(values if values is not None else steps or ())
    if steps is not None and len(steps) != count:
        raise DataError(
            f"{file.path}, line {number}: {len(steps)} steps and {count} values: expected as many"
        )
    texts = list(steps) if steps is not None else [""] * count
    label = file.needed(number, record, "labels")
    listed = as_list(label)
    if (listed is None and not -1 <= cast(int, label) < count) or (listed and len(listed) != count):
        file.refuse(number, "labels", label)
    marks = _marks(cast(int, label), count) if listed is None else tuple(map(_mark, listed))
    spans: list[tuple[int, int]] = []
    for text in texts:
        start = spans[-1][1] if spans else 0
        spans.append((start, start + len(text) + len(_BETWEEN_STEPS)))
    text = "".join(text + _BETWEEN_STEPS for text in texts)
    return Solution(
        file.key(number, record),
        stem(file.path),
        tuple(map(float, values)) if values is not None else (None,) * count,
        marks,
        _first_error(marks),
        Sample(file.problem(number, record), text),
        tuple(spans),
    )


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
