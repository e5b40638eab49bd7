"""Which field of a file holds what an evaluation needs: names that people use, and what values look like.

A field is taken by its name only where its values fit, so that `score` may hold numbers in one file and
verdicts in another; but no such field stands in for one that has the role's own name. Knows values, not what
is measured with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from rewards.errors import ConfigError
from rewards.options import suggest
from rewards.records import gold_texts

Record = Mapping[str, Any]
Predicate = Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class Role:
    """names: of fields that may hold it, in this order; fits: whether a value that is not null may be one."""

    names: tuple[str, ...]
    fits: Predicate
    expected: str


def is_text(value: object) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def is_number(value: object) -> bool:
    """Whether it is a finite number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_verdict(value: object) -> bool:
    """Whether it says right or wrong: true, false, 1 or 0."""
    return isinstance(value, bool) or (is_number(value) and value in (0, 1))


def each(fits: Predicate, *, nulls: bool = False) -> Predicate:
    """Lists, one or more long, of such values (or nulls, but not of nulls alone)."""

    def all_fit(value: object) -> bool:
        entries = as_list(value)
        known = [entry for entry in entries or () if not (nulls and entry is None)]
        return bool(known) and all(map(fits, known))

    return all_fit


def either(*predicates: Predicate) -> Predicate:
    """Values of one of several kinds."""
    return lambda value: any(fits(value) for fits in predicates)


def as_list(value: object) -> Sequence[object] | None:
    """The value where it is a list, else None."""
    return cast(Sequence[object], value) if isinstance(value, list) else None


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _is_step_label(value: object) -> bool:
    return (
        value == "neutral" or isinstance(value, bool) or (is_number(value) and 0 <= cast(float, value) <= 1)
    )


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(
        is_text(cast(Record, value).get(key)) for key in ("role", "content")
    )


def _is_gold(value: object) -> bool:
    return bool(gold_texts(value))


_values = each(is_number)
_score = either(is_number, _values)
_text = either(is_text, each(_is_message))

_OF_EACH = "or a list of {} for the completions of a question"


def _role(names: str, fits: Predicate, expected: str) -> Role:
    return Role(tuple(names.split()), fits, expected)


ROLES: Mapping[str, Role] = {
    "question": _role("question_id problem_id prompt_id", _is_id, "a string or an integer"),
    "prompt": _role("prompt question problem instruction query", is_text, "a string"),
    "gold": _role(
        "gold ground_truth gold_answer expected_answer reference_answer gt answer",
        _is_gold,
        "a string, a number or a list of these",
    ),
    "completion": _role(
        "completion completions response responses generation generations output outputs solution solutions "
        "code text",
        either(is_text, each(is_text)),
        f"a string, {_OF_EACH.format('strings')}",
    ),
    "score": _role(
        "score scores pred_score pred_scores reward rewards rm_score rm_scores value values",
        either(_score, each(_score, nulls=True)),
        f"a finite number, a list of step values, {_OF_EACH.format('either')}",
    ),
    "correct": _role(
        "correct is_correct recorded_correct final_answer_correct label labels score",
        either(is_verdict, each(is_verdict)),
        f"true or false, {_OF_EACH.format('these')}",
    ),
    "answer": _role(
        "pred preds prediction predictions extracted_answer extracted_answers answers",
        either(is_text, each(is_text, nulls=True)),
        f"a string, {_OF_EACH.format('strings')}",
    ),
    "steps": _role("steps completions", each(is_text), "a list of strings"),
    "values": _role(
        "values step_values step_scores step_rewards scores score rewards",
        _values,
        "a list of finite numbers, one a step",
    ),
    "labels": _role(
        "labels step_labels label",
        either(each(_is_step_label, nulls=True), _is_index),
        "a label for each step (1 right, 0 wrong, null not judged), or the index of the first wrong step, -1 "
        "for none",
    ),
    "chosen": _role("chosen", _text, "a string or a list of messages"),
    "rejected": _role(
        "rejected", either(_text, each(is_text)), "a string, a list of messages, or a list of strings"
    ),
    "chosen_score": _role(
        "chosen_score chosen_scores chosen_reward", _score, "a finite number, or a list of step values"
    ),
    "rejected_score": _role(
        "rejected_score rejected_scores rejected_reward",
        either(_score, each(_score)),
        f"a finite number, a list of step values, {_OF_EACH.format('either')}",
    ),
    "subset": _role("subset domain section category", is_text, "a string"),
}
"""Everything that some protocol reads from a file."""
_SHARED = {
    name
    for name, count in Counter(name for role in ROLES.values() for name in role.names).items()
    if count > 1
}
"""Names that may stand for several roles."""


def find_fields(
    wanted: Iterable[str], records: Sequence[Record], named: Mapping[str, str | None], path: str
) -> dict[str, str]:
    """The fields of a file for the roles wanted, as far as there are any.

    Args:
        wanted: names of ROLES.
        records: the first of the file.
        named: fields that the user named for their roles; None: to be found.
        path: of the file.

    Raises:
        ConfigError: for a named field that the records do not have.
    """
    there = dict.fromkeys(key for record in records for key in record)
    found: dict[str, str] = {}
    for role in wanted:
        name = named.get(role)
        if name is not None and name not in there:
            raise ConfigError(
                f"fields.{role}={name}: {path} has {', '.join(there) or 'no fields'}{suggest(name, there)}"
            )
        held = name or next((name for name in ROLES[role].names if _holds(role, name, records)), None)
        if held in _SHARED and role in there and role not in _SHARED:
            held = role  # what has the role's own name is meant, whatever it holds, before a makeshift
        if held is not None:
            found[role] = held
    return found


def _holds(role: str, name: str, records: Sequence[Record]) -> bool:
    # By the first value alone: what does not fit further down is that line's fault, and told so.
    values = (value for record in records if (value := record.get(name)) is not None)
    return any(ROLES[role].fits(value) for value in islice(values, 1))
