"""Which field of an input record is what: names, their common synonyms, and the sample a record stands for.

Knows the layouts people keep model outputs in; knows nothing of judging or of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from rewards.errors import ConfigError, DataError
from rewards.options import suggest
from rewards.records import ANSWER_TYPES, flag_field, gold_field, id_field, text_field
from rewards.types import AnswerType, Problem, Sample


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields of an input record. Only the completion must be there."""

    completion: str = "completion"
    gold: str = "gold"
    prompt: str = "prompt"
    id: str = "id"
    prefill: str = "prefill"
    """What the chat template had put into the assistant turn, such as an opening think tag."""
    truncated: str = "truncated"
    """Whether the token limit ended the completion."""
    answer_type: str = "answer_type"
    """One of rewards.types.ANSWER_TYPES; auto when absent."""


# Tried in this order, in any case of letters, and only where the setting has its default name and the record
# has no such field. A field serves one role: `answer` is the completion only when nothing else is.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "completion": (
        "response",
        "output",
        "generation",
        "generated_text",
        "model_output",
        "prediction",
        "pred",
        "answer",
    ),
    "gold": (
        "ground_truth",
        "gold_answer",
        "expected_answer",
        "reference_answer",
        "target",
        "answer",
        "solution",
    ),
    "prompt": ("question", "problem", "instruction", "query", "input"),
    "id": ("unique_id", "uid", "example_id", "question_id", "problem_id"),
}


_SPARSE = ("prefill", "truncated", "answer_type")
"""Roles whose field may be written only where it says something."""


def check_named(fields: Fields, records: Sequence[Mapping[str, Any]], path: str) -> list[str]:
    """Looks for the fields that were given a name of their own in the first records of a file (one or more).

    Returns one line for each that none of them has, where that may be meant. Raises ConfigError where it can
    only be a slip: a reward without its golds would abstain on every line.
    """
    there = dict.fromkeys(key for record in records for key in record)
    defaults = asdict(Fields())
    faults: list[str] = []
    said: list[str] = []
    for role, name in asdict(fields).items():
        if name == defaults[role] or name in there:
            continue
        fault = f"fields.{role}={name}: the first {len(records)} lines have no such field"
        if role in _SPARSE:
            said.append(fault + suggest(name, there))
        else:
            faults.append(f"{fault}; {path} has {', '.join(there) or 'none'}{suggest(name, there)}")
    if faults:
        raise ConfigError("\n".join(faults))
    return said


def resolve_fields(fields: Fields, record: Mapping[str, Any]) -> tuple[Fields, list[str]]:
    """The fields with synonyms found in a first record, and one line for each choice worth saying.

    >>> resolve_fields(Fields(), {"question": "2+2?", "answer": "4", "response": "It is 4."})[0].gold
    'answer'
    """
    chosen: dict[str, str] = {}
    said: list[str] = []
    for role, synonyms in _SYNONYMS.items():
        name = _field_name(fields, role)
        if name in record or name != _field_name(Fields(), role):
            continue
        free = {key.lower(): key for key in record if key not in chosen.values()}
        found = next((free[other] for other in (name, *synonyms) if other in free), None)
        if found is not None:
            chosen[role] = found
            said.append(f"no field {name!r}: {found!r} is read as the {role} (fields.{role}=NAME to change)")
        elif role == "gold":
            said.append(f"no field {name!r} or a synonym: what needs a gold abstains (fields.gold=NAME)")
    return replace(fields, **chosen), said


def sample_of(record: Mapping[str, Any], fields: Fields, where: str) -> tuple[str | int | None, Sample]:
    """(id or None, sample) of a record. Raises DataError naming where ("file, line n") and the field."""
    row_id, problem = problem_of(record, fields, where)
    sample = Sample(
        problem,
        text=text_field(record, fields.completion, where),
        prefill=text_field(record, fields.prefill, where, default=""),
        truncated=flag_field(record, fields.truncated, where),
    )
    return row_id, sample


def problem_of(record: Mapping[str, Any], fields: Fields, where: str) -> tuple[str | int | None, Problem]:
    """(id or None, problem) of a record; a prompt may be missing. Raises DataError as sample_of does."""
    answer_type = text_field(record, fields.answer_type, where, default="auto")
    if answer_type not in ANSWER_TYPES:
        raise DataError(
            f"{where}, field {fields.answer_type!r}: expected one of {', '.join(ANSWER_TYPES)}, "
            f"got {answer_type!r}; fields.answer_type=NAME reads another field"
        )
    row_id = id_field(record, fields.id, where)
    problem = Problem(
        id="" if row_id is None else str(row_id),
        prompt=text_field(record, fields.prompt, where, default=""),
        gold=gold_field(record, fields.gold, where),
        answer_type=cast(AnswerType, answer_type),
    )
    return row_id, problem


def _field_name(fields: Fields, role: str) -> str:
    names = {"completion": fields.completion, "gold": fields.gold, "prompt": fields.prompt, "id": fields.id}
    return names[role]
