"""Labelled completions that reward models are trained and measured on: records, and their one file layout.

Data preparation writes these files, `rewards.fit` and `rewards.evaluate` read them. One JSON object a line:

    {"kind": "outcome", "question", "completion", "label", "source", "id", "meta"}
    {"kind": "preference", "question", "chosen", "rejected", "margin", "subset", "source", "id", "meta"}
    {"kind": "process", "question", "steps", "labels", "source", "id", "meta"}

margin, subset, source, id and meta (an object of strings) may be left out. Knows names of data
sets and nothing more of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from rewards.errors import DataError
from rewards.io import iter_jsonl, write_records
from rewards.records import id_field, meta_field, text_field

SETS = ("gsm8k_solutions", "prm800k", "math_shepherd", "processbench", "preference")
"""The public sets that data preparation brings into this layout, by name."""

NEUTRAL: Literal["neutral"] = "neutral"
"""The label of a step neither right nor wrong (PRM800K's 0); whoever trains decides what it counts as."""

StepLabel = float | Literal["neutral"] | None
"""1 right, 0 wrong, between them a share or probability of right; NEUTRAL; None: not judged."""


@dataclass(frozen=True, slots=True)
class OutcomeExample:
    """A completion and how right its outcome is.

    Args:
        question: as the model reads it.
        completion: the whole of it.
        label: in [0, 1]; 1 right, 0 wrong, between them a probability.
        source: data set or round that it comes from.
        id: of the example, "" for none.
        meta: short facts for people.

    Raises:
        DataError: for a blank question or a label outside of [0, 1].
    """

    question: str
    completion: str
    label: float
    source: str = ""
    id: str = ""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _check_question(self.question)
        _check_share("label", self.label)


@dataclass(frozen=True, slots=True)
class PreferenceExample:
    """Two completions of a question, one better than the other.

    Args:
        question: as the model reads it.
        chosen: the better one.
        rejected: the worse one.
        margin: by how much their scores should differ at least, >= 0.
        subset: measured apart where given.
        source: data set that it comes from.
        id: of the example, "" for none.
        meta: short facts for people.

    Raises:
        DataError: for a blank question, two equal completions or a negative margin.
    """

    question: str
    chosen: str
    rejected: str
    margin: float = 0.0
    subset: str = ""
    source: str = ""
    id: str = ""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _check_question(self.question)
        if self.chosen == self.rejected:
            raise DataError("chosen and rejected are equal: expected two completions, one better")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise DataError(f"margin={self.margin!r}: expected a number >= 0")


@dataclass(frozen=True, slots=True)
class ProcessExample:
    """A completion in steps, each with its label.

    Args:
        question: as the model reads it.
        steps: their texts, one or more; joined they are the completion.
        labels: one a step. None stands where nobody judged, such as after the first error.
        source: data set or round that it comes from.
        id: of the example, "" for none.
        meta: short facts for people.

    Raises:
        DataError: for a blank question, no steps, or labels that are not one a step, each a StepLabel.
    """

    question: str
    steps: tuple[str, ...]
    labels: tuple[StepLabel, ...]
    source: str = ""
    id: str = ""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _check_question(self.question)
        if not self.steps or len(self.steps) != len(self.labels):
            raise DataError(
                f"{len(self.steps)} steps, {len(self.labels)} labels: expected one label (or null) for each "
                "of one or more steps"
            )
        for place, label in enumerate(self.labels):
            if label is not None and label != NEUTRAL:
                _check_share(f"labels[{place}]", label)


Example = OutcomeExample | PreferenceExample | ProcessExample


def read_labelled(path: str | os.PathLike[str]) -> list[Example]:
    """The examples of a jsonl, jsonl.gz or parquet file.

    Raises:
        DataError: naming file, line and field of the first that is wrong.
    """
    name = os.fspath(path)
    return [example_from_record(record, f"{name}, line {number}") for number, record in iter_jsonl(name)]


def write_labelled(path: str | os.PathLike[str], examples: Iterable[Example]) -> int:
    """Writes examples as jsonl (gzipped when the name ends in .gz), whole or not at all; returns how many."""
    return write_records(path, map(example_to_record, examples))


def example_to_record(example: Example) -> dict[str, Any]:
    """The record that `example_from_record` reads back to an equal example."""
    tail = {"source": example.source, "id": example.id, "meta": dict(example.meta)}
    match example:
        case OutcomeExample(question, completion, label):
            return {"kind": "outcome", "question": question, "completion": completion, "label": label} | tail
        case PreferenceExample(question, chosen, rejected, margin, subset):
            pair = {"question": question, "chosen": chosen, "rejected": rejected}
            return {"kind": "preference", **pair, "margin": margin, "subset": subset} | tail
        case ProcessExample(question, steps, labels):
            solution = {"question": question, "steps": list(steps), "labels": list(labels)}
            return {"kind": "process", **solution} | tail


def example_from_record(record: Mapping[str, Any], where: str) -> Example:
    """The example of a record; where ("file, line n") opens the message of its DataError.

    >>> record = {"kind": "outcome", "question": "1 + 1?", "completion": "2", "label": 1}
    >>> example_from_record(record, "here").label
    1.0
    """
    kind = text_field(record, "kind", where)
    question, source = text_field(record, "question", where), text_field(record, "source", where, default="")
    name, meta = id_field(record, "id", where), meta_field(record, where)
    tail = (source, "" if name is None else str(name), meta)
    try:
        match kind:
            case "outcome":
                completion = text_field(record, "completion", where)
                return OutcomeExample(question, completion, _number(record, "label", where), *tail)
            case "preference":
                chosen, rejected = (text_field(record, side, where) for side in ("chosen", "rejected"))
                margin = _number(record, "margin", where, default=0.0)
                subset = text_field(record, "subset", where, default="")
                return PreferenceExample(question, chosen, rejected, margin, subset, *tail)
            case "process":
                labels: tuple[StepLabel, ...] = tuple(
                    _step_label(label, where) for label in _list(record, "labels", where)
                )
                return ProcessExample(question, _texts(record, "steps", where), labels, *tail)
            case _:
                raise DataError(f"kind={kind!r}: expected outcome, preference or process")
    except DataError as error:
        told = str(error)
        raise DataError(told if told.startswith(where) else f"{where}: {told}") from error


def _check_question(question: str) -> None:
    if not question.strip():
        raise DataError("question: expected a text that is not blank")


def _check_share(name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise DataError(f"{name}={value!r}: expected a number from 0 (wrong) to 1 (right)")


def _number(record: Mapping[str, Any], name: str, where: str, default: float | None = None) -> float:
    value: object = record.get(name, default)
    if not isinstance(value, (int, float)):
        raise DataError(f"{where}, field {name!r}: expected a number, got {value!r}")
    return float(value)


def _step_label(value: object, where: str) -> StepLabel:
    if value is None or value == NEUTRAL:
        return cast(StepLabel, value)
    if not isinstance(value, (int, float)):
        raise DataError(
            f"{where}, field 'labels': expected numbers from 0 to 1, {NEUTRAL!r} or null, got {value!r}"
        )
    return float(value)


def _list(record: Mapping[str, Any], name: str, where: str) -> Sequence[object]:
    value: object = record.get(name)
    if not isinstance(value, list):
        raise DataError(f"{where}, field {name!r}: expected a list, got {type(value).__name__}")
    return cast(list[object], value)


def _texts(record: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    texts = tuple(text for text in _list(record, name, where) if isinstance(text, str))
    if len(texts) != len(record[name]):
        raise DataError(f"{where}, field {name!r}: expected a list of strings")
    return texts
