"""What a setting may be: choices and bounds declared on a schema's field, checked in one walk.

Schemas are dataclasses whose fields carry a type, and through `option` what the type cannot say. Their values
come from the yaml files under conf alone, so that no default is written down twice. Knows nothing of Hydra.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, cast, get_args, get_origin

MISSING = "???"
"""How Hydra spells a value that must still be given."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What a value may be: one of `choices`, or a finite number between the limits that are not None."""

    choices: tuple[str, ...] = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None

    def expected(self) -> str:
        """The bounds in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        limits = ((">=", self.at_least), (">", self.above), ("<=", self.at_most))
        return "a finite number " + " and ".join(
            f"{sign} {limit:g}" for sign, limit in limits if limit is not None
        )

    def allow(self, value: str | float) -> bool:
        """Whether a value of the field's type keeps the bounds."""
        if self.choices:
            return value in self.choices
        number = float(value)
        return (
            math.isfinite(number)
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
        )


def option(
    *choices: str, at_least: float | None = None, above: float | None = None, at_most: float | None = None
) -> Any:
    """A schema field whose value comes from yaml: `aggregation: str = option("token_mean", "constant")`."""
    bounds = Bounds(choices, at_least, above, at_most)
    metadata = {} if bounds == Bounds() else {"bounds": bounds}
    return dataclasses.field(default=MISSING, metadata=metadata)


def problems_of(record: Any, prefix: str = "") -> list[str]:
    """One line for every field of a schema object, at any depth, that is unknown or breaks its bounds."""
    fields = {field.name: field for field in dataclasses.fields(record)}
    problems: list[str] = []
    # A key that was forced in with a plus sign becomes an attribute that the schema does not have.
    for key, value in cast(dict[str, Any], vars(record)).items():
        name = prefix + key
        if key not in fields:
            problems.append(
                f"{name}={value}: unknown option; expected {', '.join(fields)}{suggest(key, fields)}"
            )
        elif dataclasses.is_dataclass(value):
            problems += problems_of(value, name + ".")
        elif isinstance(value, dict):
            for entry, inner in cast(dict[str, Any], value).items():
                problems += problems_of(inner, f"{name}.{entry}.") if dataclasses.is_dataclass(inner) else []
        else:
            problems += _bound_problems(name, value, fields[key].metadata.get("bounds"))
    return problems


def _bound_problems(name: str, value: Any, bounds: Bounds | None) -> list[str]:
    if bounds is None or value is None or bounds.allow(value):
        return []
    return [f"{name}={value}: expected {bounds.expected()}{suggest(str(value), bounds.choices)}"]


def suggest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the nearest of the valid names, or nothing when none is near.

    >>> suggest("verifable", ["format", "verifiable"])
    "; did you mean 'verifiable'?"
    """
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def fits(value: object, hint: Any) -> bool:
    """Whether a plain yaml value suits an annotation; what is not plain is left to the constructor."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, types.NoneType):
        return isinstance(value, hint)
    return True


def in_words(hint: Any) -> str:
    """An annotation as a person would write it in yaml."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if hint is types.NoneType:
        return "null"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(in_words, get_args(hint)))
    if get_origin(hint) is list:
        return "a list in brackets, [a,b]"
    return hint.__name__ if inspect.isclass(hint) else str(hint)
