"""Rows of a labelled set -> examples for reward models, with everything that was left out accounted for.

Knows what makes two examples the same and which questions are kept back for evaluation; what a row means is
known by the set's reader. Reads no file but those of evaluation questions, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from data_prep.drops import Drop, DropReason, OnError, malformed
from data_prep.fields import Row, fault
from rewards.errors import DataError
from rewards.io import iter_jsonl
from rewards.labelled import Example, OutcomeExample, PreferenceExample, ProcessExample
from rewards.questions import question_hash

Reader = Callable[[Iterable[Row]], Iterator[tuple[str, Example | DropReason | DataError]]]
"""Rows of one set -> (place for people, example, or why there is none); several for a row where it has them.

A row of another layout gives a DataError that names row and field.
"""

QUESTION_FIELDS = ("question", "prompt", "problem", "Question", "instruction")
"""Where files of evaluation sets keep their questions; the first that a row has is read."""


@dataclass(frozen=True, slots=True)
class Converted:
    """examples and drops in the order of the source; rows: how many were read."""

    examples: tuple[Example, ...]
    drops: tuple[Drop, ...]
    rows: int


def convert(
    rows: Iterable[Row],
    reader: Reader,
    excluded: AbstractSet[int] = frozenset(),
    limit: int | None = None,
    on_error: OnError = "stop",
) -> Converted:
    """Reads rows and keeps each example once.

    Args:
        rows: of one set.
        reader: knows its layout.
        excluded: hashes of questions (`rewards.questions`) that must not occur.
        limit: read this many rows at most; None reads all.
        on_error: stop refuses the first row of another layout, skip leaves such rows out.

    Raises:
        DataError: naming row and field.
    """
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in islice(rows, limit):
            count += 1
            yield row

    examples: list[Example] = []
    drops: list[Drop] = []
    seen: dict[tuple[str, ...], tuple[object, ...]] = {}
    for where, found in reader(counted()):
        if isinstance(found, DataError):
            drops.append(malformed(where, found, on_error))
        elif isinstance(found, DropReason):
            drops.append(Drop(where, found))
        elif question_hash(found.question) in excluded:
            drops.append(Drop(where, DropReason.EVALUATION, found.question[:80]))
        else:
            texts, labels = _texts_and_labels(found)
            if texts in seen:
                agree = all(a == b or None in (a, b) for a, b in zip(seen[texts], labels, strict=True))
                drops.append(Drop(where, DropReason.DUPLICATE if agree else DropReason.CONFLICT))
            else:
                seen[texts] = labels
                examples.append(found)
    return Converted(tuple(examples), tuple(drops), count)


def evaluation_questions(files: Sequence[str]) -> frozenset[int]:
    """The hashes of the questions in files of evaluation sets (jsonl, jsonl.gz or parquet).

    Raises:
        DataError: a file cannot be read, or a row of it has none of `QUESTION_FIELDS` as a text.
    """
    hashes: set[int] = set()
    for file in files:
        path = Path(file).expanduser()
        for line, row in iter_jsonl(path):
            name = next((name for name in QUESTION_FIELDS if name in row), QUESTION_FIELDS[0])
            question: object = row.get(name)
            if not isinstance(question, str):
                raise fault(row, name, f"{path}, line {line}", "the text of a question")
            hashes.add(question_hash(question))
    return frozenset(hashes)


def _texts_and_labels(example: Example) -> tuple[tuple[str, ...], tuple[object, ...]]:
    """What makes an example the same as another one, and what may then still differ; None is no label."""
    match example:
        case OutcomeExample(question, completion, label):
            return (question, completion), (label,)
        case PreferenceExample(question, chosen, rejected):
            # The same pair the other way round is a conflict.
            return (question, *sorted((chosen, rejected))), (chosen,)
        case ProcessExample(question, steps, labels):
            return (question, *steps), labels
