"""Fields of nested rows: lists, objects and chat messages, each fault named by row and field.

`rewards.records` reads the plain ones. Every `where` opens the message of a DataError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from rewards.errors import DataError
from rewards.records import text_field

Fields = Mapping[str, object]
Row = tuple[str, Fields | DataError]
"""(name of the row for people, its fields); the error for a line that holds no fields."""
Found = TypeVar("Found")


def each_row(
    rows: Iterable[Row], read: Callable[[int, str, Fields], Iterable[tuple[str, Found]]]
) -> Iterator[tuple[str, Found | DataError]]:
    """What `read` finds in every row, given its number from 1, its name and its fields.

    A row that it refuses gives nothing but its error: one bad row says nothing of the others.
    """
    for number, (where, row) in enumerate(rows, start=1):
        try:
            found: list[tuple[str, Found | DataError]] = [*read(number, where, fields_of(row))]
        except DataError as error:
            found = [(where, error)]
        yield from found


def fields_of(row: Fields | DataError) -> Fields:
    """The fields of a row. Raises the DataError of a line that holds none."""
    if isinstance(row, DataError):
        raise row
    return row


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
    """(role, content) of each message of a chat; content is a text, or a list of parts that are texts."""
    messages = objects_field(row, name, where)
    place = f"{where}, field {name!r}"
    return [(text_field(message, "role", place), _content(message, place)) for message in messages]


def _content(message: Fields, where: str) -> str:
    if not isinstance(message.get("content"), list):
        return text_field(message, "content", where)
    parts = objects_field(message, "content", where)
    if any(part.get("type", "text") != "text" for part in parts):
        raise fault(message, "content", where, "a text, or parts of type text alone")
    return "".join(text_field(part, "text", f"{where}, field 'content'") for part in parts)


def fault(row: Fields, name: str, where: str, expected: str) -> DataError:
    """The error for a field that is not what was expected."""
    got = type(row[name]).__name__ if name in row else f"no such field; there are {', '.join(sorted(row))}"
    return DataError(f"{where}, field {name!r}: expected {expected}, got {got}")
