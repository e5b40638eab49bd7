"""Where a step that is longer than allowed is cut all the same.

Knows layout and one bound; what should stay together is decided in rewards.steps. Linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rewards.blocks import Block, BlockKind, outside
from rewards.cuts import LONGEST_HEADING, is_heading, newline_cuts, sentence_cuts, space_cuts

_SPACES = re.compile(r"\s++")
_OPENING = re.compile(r"(?:`{3,}|~{3,})[^\n`]*|\\\[|\$\$|\\begin\{[^{}\n]{1,40}\}")
_CLOSING = re.compile(r"(?:`{3,}|~{3,}|\\\]|\$\$|\\end\{[^{}\n]{1,40}\})[.,;]?")


class FinerCuts:
    """Cuts for steps that are too long: at a line, else a sentence, else a line of a block, else a space.

    The latest cut in reach is taken. Those that leave nothing visible before or after them, or the mark of a
    block alone, are passed over, and so are those after a heading or lead-in.
    """

    def __init__(self, text: str, blocks: Sequence[Block], max_chars: int) -> None:
        whole = [block for block in blocks if block.kind is not BlockKind.INLINE]
        lines = list(newline_cuts(text))
        sentences = outside(list(sentence_cuts(text)), blocks)
        self._text = text
        self._max_chars = max_chars
        self._levels = (outside(lines, whole), sentences, lines, list(space_cuts(text)))
        spaces = [match.span() for match in _SPACES.finditer(text)]
        self._space_starts, self._space_ends = [a for a, _ in spaces], [b for _, b in spaces]

    def split(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of text[start:end], none of which shows more than max_chars characters."""
        end_of_content = self._before_spaces(end)
        while end_of_content - (first := self._after_spaces(start)) > self._max_chars:
            cut = self._cut(first, end_of_content)
            yield start, cut
            start = cut
        yield start, end

    def _cut(self, first: int, end: int) -> int:
        """The best cut of text[first:end], which shows something at both of its ends."""
        limit = self._after_spaces(first + self._max_chars)
        inside = [(level, bisect_right(level, first), bisect_right(level, limit)) for level in self._levels]
        for level, low, high in inside:
            for place in range(high - 1, low - 1, -1):
                if self._parts_well(first, level[place], end):
                    return level[place]
        # Nothing but headings and lead-ins as far as one can see: full steps of them.
        full = (level[high - 1] for level, low, high in inside if low < high)
        half = first + self._max_chars // 2
        return next((cut for cut in full if half < cut < end), first + self._max_chars)

    def _parts_well(self, first: int, cut: int, end: int) -> bool:
        if cut >= end or _CLOSING.fullmatch(self._text, cut, end):
            return False
        last = self._before_spaces(cut)
        reach = max(first, last - LONGEST_HEADING - 1)  # one more, so that a longer line is no heading
        line = self._text.rfind("\n", reach, last) + 1
        before = self._text[line:last].lstrip() if line else self._text[reach:last]
        opens = first in (line, reach) and _OPENING.fullmatch(before) is not None
        return not opens and not is_heading(before)

    def _after_spaces(self, place: int) -> int:
        """The place itself, or the end of the white space that it lies in or before."""
        at = bisect_right(self._space_starts, place) - 1
        return max(place, self._space_ends[at]) if at >= 0 else place

    def _before_spaces(self, place: int) -> int:
        """The place itself, or the start of the white space that it lies in or after."""
        at = bisect_left(self._space_ends, place)
        return min(place, self._space_starts[at]) if at < len(self._space_starts) else place
