"""Fields of nested rows: lists, objects and chat messages, each fault named by row and field.

`rewards.records` reads the plain ones. Every `where` opens the message of a DataError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from rewards.errors import DataError
from rewards.records import text_field

Fields = Mapping[str, object]
Row = tuple[str, Fields]
"""(name of the row for people, its fields)."""


def list_field(row: Fields, name: str, where: str) -> list[object]:
    """A list; absent or null is a fault."""
    value = row.get(name)
    if not isinstance(value, list):
        raise fault(row, name, where, "a list")
    return cast(list[object], value)


def texts_field(row: Fields, name: str, where: str) -> list[str]:
    """A list of strings."""
    values = list_field(row, name, where)
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise fault(row, name, where, "a list of strings")
    return texts


def object_field(row: Fields, name: str, where: str) -> Fields:
    """An object."""
    value = row.get(name)
    if not isinstance(value, dict):
        raise fault(row, name, where, "an object")
    return cast(Fields, value)


def objects_field(row: Fields, name: str, where: str) -> list[Fields]:
    """A list of objects."""
    values = list_field(row, name, where)
    objects = [cast(Fields, value) for value in values if isinstance(value, dict)]
    if len(objects) < len(values):
        raise fault(row, name, where, "a list of objects")
    return objects


def number_field(row: Fields, name: str, where: str) -> float:
    """A finite number, not a truth value."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise fault(row, name, where, "a finite number")
    return float(value)


def truth_field(row: Fields, name: str, where: str) -> bool:
    """true or false, which must be there."""
    value = row.get(name)
    if not isinstance(value, bool):
        raise fault(row, name, where, "true or false")
    return value


def index_field(row: Fields, name: str, where: str) -> int:
    """An integer."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise fault(row, name, where, "an integer")
    return value


def messages_field(row: Fields, name: str, where: str) -> list[tuple[str, str]]:
    """(role, content) of each message of a chat."""
    messages = objects_field(row, name, where)
    place = f"{where}, field {name!r}"
    return [(text_field(m, "role", place), text_field(m, "content", place)) for m in messages]


def fault(row: Fields, name: str, where: str, expected: str) -> DataError:
    """The error for a field that is not what was expected."""
    got = type(row[name]).__name__ if name in row else f"no such field; there are {', '.join(sorted(row))}"
    return DataError(f"{where}, field {name!r}: expected {expected}, got {got}")
