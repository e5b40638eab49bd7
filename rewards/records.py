"""The shapes of records in files: a JSON line, a problem, a score; faults are named by file, line and field.

Knows what a problem file and a score file contain, not how files are opened (rewards.io) nor how text is
judged.
Wherever a function takes `where`, it is the place ("file, line 7") that opens the message of a DataError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from rewards.errors import DataError
from rewards.types import ANSWER_TYPES, Part, Problem, Reason, Score, StepScore, Verdict

_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not even be read as bytes of a record; problem says why."""

    problem: str


RawRecord = bytes | dict[str, Any] | BrokenLine
"""One record as it lies in the file: an undecoded jsonl line, a parquet row, or a line too broken to keep."""


def decode_record(path: str, number: int, raw: RawRecord) -> dict[str, Any]:
    """The record as a dict. Raises DataError naming file and line when it is not a JSON object in UTF-8."""
    if isinstance(raw, dict):
        return raw
    where = f"{path}, line {number}"
    if isinstance(raw, BrokenLine):
        raise DataError(f"{where}: {raw.problem}")
    if not raw.strip():
        raise DataError(f"{where}: empty line: expected a JSON object")
    try:
        record: object = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as err:
        raise DataError(
            f"{where}: byte {err.start} (0x{raw[err.start]:02x}) is not UTF-8: re-encode the file as UTF-8"
        ) from err
    except RecursionError as err:
        raise DataError(f"{where}: nested too deeply to be read") from err
    except json.JSONDecodeError as err:
        hint = (
            " (a NUL or other raw control byte must be written as an escape)" if "control" in err.msg else ""
        )
        raise DataError(f"{where}: not JSON at column {err.colno}: {err.msg}{hint}") from err
    except ValueError as err:  # a number with more digits than Python converts
        raise DataError(f"{where}: {err}: write so long a number as a string") from err
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected a JSON object, got {_shown(record)}")
    return cast(dict[str, Any], record)


def json_line(record: Mapping[str, Any]) -> bytes:
    """One jsonl line, ASCII: lone surrogates, NUL and terminal controls of model text stay escaped."""
    return _ENCODER.encode(record).encode("ascii") + b"\n"


def problem_from_record(record: Mapping[str, Any], where: str) -> Problem:
    """A Problem of a record {"id", "prompt", "gold", "answer_type", "source", "meta"}; only prompt is needed.

    where ("file, line n") opens the message of the DataError that a wrong field raises; a missing id becomes
    the text of where.
    """
    answer_type = text_field(record, "answer_type", where, default="auto")
    if answer_type not in ANSWER_TYPES:
        raise DataError(
            f"{where}, field 'answer_type': expected one of {', '.join(ANSWER_TYPES)}, "
            f"got {_shown(answer_type)}"
        )
    row_id = id_field(record, "id", where)
    return Problem(
        id=where if row_id is None else str(row_id),
        prompt=text_field(record, "prompt", where),
        gold=gold_field(record, "gold", where),
        answer_type=cast(Any, answer_type),
        source=text_field(record, "source", where, default=""),
        meta=meta_field(record, where),
    )


def problem_to_record(problem: Problem) -> dict[str, Any]:
    """The record that problem_from_record reads back to an equal Problem."""
    gold = problem.gold[0] if len(problem.gold) == 1 else list(problem.gold) or None
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "gold": gold,
        "answer_type": problem.answer_type,
        "source": problem.source,
        "meta": dict(problem.meta),
    }


def score_to_record(row_id: str | int, score: Score) -> dict[str, Any]:
    """The object that stands for one score in a score file. Notes and version of the whole are not in it."""
    return {
        "id": row_id,
        "verdict": score.verdict.value,
        "value": score.value,
        "reason": score.reason.value,
        "parts": [
            {
                "name": part.name,
                "weight": part.weight,
                "verdict": part.score.verdict.value,
                "value": part.score.value,
                "reason": part.score.reason.value,
                "notes": dict(part.score.notes),
            }
            for part in score.parts
        ],
        "steps": [{"start": step.start, "end": step.end, "value": step.value} for step in score.steps],
    }


def score_from_record(record: Mapping[str, Any], where: str) -> tuple[str | int, Score]:
    """(id, Score) of a line of a score file. Raises DataError naming where ("file, line n") and the fault."""
    try:
        parts = tuple(
            Part(part["name"], float(part["weight"]), _plain_score(part, notes=part["notes"]))
            for part in record["parts"]
        )
        steps = tuple(StepScore(step["start"], step["end"], step["value"]) for step in record["steps"])
        plain = _plain_score(record, notes={})
        return record["id"], replace(plain, steps=steps, parts=parts)
    except KeyError as err:
        raise DataError(f"{where}: not a line of a score file: field {err} is missing") from err
    except (TypeError, ValueError) as err:
        raise DataError(f"{where}: not a line of a score file: {err}") from err


def _plain_score(record: Mapping[str, Any], notes: Mapping[str, str]) -> Score:
    value = record["value"]
    if not (value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))):
        raise TypeError(f"value: expected a number or null, got {_shown(value)}")
    return Score(Verdict(record["verdict"]), value, Reason(record["reason"]), notes=notes)


def text_field(record: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    """A string field; default None means that it must be there. Raises DataError."""
    value = record.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        got = _shown(value) if name in record else f"no such field; there are {_shown_names(record)}"
        raise DataError(f"{where}, field {name!r}: expected a string, got {got}")
    return value


def flag_field(record: Mapping[str, Any], name: str, where: str) -> bool:
    """A true/false field, False when absent or null. Raises DataError."""
    value = record.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise DataError(f"{where}, field {name!r}: expected true or false, got {_shown(value)}")


def id_field(record: Mapping[str, Any], name: str, where: str) -> str | int | None:
    """A string or integer id, kept as it is; None when there is none. Raises DataError."""
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"{where}, field {name!r}: expected a string or an integer, got {_shown(value)}")
    return value


def gold_field(record: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """The gold answers: a string, a number, a list of these, or null (no gold: empty). Raises DataError."""
    golds = gold_texts(record.get(name))
    if golds is None:
        raise DataError(
            f"{where}, field {name!r}: expected a string, a number, a list of these or null, "
            f"got {_shown(record[name])}"
        )
    return golds


def gold_texts(value: object) -> tuple[str, ...] | None:
    """The gold answers as texts: of a string, a number, a list or tuple of these; empty for None.

    None for any other value, also for a number that is not finite.
    """
    values = (
        cast(Sequence[object], value)
        if isinstance(value, (list, tuple))
        else []
        if value is None
        else [value]
    )
    golds: list[str] = []
    for entry in values:
        if isinstance(entry, str):
            golds.append(entry)
        elif isinstance(entry, int) and not isinstance(entry, bool):
            golds.append(str(entry))
        elif isinstance(entry, float) and math.isfinite(entry):
            golds.append(repr(float(entry)))  # of a subclass too, such as a NumPy number
        else:
            return None
    return tuple(golds)


def meta_field(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """The field meta, an object of strings; empty when absent or null. Raises DataError."""
    value: object = record.get("meta")
    if value is None:
        return {}
    if isinstance(value, dict):
        entries = cast(dict[object, object], value)
        if all(isinstance(key, str) and isinstance(text, str) for key, text in entries.items()):
            return cast(dict[str, str], entries)
    raise DataError(f"{where}, field 'meta': expected an object of strings, got {_shown(record['meta'])}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _shown_names(record: Mapping[str, Any]) -> str:
    names = ", ".join(repr(name) for name in list(record)[:12])
    return names + (", …" if len(record) > 12 else "") if names else "none"
