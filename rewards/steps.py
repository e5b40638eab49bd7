r"""Text -> step spans: where one step of reasoning ends and the next begins.

Knows how solutions are laid out (paragraphs, lines, headings, lists, sentences) and what must stay whole;
knows nothing of scores or tokens. Of every text and setting it holds that

- the spans cover the text exactly, in order: `"".join(text[s.start : s.end] for s in steps) == text`;
- a step of a thought or a text, split again, is one step, where no bound had to cut or join (and no stray
  closing tag stands in it: what follows such a tag, alone, is an answer);
- there are at most max_steps steps, none longer (tags and outer white space aside) than max_chars, or than
  2 / (max_steps - 2) of the text where that is more;
- code fences, display maths, environments and tables of up to max_chars are never cut, closed or not;
- headings and lead-ins join what follows, lone formulas and program outputs what goes before;
- thought and answer share no step; white space belongs to the step before it, and no step is white space
  alone where there is another of its region;
- time is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rewards.blocks import Block, BlockKind, find_blocks, outside
from rewards.cuts import (
    blank_line_cuts,
    block_line_cuts,
    is_heading,
    list_item_cuts,
    newline_cuts,
    semicolon_cuts,
    sentence_cuts,
    sentence_line_cuts,
    step_heading_cuts,
)
from rewards.errors import ConfigError
from rewards.long_steps import FinerCuts

LONG_PARAGRAPH = 600
"""Characters from which strategy `auto` cuts a paragraph at its sentences."""

FindCuts = Callable[[str], Iterable[int]]
Span = tuple[int, int]
Strategy = Literal[
    "auto", "blank_line", "newline", "semicolon", "step_heading", "numbered", "sentence", "length"
]
Region = Literal["thought", "answer", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """How text is cut.

    strategy: one of `STRATEGIES`. max_chars and max_steps bound the steps. think_open and think_close name
    the tags of the thought. answer: the text after the thought is `one` step, or is `split` like the thought.
    """

    strategy: Strategy = "auto"
    max_chars: int = 2000
    max_steps: int = 512
    think_open: str = "<think>"
    think_close: str = "</think>"
    answer: Literal["one", "split"] = "one"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ConfigError(f"strategy={self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.answer not in ("one", "split"):
            raise ConfigError(f"answer={self.answer!r}: expected one or split")
        if self.max_chars < 40:
            raise ConfigError(f"max_chars={self.max_chars}: expected 40 or more characters")
        if self.max_steps < 2:
            raise ConfigError(f"max_steps={self.max_steps}: expected 2 or more, one for the answer")
        if not self.think_open or not self.think_close:
            raise ConfigError("think_open and think_close: expected non-empty tags")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: half-open character span [start, end), in a thought, an answer or a text without thought."""

    start: int
    end: int
    region: Region


def split_steps(text: str, settings: StepSettings | None = None) -> list[Step]:
    r"""Cuts a completion into steps; empty only for the empty text.

    >>> text = "<think>Add:\n\n7+5=12\n\nCarry 1.\n</think>\n82"
    >>> [text[s.start : s.end] for s in split_steps(text)]
    ['<think>Add:\n\n7+5=12\n\n', 'Carry 1.\n</think>\n', '82']
    """
    settings = settings or StepSettings()
    steps: list[Step] = []
    for start, end, region in _regions(text, settings):
        strategy = "length" if region == "answer" and settings.answer == "one" else settings.strategy
        first, last = _without_tags(text, start, end, settings)
        spans = _split_region(text[first:last], strategy, settings.max_chars)
        edges = [start, *(first + b for _, b in spans[:-1]), end]
        steps.extend(Step(a, b, region) for a, b in pairwise(edges))
    return _bound_count(steps, settings.max_steps)


def _regions(text: str, settings: StepSettings) -> Iterator[tuple[int, int, Region]]:
    """The thought ends with the last closing tag and the white space after it, else with the text."""
    closed = text.rfind(settings.think_close)
    if closed < 0:
        if text:
            yield 0, len(text), "thought" if text.lstrip().startswith(settings.think_open) else "text"
        return
    end = closed + len(settings.think_close)
    end = len(text) - len(text[end:].lstrip())
    yield 0, end, "thought"
    if end < len(text):
        yield end, len(text), "answer"


def _without_tags(text: str, start: int, end: int, settings: StepSettings) -> tuple[int, int]:
    """The span of a region without its own tags: they are no content of a step."""
    content = text[start:end]
    if content.lstrip().startswith(settings.think_open):
        start = text.find(settings.think_open, start) + len(settings.think_open)
    if content.rstrip().endswith(settings.think_close):
        end = text.rfind(settings.think_close, start, end)
    return start, max(start, end)


def _split_region(text: str, strategy: Strategy, max_chars: int) -> list[Span]:
    blocks = find_blocks(text, max_chars)
    whole = [block for block in blocks if strategy == "sentence" or block.kind is not BlockKind.INLINE]
    cuts = sorted({cut for find in STRATEGIES[strategy] for cut in find(text)})
    spans = _join_neighbours(text, _pieces(text, 0, len(text), outside(cuts, whole)), blocks)
    if strategy == "auto":
        sentences = outside(list(sentence_cuts(text)), blocks)
        spans = [part for span in spans for part in _cut_paragraph(text, span, sentences, blocks)]
    if any(b - a > max_chars for a, b in spans):
        finer = FinerCuts(text, blocks, max_chars)
        return [piece for a, b in spans for piece in finer.split(a, b)]
    return spans


