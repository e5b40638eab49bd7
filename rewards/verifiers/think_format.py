r"""Pays for the layout that the system prompt asks for; never reads what was thought or answered.

Strict by default: one thought, at the start, closed, not empty, followed by a non-empty answer. In the
`boxed` style the answer holds a closed, non-empty box; in the `tags` style it is one answer block with
nothing but white space around it. White space, carriage returns and trailing end-of-turn tokens are no fault,
and what the template already wrote is not the model's doing. Tags inside code or quotes count like any other:
a policy can do without them. Partial credit is for policies that rarely pass (see `tag_share`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewards.format import FormatSpec
from rewards.layout import Layout, is_visible, read_layout
from rewards.marks import find_boxes
from rewards.types import Reason, Sample, Score

PARTIAL_CEILING = 0.5
"""What a faulty layout earns at most under partial credit: less than any right one."""

_VERSION = "think_format/1"

_SHELLS = re.compile(
    r"(?:(?<!`)`{3,}+|(?<!~)~{3,}+)[A-Za-z]{0,20}+(?=\s|$)|\\(?:boxed|fbox)\s*\{\s*\}|\*{2,}|\$"
)
"""What encloses an answer and is none: code fences, empty boxes, emphasis, delimiters."""
_SHORTEST = 3
"""Characters of a tag that make a torn one: "<th", "</t"."""


@dataclass(frozen=True, slots=True)
class ThinkFormatVerifier:
    """Scores 1 for the layout of `format` and 0 otherwise, with the fault as reason.

    partial_credit: a faulty layout earns PARTIAL_CEILING times the share of the tags that stand exactly once
    (tag_share). In mode "off" there is nothing to judge: every sample abstains (NOT_APPLICABLE).
    """

    format: FormatSpec = field(default_factory=FormatSpec)
    partial_credit: bool = False

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Score:
        if self.format.mode == "off":
            return Score.abstained(Reason.NOT_APPLICABLE, version=_VERSION)
        fault = layout_fault(sample.text, sample.prefill, self.format)
        if fault is None:
            return Score.scored(1.0, Reason.FORMAT_OK, version=_VERSION)
        share = tag_share(sample.text, sample.prefill, self.format) if self.partial_credit else 0.0
        if share == 0.0:
            return Score.scored(0.0, fault, version=_VERSION)
        notes = {"fault": str(fault)}
        return Score.scored(PARTIAL_CEILING * share, Reason.FORMAT_PARTIAL, version=_VERSION, notes=notes)


def layout_fault(text: str, prefill: str, spec: FormatSpec) -> Reason | None:
    """The first fault of one assistant turn, or None when its layout is right.

    >>> layout_fault("<think>6*7</think>42", "", FormatSpec()) is None
    True
    >>> layout_fault("42", "", FormatSpec())
    <Reason.NO_THINK: 'no_think'>
    """
    layout = read_layout(text, prefill, spec)
    if spec.mode == "optional" and not layout.opens and not layout.closes:
        return _answer_fault(layout.turn, 0, spec)
    fault = _thought_fault(layout, spec)
    if fault is not None:
        return fault
    return _answer_fault(layout.turn, layout.closes[0] + len(spec.think_close), spec)


def turns_fault(messages: Sequence[Mapping[str, str]], spec: FormatSpec) -> Reason | None:
    """The first fault among the assistant turns after the last user message; None when each is right.

    Turns are judged one by one, never joined. Earlier turns are left out, because chat templates strip the
    thoughts from history. messages: `role` and `content` each. No assistant turn is NO_THINK.
    """
    turns = _latest_turns(messages)
    if not turns:
        return Reason.NO_THINK
    return next((fault for turn in turns if (fault := layout_fault(turn, "", spec)) is not None), None)


def turns_share(messages: Sequence[Mapping[str, str]], spec: FormatSpec) -> float:
    """The least tag_share of the turns that turns_fault judges: no turn makes up for another."""
    return min((tag_share(turn, "", spec) for turn in _latest_turns(messages)), default=0.0)


def _latest_turns(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """The assistant turns after the last user message."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    latest = messages[users[-1] + 1 :] if users else messages
    return [message["content"] for message in latest if message["role"] == "assistant"]


def tag_share(text: str, prefill: str, spec: FormatSpec) -> float:
    """The share of the layout's tags that stand exactly once in the turn, in [0, 1].

    Two tags, or four in the `tags` style. Counting sees no order and no contents (`</think>...<think>` has
    both), which is why it can only earn part of the reward.
    """
    turn = read_layout(text, prefill, spec).turn
    tags = [spec.think_open, spec.think_close]
    if spec.answer_style == "tags":
        tags += [spec.answer_open, spec.answer_close]
    return sum(turn.count(tag) == 1 for tag in tags) / len(tags)


def _thought_fault(layout: Layout, spec: FormatSpec) -> Reason | None:
    if not layout.opens:
        return Reason.NO_THINK
    if layout.turn[: layout.opens[0]].strip():
        return Reason.MISPLACED_THINK
    if not layout.closes:
        return Reason.UNCLOSED_THINK
    if len(layout.opens) + len(layout.closes) > 2:
        return Reason.REPEATED_THINK
    if not is_visible(layout.turn[layout.opens[0] + len(spec.think_open) : layout.closes[0]]):
        return Reason.EMPTY_THINK
    return None


def _answer_fault(turn: str, start: int, spec: FormatSpec) -> Reason | None:
    """The fault of what follows the thought."""
    answer = turn[start:]
    said = answer.replace(spec.answer_open, "").replace(spec.answer_close, "")
    if not is_visible(said if spec.answer_style == "boxed" else _SHELLS.sub("", said)):
        return Reason.EMPTY_ANSWER
    if spec.mode != "off" and _is_torn(answer, spec):
        return Reason.REPEATED_THINK
    if spec.answer_style == "boxed":
        boxes = find_boxes(answer)
        if not boxes or not is_visible(boxes[-1].content or ""):
            return Reason.BAD_ANSWER_BLOCK
    if spec.answer_style == "tags":
        once = turn.count(spec.answer_open) == 1 and turn.count(spec.answer_close) == 1
        block = answer.strip()
        if not (once and block.startswith(spec.answer_open) and block.endswith(spec.answer_close)):
            return Reason.BAD_ANSWER_BLOCK
    return None


def _is_torn(answer: str, spec: FormatSpec) -> bool:
    """Whether an answer ends in a tag of the thought that broke off, or holds one without its last sign."""
    for tag in (spec.think_open, spec.think_close):
        if any(answer.endswith(tag[:size]) for size in range(_SHORTEST, len(tag))):
            return True
        if len(tag) > _SHORTEST and tag[:-1] in answer:
            return True
    return False
