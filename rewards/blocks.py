"""Text -> the blocks that no cut may enter: code fences, display maths, environments, tables, inline maths.

Knows the marks of Markdown and LaTeX, also where they are nested or never closed; knows nothing of steps or
scores. Every function is linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

MAX_INLINE_CHARS = 500
"""Longest inline formula; two dollar signs further apart are two prices."""

_MARK = re.compile(
    r"^[^\S\n]*+(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n`]*+)(?=\n|\Z)"
    r"|(?<!\\)\\(?P<bracket>[\[\]()])"
    r"|\\(?P<edge>begin|end)\{(?P<name>[^{}\n]{1,40}+)\}"
    r"|(?<!\\)(?P<dollar>\$\$?)",
    re.MULTILINE,
)
_TABLE = re.compile(r"^(?:[^\S\n]*+\|[^\n]*+(?:\n|\Z)){2,}+", re.MULTILINE)


class BlockKind(Enum):
    """What a block is made of."""

    CODE = "code"
    DISPLAY = "display"
    """Display maths and environments."""
    INLINE = "inline"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Block:
    """A half-open span [start, end) of the text."""

    start: int
    end: int
    kind: BlockKind


def find_blocks(text: str, max_unclosed: int) -> list[Block]:
    r"""The outermost blocks of the text, in order and disjoint.

    A fence that is never closed reaches to the end. So does unclosed maths, unless that is more than
    max_unclosed characters away: then its mark is taken for a stray one.

    >>> [block.kind.value for block in find_blocks("a $x$ \\[\n\ny\\]", 100)]
    ['inline', 'display']
    """
    marks = list(_MARK.finditer(text))
    scan = _Scan(marks, _closing_marks(marks), len(text), max_unclosed)
    blocks = scan.run(text)
    tables = [_without_last_newline(text, match) for match in _TABLE.finditer(text)]
    return _outermost([*blocks, *tables]) if tables else blocks


@dataclass(slots=True)
class _Scan:
    """One pass over the marks; `closing` says at once if a mark is ever closed: nothing is read twice."""

    marks: Sequence[re.Match[str]]
    closing: Sequence[int | None]
    end: int
    max_unclosed: int
    blocks: list[Block] = field(default_factory=list[Block])

    def run(self, text: str) -> list[Block]:
        i = 0
        while i < len(self.marks):
            mark = self.marks[i]
            if mark["fence"]:
                i = self._take(i, self._closing_fence(i), BlockKind.CODE, self.end)
            elif mark["bracket"] == "[" or mark["edge"] == "begin" or mark["dollar"] == "$$":
                i = self._take(i, self.closing[i], BlockKind.DISPLAY, mark.start() + self.max_unclosed)
            elif mark["bracket"] == "(" or mark["dollar"] == "$":
                i = self._take_inline(i, text)
            else:
                i += 1
        return self.blocks

    def _take(self, i: int, close: int | None, kind: BlockKind, reach: int) -> int:
        """Records the block that mark i opens and returns the mark after it."""
        if close is not None:
            self.blocks.append(Block(self.marks[i].start(), self.marks[close].end(), kind))
            return close + 1
        if self.end > reach:
            return i + 1
        self.blocks.append(Block(self.marks[i].start(), self.end, kind))
        return len(self.marks)

    def _closing_fence(self, i: int) -> int | None:
        """Fences do not nest: the first bare fence of the same sign, at least as long, closes."""
        opening = self.marks[i]["fence"]
        for j in range(i + 1, len(self.marks)):
            fence = self.marks[j]["fence"]
            if fence and fence.startswith(opening) and not self.marks[j]["info"].strip():
                return j
        return None

    def _take_inline(self, i: int, text: str) -> int:
        """Inline maths is closed by the very next mark, near by and on the same line, or is none."""
        if i + 1 == len(self.marks):
            return i + 1
        opening, closing = self.marks[i], self.marks[i + 1]
        near = closing.end() - opening.start() <= MAX_INLINE_CHARS
        matching = closing["bracket"] == ")" if opening["bracket"] else closing["dollar"] == "$"
        if not (near and matching and text.find("\n", opening.end(), closing.start()) < 0):
            return i + 1
        self.blocks.append(Block(opening.start(), closing.end(), BlockKind.INLINE))
        return i + 2


def _closing_marks(marks: Sequence[re.Match[str]]) -> list[int | None]:
    r"""For each \[, $$ and \begin the index of the mark that closes it.

    Brackets and dollars do not nest: the next closing mark counts. Environments nest; an \end whose \begin
    is missing is passed over, and a \begin inside a closed environment may lack an \end of its own.
    """
    closing: list[int | None] = [None] * len(marks)
    next_bracket: int | None = None
    next_dollars: int | None = None
    for i in range(len(marks) - 1, -1, -1):
        if marks[i]["bracket"] == "]":
            next_bracket = i
        elif marks[i]["bracket"] == "[":
            closing[i] = next_bracket
        elif marks[i]["dollar"] == "$$":
            closing[i], next_dollars = next_dollars, i
    opened: list[int] = []
    count: dict[str, int] = {}
    for i, mark in enumerate(marks):
        name = mark["name"]
        if mark["edge"] == "begin":
            opened.append(i)
            count[name] = count.get(name, 0) + 1
        elif mark["edge"] == "end" and count.get(name, 0):
            while opened:
                inner = opened.pop()
                count[marks[inner]["name"]] -= 1
                if marks[inner]["name"] == name:
                    closing[inner] = i
                    break
    return closing


def outside(cuts: Sequence[int], blocks: Sequence[Block]) -> list[int]:
    """The cuts that lie in no block."""
    starts = [block.start for block in blocks]

    def is_free(cut: int) -> bool:
        before = bisect_left(starts, cut) - 1
        return before < 0 or blocks[before].end <= cut

    return [cut for cut in cuts if is_free(cut)]


def _without_last_newline(text: str, match: re.Match[str]) -> Block:
    end = match.end() - 1 if text[match.end() - 1] == "\n" else match.end()
    return Block(match.start(), end, BlockKind.TABLE)


def _outermost(blocks: Iterable[Block]) -> list[Block]:
    """Sorted and disjoint: what overlaps an earlier block is joined to it."""
    merged: list[Block] = []
    for block in sorted(blocks, key=lambda block: (block.start, -block.end)):
        if merged and block.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Block(last.start, max(last.end, block.end), last.kind)
        else:
            merged.append(block)
    return merged