STRATEGIES: Mapping[str, Sequence[FindCuts]] = {
    "auto": (blank_line_cuts, step_heading_cuts, list_item_cuts, sentence_line_cuts, block_line_cuts),
    "blank_line": (blank_line_cuts,),
    "newline": (newline_cuts,),
    "semicolon": (semicolon_cuts,),
    "step_heading": (step_heading_cuts,),
    "numbered": (list_item_cuts,),
    "sentence": (blank_line_cuts, sentence_cuts),
    "length": (),
}
"""The cuts each strategy tries; what must stay whole or be joined is the same for all."""


def _pieces(text: str, start: int, end: int, cuts: Iterable[int]) -> list[Span]:
    """Cuts text[start:end] at those cuts that leave something visible on both sides."""
    end_of_content = start + len(text[start:end].rstrip())
    edges = [start]
    edges.extend(cut for cut in cuts if start < cut < end_of_content)
    visible = [edge for before, edge in pairwise(edges) if text[before:edge].strip()]
    return list(pairwise([start, *visible, end]))


def _cut_paragraph(text: str, span: Span, sentences: Sequence[int], blocks: Sequence[Block]) -> list[Span]:
    """Cuts a long paragraph at sentences into parts of up to LONG_PARAGRAPH characters where it can."""
    start, end = span
    if end - start <= LONG_PARAGRAPH:
        return [span]
    inside = sentences[bisect_right(sentences, start) : bisect_left(sentences, end)]
    parts: list[Span] = []
    for a, b in _join_neighbours(text, _pieces(text, start, end, inside), blocks):
        if parts and b - parts[-1][0] <= LONG_PARAGRAPH:
            parts[-1] = (parts[-1][0], b)
        else:
            parts.append((a, b))
    return parts


_STEP_TITLE = re.compile(r"[#*_ \t]{0,6}[Ss]tep[ \t]?:?[ \t]?\d{1,4}[^\n\d=$\\]*")
_CONTINUES = re.compile(r"(?:`{3,}|~{3,})[ \t]*(?:output|result|stdout)\b|where\b")
_ONLY_PUNCTUATION = re.compile(r"[\s.,;:!?]*")


def _join_neighbours(text: str, pieces: Sequence[Span], blocks: Sequence[Block]) -> list[Span]:
    """Drops the cuts after headings and lead-ins, and those before lone formulas and outputs.

    Formulas at the very start and headings at the very end have one neighbour only, and join that.
    """
    contents = [text[a:b].strip() for a, b in pieces]
    formulas = [_is_formula(text, piece, blocks) for piece in pieces]
    leads = [is_heading(content) for content in contents]
    spans = [pieces[0]]
    only_formulas = True
    for i in range(1, len(pieces)):
        only_formulas = only_formulas and formulas[i - 1]
        joins = (
            leads[i - 1]
            or formulas[i]
            or only_formulas
            or (leads[i] and i == len(pieces) - 1)
            or _CONTINUES.match(contents[i]) is not None
            or (_is_step_title(contents[i - 1]) and not _STEP_TITLE.match(contents[i]))
        )
        if joins:
            spans[-1] = (spans[-1][0], pieces[i][1])
        else:
            spans.append(pieces[i])
    return spans


def _is_step_title(content: str) -> bool:
    """`Step 2: Multiply by the rate.`: a numbered title in words, without any calculation of its own."""
    return len(content) <= 120 and _STEP_TITLE.fullmatch(content) is not None


def _is_formula(text: str, piece: Span, blocks: Sequence[Block]) -> bool:
    """Nothing but formulas and punctuation."""
    start, end = piece
    at = bisect_left(blocks, start, key=lambda block: block.start)
    found = False
    while at < len(blocks) and blocks[at].end <= end:
        block = blocks[at]
        if block.kind not in (BlockKind.DISPLAY, BlockKind.INLINE):
            return False
        if not _ONLY_PUNCTUATION.fullmatch(text, start, block.start):
            return False
        start, found, at = block.end, True, at + 1
    return found and _ONLY_PUNCTUATION.fullmatch(text, start, end) is not None


def _bound_count(steps: list[Step], max_steps: int) -> list[Step]:
    """Joins neighbours of one region until at most max_steps are left.

    Two neighbours that stay apart are together longer than `length`, hence a region of n characters keeps at
    most 2 n / length + 1 steps.
    """
    if len(steps) <= max_steps:
        return steps
    regions = 2 if steps[0].region != steps[-1].region else 1
    length = -(-2 * steps[-1].end // (max_steps - regions)) if max_steps > regions else steps[-1].end
    joined = [steps[0]]
    for step in steps[1:]:
        last = joined[-1]
        if step.region == last.region and step.end - last.start <= length:
            joined[-1] = Step(last.start, step.end, last.region)
        else:
            joined.append(step)
    return joined
