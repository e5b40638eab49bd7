"""What an evaluation found: figures with intervals, tables and charts, as plain records that JSON keeps.

Knows neither protocols nor how anything is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.errors import DataError


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure.

    bounds: its interval over questions, None where there is none. meaning: one line for people. percent: the
    value is a share and shown as per cent.
    """

    name: str
    value: float
    bounds: tuple[float, float] | None
    meaning: str
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the first column names the rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) of a chart in order of x; guide: drawn pale, as what to compare with."""

    name: str
    points: tuple[tuple[float, float], ...]
    guide: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over one another."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a protocol found: questions, the unit of the intervals; said: what was left out, and chosen."""

    questions: int
    measures: tuple[Measure, ...]
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The findings of one protocol on one input, and how they came about.

    Args:
        name: of the measurement; results of one name replace each other.
        protocol: its name.
        judge: whose scores they are, in words.
        inputs: the files.
        level: of the intervals.
        findings: the figures.
    """

    name: str
    protocol: str
    judge: str
    inputs: tuple[str, ...]
    level: float
    findings: Findings


def result_to_record(result: Result) -> dict[str, Any]:
    """The object that stands for a result in a json file."""
    return dataclasses.asdict(result)


def result_from_record(record: Mapping[str, Any], where: str) -> Result:
    """The result that such an object stands for.

    Raises:
        DataError: naming where, for any other object.
    """
    try:
        findings = record["findings"]
        return Result(
            record["name"],
            record["protocol"],
            record["judge"],
            tuple(record["inputs"]),
            record["level"],
            Findings(
                findings["questions"],
                tuple(map(_measure, findings["measures"])),
                tuple(map(_table, findings["tables"])),
                tuple(map(_chart, findings["charts"])),
                tuple(findings["said"]),
            ),
        )
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{where}: no result of rewards.evaluate ({error}): move it out of the folder"
        ) from error


def _measure(record: Mapping[str, Any]) -> Measure:
    bounds = None if record["bounds"] is None else tuple(record["bounds"])
    return Measure(record["name"], record["value"], bounds, record["meaning"], record["percent"])


def _table(record: Mapping[str, Any]) -> Table:
    return Table(record["title"], tuple(record["headings"]), _rows(record["rows"]))


def _chart(record: Mapping[str, Any]) -> Chart:
    return Chart(record["title"], record["x"], record["y"], tuple(map(_line, record["lines"])))


def _line(record: Mapping[str, Any]) -> Line:
    return Line(record["name"], _rows(record["points"]), record["guide"])


def _rows(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(row) for row in rows)
