"""Rows to verified problems, with every row that was left out accounted for.

Knows no files and no configuration; prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from data_prep.drops import Drop, DropReason, OnError, malformed
from data_prep.fields import Row, fields_of
from data_prep.layouts import Layout, read_row
from rewards.errors import DataError
from rewards.golds import find_gold_faults
from rewards.questions import question_hash
from rewards.types import Problem


@dataclass(frozen=True, slots=True)
class Prepared:
    """problems and drops together are the rows read, each in the order of the source."""

    problems: tuple[Problem, ...]
    drops: tuple[Drop, ...]

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(self.problems) + len(self.drops)


def prepare(
    rows: Iterable[Row],
    layout: Layout,
    limit: int | None = None,
    excluded: AbstractSet[int] = frozenset(),
    on_error: OnError = "stop",
) -> Prepared:
    """Reads rows by the layout and keeps those whose gold verifies against itself.

    Args:
        rows: (name of the row for people, fields).
        layout: where prompt and gold are.
        limit: read this many rows at most; None reads all.
        excluded: hashes of questions (`rewards.questions`) that must not occur.
        on_error: stop refuses the first row of another layout, skip leaves such rows out.

    Raises:
        DataError: a row is of another layout, or two rows have the same identifier.
    """
    read: list[tuple[str, Problem]] = []
    drops: list[Drop] = []
    seen_prompts: set[str] = set()
    seen_ids: dict[str, str] = {}
    for number, (where, row) in enumerate(islice(rows, limit), start=1):
        try:
            problem = read_row(fields_of(row), layout, where, number)
        except DataError as error:
            drops.append(malformed(where, error, on_error))
            continue
        if isinstance(problem, DropReason):
            drops.append(Drop(where, problem))
        elif problem.prompt in seen_prompts:
            drops.append(Drop(where, DropReason.DUPLICATE))
        elif question_hash(problem.prompt) in excluded:
            drops.append(Drop(where, DropReason.EVALUATION, problem.prompt[:80]))
        elif problem.id in seen_ids:
            raise DataError(
                f"{where}: field {layout.id!r}: {problem.id!r} is also the identifier of "
                f"{seen_ids[problem.id]}: name another field, or set fields.id=null to number the rows"
            )
        else:
            seen_prompts.add(problem.prompt)
            seen_ids[problem.id] = where
            read.append((where, problem))
    faults = {fault.index: fault for fault in find_gold_faults([problem for _, problem in read])}
    drops += [
        Drop(read[index][0], DropReason.UNVERIFIABLE, f"{fault.reason}: {' | '.join(fault.gold)}")
        for index, fault in faults.items()
    ]
    problems = tuple(problem for index, (_, problem) in enumerate(read) if index not in faults)
    return Prepared(problems, tuple(drops))
