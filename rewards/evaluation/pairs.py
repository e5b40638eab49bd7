"""Files -> pairs of a better completion and worse ones.

Knows no reward model and no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rewards.evaluation.files import OR_A_SCORER, InputFile, Source, Values, stem, values_of
from rewards.evaluation.roles import Record, as_list
from rewards.types import Sample


@dataclass(frozen=True, slots=True)
class Pair:
    """A better completion and one or more worse ones; sides: their values, None where they have none."""

    question: str
    subset: str
    sides: tuple[Values | None, ...]
    samples: tuple[Sample, ...]


def read_pairs(source: Source) -> tuple[list[Pair], list[str]]:
    """The pairs of all files, and one line a file of what was taken for what.

    Of several files, each is a subset where its lines name none.

    Raises:
        ConfigError: for a field that is missing. DataError: for a line that does not fit.
    """
    rows: list[Pair] = []
    said: list[str] = []
    for path in source.paths:
        sides = ("chosen_score", "rejected_score") if source.scored else ("chosen", "rejected")
        file = InputFile(path, ["question", "prompt", "subset", *sides], source)
        file.require(*sides, instead=OR_A_SCORER if source.scored else "")
        rest = stem(path) if len(source.paths) > 1 else ""
        rows += [_pair(file, number, record, rest, source.scored) for number, record in file.lines]
        said.append(file.said())
    return rows, said


def _pair(file: InputFile, number: int, record: Record, rest: str, scored: bool) -> Pair:
    subset = str(file.value(number, record, "subset") or rest)
    key = file.key(number, record)
    if scored:
        better = file.needed(number, record, "chosen_score")
        worse = file.needed(number, record, "rejected_score")
        several = as_list(worse)
        # A list beside a plain score holds several completions; beside step values, the steps of one.
        one = several is None or (as_list(better) is not None and not any(map(as_list, several)))
        sides = [better, *([worse] if one else several or ())]
        return Pair(key, subset, tuple(map(values_of, sides)), ())
    better, worse = (file.needed(number, record, role) for role in ("chosen", "rejected"))
    several = as_list(worse)
    others = several if several and isinstance(several[0], str) else [worse]
    prompt, messages = None, as_list(better)
    if messages is not None and "prompt" not in file.fields:
        prompt = "\n\n".join(_content(message) for message in messages[:-1])
        key = prompt or key
    problem = file.problem(number, record, prompt)
    samples = tuple(Sample(problem, _text_of(side)) for side in (better, *others))
    return Pair(key, subset, (None,) * len(samples), samples)


def _text_of(side: object) -> str:
    """A text, or what the last of some messages says."""
    messages = as_list(side)
    return cast(str, side) if messages is None else _content(messages[-1])


def _content(message: object) -> str:
    return cast(str, cast(Record, message)["content"])
