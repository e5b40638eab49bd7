"""Files -> completions of questions, for best-of-N, calibration and AUC.

Three layouts are read: a line for each completion, a line for each question with lists, and RewardMATH's,
whose first solution is the right one. Knows no reward model and no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rewards.errors import DataError
from rewards.evaluation.files import OR_A_SCORER, InputFile, Right, Source, Values, values_of
from rewards.evaluation.roles import Record, as_list
from rewards.types import Sample

_REWARD_MATH = "solution_reference"
"""The field by which RewardMATH's result files are known: who wrote each solution, a human the first."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion of a question.

    values: None where it has no score. correct: None where the verifier is to say. answer: None where there
    is none, or none was looked for. sample: None where the file holds no text.
    """

    question: str
    values: Values | None
    correct: bool | None
    answer: str | None
    sample: Sample | None


@dataclass(frozen=True, slots=True)
class Completions:
    """The completions of all files.

    said: which fields were taken for what, one line a file. answers: whether every file tells the answers,
    in a field or by texts and golds.
    """

    rows: tuple[Completion, ...]
    said: tuple[str, ...]
    answers: bool


def read_completions(source: Source) -> Completions:
    """The completions of all files.

    Raises:
        ConfigError: for a field that is missing. DataError: for a line that does not fit.
    """
    rows: list[Completion] = []
    said: list[str] = []
    answers = True
    for path in source.paths:
        roles = ["question", "prompt", "gold", "completion", "correct", "answer"]
        file = InputFile(path, [*roles, "score"] if source.scored else roles, source)
        right = _right(file)
        grouped = _is_grouped(file, right)
        for number, record in file.lines:
            read = _question if grouped else _single
            rows += read(file, number, record, right)
        told = ["a question a line" if grouped else "a completion a line"]
        said.append(file.said(*told, *([_TOLD[right]] if right in _TOLD else [])))
        answers = answers and ("answer" in file.fields or {"completion", "gold"} <= file.fields.keys())
    return Completions(tuple(rows), tuple(said), answers)


_TOLD = {"first": "the first of each line is right", "verify": "right and wrong from our verifier"}


def _right(file: InputFile) -> Right:
    """Where right and wrong come from in a file, auto settled; what that and the scores need is there."""
    if file.source.scored:
        file.require("score", instead=OR_A_SCORER)
    else:
        file.require("completion")
    right = file.source.right
    if right == "auto":
        if "correct" in file.fields:
            right = "field"
        elif _REWARD_MATH in file.lines[0][1]:
            right = "first"
        else:
            right = "verify" if {"completion", "gold"} <= file.fields.keys() else "field"
    if right == "field":
        file.require("correct", instead=", or right=first or right=verify")
    elif right == "verify":
        file.require("completion", "gold")
    return right


def _is_grouped(file: InputFile, right: Right) -> bool:
    """Whether a line is a question with lists, told by what it must hold.

    Texts and answers of the other kind, such as a worked solution beside lists of scores, are not the
    completions', and are left alone unless the user named them.
    """
    decisive = "correct" if file.source.scored and right == "field" else "completion"
    grouped = right == "first" or as_list(file.first_value(decisive)) is not None
    for role in ("completion", "answer"):
        other = (as_list(file.first_value(role)) is not None) != grouped
        if role != decisive and other and file.source.named.get(role) is None:
            file.fields.pop(role, None)
    return grouped


def _columns(file: InputFile, number: int, record: Record, right: Right) -> dict[str, object]:
    """What a line holds of each role; stored scores, answers and texts that nobody judges may be null."""
    columns = {role: file.value(number, record, role) for role in ("completion", "score", "answer")}
    if right == "verify" or not file.source.scored:
        columns["completion"] = file.needed(number, record, "completion")
    if right == "field":
        columns["correct"] = file.needed(number, record, "correct")
    return {role: value for role, value in columns.items() if role in file.fields}


def _single(file: InputFile, number: int, record: Record, right: Right) -> list[Completion]:
    """The one completion of a line."""
    columns = _columns(file, number, record, right)
    for role, value in columns.items():
        nested = any(as_list(entry) is not None for entry in as_list(value) or ())
        if nested or (role != "score" and as_list(value) is not None):
            file.refuse(number, role, value)
    return [_completion(file, number, record, columns, file.key(number, record))]


def _question(file: InputFile, number: int, record: Record, right: Right) -> list[Completion]:
    """The completions of a line that is a question."""
    lists: dict[str, Sequence[object]] = {}
    for role, value in _columns(file, number, record, right).items():
        entries = as_list(value)
        if entries is None:
            file.refuse(number, role, value)
        lists[role] = entries
    sizes = {role: len(entries) for role, entries in lists.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{size} in {file.fields[role]!r}" for role, size in sizes.items())
        raise DataError(f"{file.path}, line {number}: {told}: expected as many of each, one a completion")
    if right == "first":
        lists["correct"] = [place == 0 for place in range(next(iter(sizes.values())))]
    rows = [dict(zip(lists, entries, strict=True)) for entries in zip(*lists.values(), strict=True)]
    return [_completion(file, number, record, row, f"{file.path}, line {number}") for row in rows]


def _completion(
    file: InputFile, number: int, record: Record, row: Mapping[str, object], key: str
) -> Completion:
    text, correct, answer = row.get("completion"), row.get("correct"), row.get("answer")
    return Completion(
        key,
        values_of(row.get("score")),
        None if correct is None else bool(correct),
        cast("str | None", answer) or None,
        None if text is None else Sample(file.problem(number, record), cast(str, text)),
    )
