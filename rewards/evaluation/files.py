"""An input file of an evaluation: its lines, which field holds what, and its faults in words.

A value that does not fit is a DataError that names file, line, field and what was expected. Knows no layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from rewards.errors import ConfigError, DataError
from rewards.evaluation.roles import ROLES, Record, as_list, find_fields
from rewards.io import iter_jsonl
from rewards.records import gold_texts, score_from_record
from rewards.types import Problem

Right = Literal["auto", "field", "first", "verify"]
Values = tuple[float, ...]
"""A score, or the values of the steps of a completion."""
OR_A_SCORER = ", or what scores: model.path=FOLDER or reward=NAME"
_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class Source:
    """Where to read and how.

    named: fields that the user named, by role. limit: most lines of each file, None for all. right: where
    right and wrong come from. scored: whether scores are read; otherwise texts are. scores: a score file of
    rewards.score for the lines of the one file; None: scores are in the files. steps: read the values of its
    steps rather than of the whole.
    """

    paths: tuple[str, ...]
    named: Mapping[str, str | None]
    limit: int | None
    right: Right
    scored: bool
    scores: str | None = None
    steps: bool = False


class InputFile:
    """One file and its fields by role."""

    def __init__(self, path: str, roles: Iterable[str], source: Source) -> None:
        self.path, self.source = path, source
        self.lines = list(islice(iter_jsonl(path), source.limit))
        if not self.lines:
            raise DataError(f"{path}: holds no lines")
        if source.scores is not None:
            self.lines = _with_scores(self.lines, path, source.scores, source.steps)
        first = [record for _, record in self.lines[:_LOOKED_AT]]
        self.fields = find_fields(roles, first, source.named, path)
        if source.scores is not None:
            self.fields["score"] = _SCORE

    def first_value(self, role: str) -> object:
        """What the first line that is not null there holds for the role; None where there is none."""
        name = self.fields.get(role, "")
        return next((value for _, record in self.lines if (value := record.get(name)) is not None), None)

    def value(self, number: int, record: Record, role: str) -> object:
        """What the line holds for the role; None where there is no field, or null in it."""
        name = self.fields.get(role)
        value = None if name is None else record.get(name)
        if value is not None and not ROLES[role].fits(value):
            self.refuse(number, role, value)
        return value

    def needed(self, number: int, record: Record, role: str) -> object:
        """The same where the line must hold something."""
        value = self.value(number, record, role)
        if value is None:
            self.refuse(number, role, value)
        return value

    def refuse(self, number: int, role: str, value: object) -> NoReturn:
        """Raises DataError naming file, line and field."""
        raise DataError(
            f"{self.path}, line {number}, field {self.fields[role]!r}: expected {ROLES[role].expected}, "
            f"got {_shown(value)}; fields.{role}=NAME reads another field"
        )

    def require(self, *roles: str, instead: str = "") -> None:
        """Raises ConfigError unless there is a field for each role; instead: what else would do."""
        faults = [
            f"{self.path}: no field holds the {role} ({ROLES[role].expected}) among "
            f"{', '.join(map(self._told, self.lines[0][1]))}; give fields.{role}=NAME{instead}"
            for role in roles
            if role not in self.fields
        ]
        if faults:
            raise ConfigError("\n".join(faults))

    def _told(self, name: str) -> str:
        """The name of a field, and what it holds where it has the name of a role but does not fit."""
        if name not in ROLES or name in self.fields.values():
            return name
        value = next((value for _, record in self.lines if (value := record.get(name)) is not None), None)
        return f"{name}: {_shown(value)}"

    def said(self, *extra: str) -> str:
        """Which fields were taken for what."""
        taken = [f"{role} from {name!r}" for role, name in self.fields.items()]
        return f"{self.path}: {len(self.lines):,} lines; {', '.join([*taken, *extra])}"

    def key(self, number: int, record: Record) -> str:
        """What the lines of a question share: its id, else its text; a line's own place without either."""
        for role in ("question", "prompt"):
            if (value := self.value(number, record, role)) is not None:
                return str(value)
        return f"{self.path}, line {number}"

    def problem(self, number: int, record: Record, prompt: str | None = None) -> Problem:
        """The problem of a line; prompt: where it is known from elsewhere."""
        text = cast("str | None", self.value(number, record, "prompt")) if prompt is None else prompt
        gold = gold_texts(self.value(number, record, "gold")) or ()
        return Problem(f"{self.path}, line {number}", text or "", gold)


def _shown(value: object) -> str:
    got = "null or nothing" if value is None else repr(value)
    return got if len(got) <= 60 else f"{got[:60]}…"


_SCORE = "value of the score file"


def _with_scores(
    lines: Sequence[tuple[int, Record]], path: str, scores: str, steps: bool
) -> list[tuple[int, dict[str, Any]]]:
    """The lines with what a score file says of each; a line that was not scored has null."""
    joined: list[tuple[int, dict[str, Any]]] = []
    rows = iter_jsonl(scores)
    for number, record in lines:
        _, written = next(rows, (0, None))
        if written is None:
            raise DataError(f"{scores}: ends before line {number} of {path}: expected a score for each line")
        row_id, score = score_from_record(written, f"{scores}, line {number}")
        if row_id != record.get("id", row_id):
            raise DataError(
                f"{scores}, line {number}: the score of {row_id!r}, but {path} has {record['id']!r} there: "
                "expected the scores of the same lines"
            )
        values = [step.value for step in score.steps] if steps and score.steps else score.value
        joined.append((number, {**record, _SCORE: None if score.value is None else values}))
    return joined


def values_of(score: object) -> Values | None:
    """A score, or a list of step values, as a tuple; an empty list is no score."""
    if score is None:
        return None
    values = as_list(score)
    found = (score,) if values is None else tuple(values)
    return tuple(float(cast(float, value)) for value in found) or None


def stem(path: str) -> str:
    """The name of a file without its endings.

    >>> stem("data/gsm8k.jsonl.gz")
    'gsm8k'
    """
    name = Path(path).name
    for ending in (".gz", ".jsonl", ".parquet", ".json"):
        name = name.removesuffix(ending)
    return name
