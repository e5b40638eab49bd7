"""Where two score files of the same inputs disagree: counts by kind, and the texts side by side.

Knows score files and their input, not who scored them. Two lines disagree when verdict, value or reason
differ; kinds are counted over the whole files, texts are shown of the first few of each kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewards.columns import Fields, resolve_fields
from rewards.errors import DataError
from rewards.io import RecordReader, iter_jsonl
from rewards.records import decode_record, score_from_record
from rewards.types import Reason, Score, Verdict

_SHOWN_PER_KIND = 3
_SHOWN_KINDS = 12
_TAIL_CHARS = 400

Kind = tuple[str, str]
"""A short form of this score and of the other, such as ("1 match_string", "0 mismatch")."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One line on which the files differ."""

    line: int
    row_id: str | int
    this: Score
    other: Score


@dataclass(slots=True)
class Comparison:
    """What a comparison found: lines compared, counts by kind, and the first few lines of each kind."""

    lines: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter[Kind])
    examples: dict[Kind, list[Disagreement]] = field(default_factory=dict[Kind, list[Disagreement]])


def compare_files(this: str, other: str) -> Comparison:
    """Compares two score files line by line.

    Raises DataError when they do not score the same lines (other ids, other length).
    """
    result = Comparison()
    for number, (mine, theirs) in enumerate(zip_longest(_scores(this), _scores(other)), start=1):
        if mine is None or theirs is None:
            short = this if mine is None else other
            raise DataError(
                f"{short}: ends after line {number - 1}, the other file goes on: score all of both"
            )
        if mine[0] != theirs[0]:
            raise DataError(
                f"line {number}: {this} scores id {mine[0]!r}, {other} scores id {theirs[0]!r}: "
                "the two files are not scores of the same lines"
            )
        result.lines = number
        kind = (_kind(mine[1]), _kind(theirs[1]))
        if kind[0] != kind[1]:
            result.kinds[kind] += 1
            examples = result.examples.setdefault(kind, [])
            if len(examples) < _SHOWN_PER_KIND:
                examples.append(Disagreement(number, mine[0], mine[1], theirs[1]))
    return result


def check_comparable(path: str) -> None:
    """Raises DataError where a file to compare with is missing, empty or no score file; reads one line."""
    if next(_scores(path), None) is None:
        raise DataError(f"compare={path}: holds no lines: expected a score file of the same input")


def show_comparison(
    console: Console,
    result: Comparison,
    inputs: tuple[str, str | None],
    fields: Fields,
    names: tuple[str, str],
) -> None:
    """Prints the counts, then the texts of the examples beside both scores.

    names: the two score files. inputs: what they were made from; where the other's is unknown or the same,
    one text stands for both. Model text is printed as text, control characters escaped.
    """
    total = result.kinds.total()
    console.print(
        Text(f"{names[0]} and {names[1]}: {total:,} of {result.lines:,} lines disagree"), soft_wrap=True
    )
    if not total:
        return
    counts = Table(title="kinds of disagreement", title_justify="left")
    for heading in (names[0], names[1], "lines"):
        counts.add_column(Text(heading))
    for (mine, theirs), number in result.kinds.most_common():
        counts.add_row(Text(mine), Text(theirs), f"{number:,}")
    console.print(counts)

    shown = [entry for kind, _ in result.kinds.most_common(_SHOWN_KINDS) for entry in result.examples[kind]]
    wanted = {entry.line for entry in shown}
    mine_rows = _rows(inputs[0], fields, wanted)
    two_texts = inputs[1] is not None and inputs[1] != inputs[0]
    their_rows = _rows(inputs[1], fields, wanted) if inputs[1] is not None and two_texts else mine_rows
    table = Table(title="texts (the end of long ones)", title_justify="left", show_lines=True)
    table.add_column("line, id, gold", ratio=2)
    for heading in [names[0], names[1]] if two_texts else ["completion"]:
        table.add_column(Text(heading), ratio=5)
    for heading in names:
        table.add_column(Text(heading), ratio=2)
    for entry in shown:
        mine, theirs = mine_rows.get(entry.line, {}), their_rows.get(entry.line, {})
        texts = [mine, theirs] if two_texts else [mine]
        table.add_row(
            Text(f"{entry.line}\n{visible(str(entry.row_id))}\n{visible(str(mine.get('gold', '')))}"),
            *(Text(visible(str(row.get("completion", "")), _TAIL_CHARS)) for row in texts),
            Text(_told(entry.this)),
            Text(_told(entry.other)),
        )
    console.print(table)


def input_of(score_file: str) -> str | None:
    """The input that a score file was made from, where the record beside it says so and it is still there."""
    try:
        state = json.loads(Path(score_file + ".run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    path = state.get("input")
    return path if isinstance(path, str) and Path(path).exists() else None


def visible(text: str, tail: int = 200) -> str:
    """The last `tail` characters, with control, surrogate and direction marks written as escapes.

    >>> visible("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    end = text if len(text) <= tail else "…" + text[-tail:]
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in end
    )


def _scores(path: str) -> Iterator[tuple[str | int, Score]]:
    for number, record in iter_jsonl(path):
        yield score_from_record(record, f"{path}, line {number}")


def _kind(score: Score) -> str:
    """The score in a few words; a combined one by the reasons of its parts, which say why it differs."""
    reason = score.reason.value
    if score.parts and score.reason in (Reason.COMBINED, Reason.PART_ABSTAINED, Reason.PART_FAILED):
        reason = ", ".join(f"{part.name} {part.score.reason.value}" for part in score.parts)
    return f"{_value(score)} {reason}"


def _value(score: Score) -> str:
    return f"{score.value:.6g}" if score.verdict is Verdict.SCORED else score.verdict.value


def _told(score: Score) -> str:
    lines = [f"{_value(score)} {score.reason.value}"]
    for part in score.parts:
        notes = "".join(f"\n  {key}: {visible(note)}" for key, note in part.score.notes.items())
        lines.append(f"{part.name}: {_value(part.score)} {part.score.reason.value}{notes}")
    return "\n".join(lines)


def _rows(path: str, fields: Fields, wanted: set[int]) -> Mapping[int, dict[str, Any]]:
    """Completion and gold of the wanted lines of an input."""
    rows: dict[int, dict[str, Any]] = {}
    named: Fields | None = None
    for number, raw in RecordReader(path):
        if len(rows) == len(wanted):
            break
        try:
            record = decode_record(path, number, raw)
        except DataError as fault:
            if number in wanted:
                rows[number] = {"completion": f"({fault})"}
            continue
        if named is None:
            named, _ = resolve_fields(fields, record)
        if number in wanted:
            rows[number] = {
                "completion": record.get(named.completion, ""),
                "gold": record.get(named.gold, ""),
            }
    return rows
