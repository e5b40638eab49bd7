r"""The answer of a completion: text in, one candidate and the rung that found it out. No judging.

The ladder, first hit decides: (1) the last `\boxed`/`\fbox`, (2) the last answer block (before boxes in the
`tags` style), (3) a line after `####`, (4) the last announced answer, (5) a text that is all mathematics, or
short where the gold is words, (6) the last formula or plain number of the last two paragraphs. Only what
follows the closed thought is searched, never the prompt, the prefill, code fences, comments or an echo of the
question. Choice golds have their own ladder (rewards.choices). Every step is linear in the text.

Of several different boxes the last one counts, and what is announced or concluded behind it ("The final
answer is $...$", "So the result is 41.") counts instead. Boxes offered side by side (`\boxed{3}, \boxed{5}`,
"or") are one list, two joined by "and" are not; where the gold requires n values, n different boxes, or n
values in a row, are these. Of `x + y = 42` left in running text, for a gold that is a number, 42 is meant.

What earns nothing by decision: an answer inside a thought that never closes; a last box or block that never
closes or is empty (no falling back to an earlier one); more than `max_boxes` different boxes; numbers
offered as alternatives; an answer denied or disbelieved ("not 42", "I doubt that it is 42"), though "42, not
41" is 42; a yes or no and a number; one of several values of a sentence, or of the question repeated; an
answer in the colour of the page, or with zero-width or direction marks inside. "About 42" is kept as such.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rewards.announced import closing_line
from rewards.choices import announced_choice, choice_in
from rewards.extraction import Extraction, ExtractionSettings, Rung, Wanted
from rewards.format import FormatSpec
from rewards.later import latest, spelled_out, standing
from rewards.layout import answer_start, hide_quoted, in_open_thought, is_visible, read_layout
from rewards.marks import Mark, find_boxes, is_prose
from rewards.prose import loose_answer, value_of_equation
from rewards.types import Reason
from rewards.wording import is_row
from rewards.writing import clean, same_writing

_ECHO_MINIMUM = 12  # characters of a question that are masked where the completion repeats them
_ZERO_WIDTH = "\u00ad\u200b-\u200f\u2060\ufeff"
_HIDDEN_ENDS = re.compile(f"^[{_ZERO_WIDTH}\\s]+|[{_ZERO_WIDTH}\\s]+$")
# Zero-width characters, direction overrides (which change what is shown) and tag characters.
_HIDDEN_INSIDE = re.compile(f"[{_ZERO_WIDTH}\u202a-\u202e\u2066-\u206f\U000e0000-\U000e007f]")
_PERCENT = re.compile(r"[\s$}]*(?:\\?%|percent\b|pct\b)")
_SPACE = r"(?:[\s$.*]|\\[()\[\],;]|\\q?quad\b)*"
_BETWEEN_BOXES = re.compile(
    rf"{_SPACE}(?:\\text\{{\s*)?(,|;|and\b|or\b|)(?:\s*\}})?{_SPACE}"
    rf"(?:(?:and|or|also|alternatively|maybe|perhaps)\b{_SPACE},?{_SPACE})*"
)


ANYTHING = Wanted()
"""What is wanted where nothing is known of the gold: one value."""


@dataclass(frozen=True, slots=True)
class Source:
    """One assistant turn: its text and prefill; whether the token limit ended it; the question, if known."""

    text: str
    prefill: str = ""
    question: str = ""
    truncated: bool = False


def extract_answer(
    source: Source, spec: FormatSpec, settings: ExtractionSettings, wanted: Wanted = ANYTHING
) -> Extraction:
    r"""The one answer that the completion gives.

    A completion that the token limit cut off gives an answer only where a closed box or block shows that it
    was complete.

    >>> extract_answer(Source("<think>6*7</think>It is \\boxed{42}."), FormatSpec(), ExtractionSettings())
    Extraction(answer='42', rung=<Rung.BOX: 'box'>, reason=None, span=(24, 34))
    """
    layout = read_layout(source.text, source.prefill, spec)
    start = answer_start(layout, spec)
    if start is None:
        return Extraction(None, Rung.NONE, Reason.UNCLOSED_THINK)
    region = _without_question(hide_quoted(layout.turn[start:]), source.question)
    if in_open_thought(region):
        return Extraction(None, Rung.NONE, Reason.UNCLOSED_THINK)
    found = _marked(region, spec, settings, wanted)
    if found is None:
        if source.truncated:
            return Extraction(None, Rung.NONE, Reason.TRUNCATED)
        if settings.mode == "strict":
            return Extraction(None, Rung.NONE, Reason.NO_ANSWER)
        found = _loose(_without_echo(region, source.question), settings, wanted)
        if wanted.number and found.answer and found.answer not in source.question:
            found = replace(found, answer=value_of_equation(found.answer))
    return _checked(found, start - layout.written_from)


def _marked(region: str, spec: FormatSpec, settings: ExtractionSettings, wanted: Wanted) -> Extraction | None:
    """The answer of the last box, answer block or `####` line, or None when the region has no such mark."""
    boxed = _boxed(region, settings, wanted)
    block = _block(region, spec, settings, wanted)
    line = _hash_line(region, settings, wanted)
    found = (block or boxed or line) if spec.answer_style == "tags" else (boxed or block or line)
    if found is None:
        return None
    if not (spec.answer_style == "tags" and found is block):  # the block that was asked for
        for other in (boxed, block, line):
            found = latest(region, found, other)
    return standing(region, found, wanted.kind, announced=settings.mode == "lenient")


def _boxed(region: str, settings: ExtractionSettings, wanted: Wanted) -> Extraction | None:
    if "boxed" not in region and "\\fbox" not in region:
        return None
    boxes = find_boxes(region)
    if not boxes:
        return None
    last = boxes[-1]
    span = (last.start, last.end)
    if last.content is None:
        return Extraction(None, Rung.BOX, Reason.NO_ANSWER, span)
    if len({box.content for box in boxes}) > settings.max_boxes:
        return Extraction(None, Rung.BOX, Reason.AMBIGUOUS, span)
    if wanted.kind == "choice":
        contents = [box.content or "" for box in _boxes_together(region, boxes, 1)]
        chosen = [
            letter for content in contents for letter in choice_in(content) or announced_choice(content)
        ]
        return _chosen(tuple(dict.fromkeys(chosen)), last.content, Rung.BOX, span)
    if settings.mode == "lenient" and (closing := closing_line(region, last.end, wanted.kind)):
        return closing
    together = _boxes_together(region, boxes, wanted.values)
    contents = dict.fromkeys(_unboxed(box) for box in together)
    if wanted.percent and len(together) == 1 and (sign := _PERCENT.match(region, last.end)):
        return Extraction(f"{next(iter(contents))}\\%", Rung.BOX, None, (last.start, sign.end()))
    return Extraction(", ".join(contents), Rung.BOX, None, (together[0].start, last.end))


def _boxes_together(region: str, boxes: list[Mark], values: int) -> list[Mark]:
    """The boxes that give the answer: the last and those beside it; all, where as many values are wanted."""
    if values > 1 and len({box.content for box in boxes}) == values and not _lists(boxes[-1].content or ""):
        return boxes
    listed = [boxes[-1]]
    only_and = True
    for box in reversed(boxes[:-1]):
        gap = _BETWEEN_BOXES.fullmatch(region, box.end, listed[-1].start)
        if box.content is None or gap is None or not is_visible(boxes[-1].content or ""):
            break
        only_and = only_and and gap[0].strip(" $") == "and"
        listed.append(box)
    if only_and and len(listed) == 2 and values == 1:
        return listed[:1]  # "3 and 5" for one value: a result beside another one, not a list of candidates
    return listed[::-1]


def _lists(content: str) -> bool:
    """Whether a comma outside brackets makes a list of the content."""
    depth = 0
    for char in content:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            return True
    return False


def _unboxed(box: Mark) -> str:
    """The content of a box, without boxes around the whole of it."""
    content = clean(box.content or "")
    while inner := find_boxes(content):
        if (inner[0].start, inner[0].end) != (0, len(content)) or inner[0].content is None:
            return re.sub(r"\\(?:boxed|fbox)(?![A-Za-z])", "", content)
        content = clean(inner[0].content)
    return content


def _block(region: str, spec: FormatSpec, settings: ExtractionSettings, wanted: Wanted) -> Extraction | None:
    """The answer inside the last answer block; a block that never closes holds none."""
    opened = region.rfind(spec.answer_open)
    if opened < 0:
        return None
    begin = opened + len(spec.answer_open)
    end = region.find(spec.answer_close, begin)
    if end < 0:
        return Extraction(None, Rung.TAGS, Reason.NO_ANSWER, (opened, len(region)))
    content = region[begin:end]
    span = (opened, end + len(spec.answer_close))
    if not is_visible(content):
        return Extraction(None, Rung.TAGS, Reason.NO_ANSWER, span)
    if _beside_block(region, opened, content, spec):
        return Extraction(None, Rung.TAGS, Reason.AMBIGUOUS, span)
    if wanted.kind == "choice":
        return _chosen(choice_in(content) or announced_choice(content), content, Rung.TAGS, span)
    inside = _boxed(content, settings, wanted) or loose_answer(content, settings, wanted)
    if inside.answer is None and inside.reason is Reason.NO_ANSWER and inside.rung is Rung.NONE:
        return Extraction(clean(content), Rung.TAGS, None, span)
    return Extraction(inside.answer, Rung.TAGS, inside.reason, span)


def _beside_block(region: str, opened: int, content: str, spec: FormatSpec) -> bool:
    """Whether another answer block stands right before the one that opens here, with another answer."""
    closed = region.rfind(spec.answer_close, 0, opened)
    before = region.rfind(spec.answer_open, 0, max(closed, 0))
    if closed < 0 or before < 0 or not is_row(region[closed + len(spec.answer_close) : opened]):
        return False
    return not same_writing(region[before + len(spec.answer_open) : closed], content)


def _hash_line(region: str, settings: ExtractionSettings, wanted: Wanted) -> Extraction | None:
    """The answer after the last `####`, when it ends the text or is mathematics (else it is a heading)."""
    at = region.rfind("####")
    if at < 0:
        return None
    end = region.find("\n", at)
    end = len(region) if end < 0 else end
    content = region[at:end].lstrip("#").lstrip(": \t")
    ends_text = not region[end:].strip()
    if not clean(content) or (not ends_text and is_prose(content)):
        return None
    span = (at, end)
    above = region[:at].rstrip().rpartition("\n")[2].strip()
    if above.startswith("####") and not is_prose(above) and not same_writing(above.lstrip("#: "), content):
        return Extraction(None, Rung.HASH, Reason.AMBIGUOUS, span)
    if wanted.kind == "choice":
        return _chosen(choice_in(content), content, Rung.HASH, span)
    inside = loose_answer(content, settings, wanted)
    if inside.answer is None and inside.rung is Rung.NONE:
        return Extraction(clean(content), Rung.HASH, None, span)
    return Extraction(inside.answer, Rung.HASH, inside.reason, span)


def _chosen(letters: tuple[str, ...], content: str, rung: Rung, span: tuple[int, int]) -> Extraction:
    """The letters of a mark, or its content where it holds no letter."""
    return Extraction(", ".join(letters) if letters else clean(content), rung, None, span)


def _loose(region: str, settings: ExtractionSettings, wanted: Wanted) -> Extraction:
    if wanted.kind != "choice":
        whole = spelled_out(region, wanted.spelling, wanted.kind)
        found = whole or loose_answer(region, settings, wanted)
        return standing(region, found, wanted.kind)
    letters = announced_choice(region)
    if not letters:
        return Extraction(None, Rung.NONE, Reason.NO_ANSWER)
    return Extraction(", ".join(letters), Rung.CHOICE, None, (0, len(region)))


def _without_question(region: str, question: str) -> str:
    """The region with repetitions of a question in words blanked out, with or without its last sign."""
    whole = question.strip()
    bare = whole.rstrip("?:. ")
    if len(bare) < _ECHO_MINIMUM or bare not in region or not is_prose(bare):
        return region
    return region.replace(whole, " " * len(whole)).replace(bare, " " * len(bare))


def _without_echo(region: str, question: str) -> str:
    """The region with repetitions of the question blanked out."""
    question = question.strip()
    if len(question) < _ECHO_MINIMUM or question not in region:
        return region
    return region.replace(question, " " * len(question))


def _checked(found: Extraction, shift: int) -> Extraction:
    """The extraction in positions of the completion, without answers that hide something from a reader."""
    span = found.span and (found.span[0] + shift, found.span[1] + shift)
    if found.answer is None:
        return Extraction(None, found.rung, found.reason, span)
    answer = _HIDDEN_ENDS.sub("", found.answer)
    if not is_visible(answer):
        return Extraction(None, found.rung, Reason.NO_ANSWER, span)
    if _HIDDEN_INSIDE.search(answer):
        return Extraction(None, found.rung, Reason.UNPARSABLE, span)
    return Extraction(answer, found.rung, None, span)
