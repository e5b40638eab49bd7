r"""Where the parts of a completion lie: thought, answer, end-of-turn tokens, code and comments.

Tags are found by position, never by one regular expression, so every function is linear in the text (one
pass a tag) and nesting, repetition and order can be told apart. Tags match exactly: look-alike brackets and
invisible characters make another string, which opens and closes nothing. Positions only: knows nothing of
answers or scores.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from rewards.format import FormatSpec

END_OF_TURN: frozenset[str] = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<|return|>",
        "<|im_start|>",
        "<|im_start|>user",
        "<|im_start|>assistant",
        "<｜end▁of▁sentence｜>",
        "<end_of_turn>",
        "<eos>",
        "<pad>",
        "<|pad|>",
        "</s>",
        "[EOS]",
    )
)
"""Tokens that end a turn in the common chat formats (and the start of the next turn, when a model ran on)."""

_NESTED = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*+\})*+\})*+"
_WHITE = (
    r"\\(?:text)?color\s*(?:\[\w+\]\s*)?\{\s*(?i:white|transparent|#?f{6}|1(?:\.0*)?(?:,\s*1(?:\.0*)?){2}"
    r"|255(?:,\s*255){2})\s*\}"
)
# Struck out, in the colour of the page, commented or quoted in LaTeX or Markdown: no answer stands there.
_HIDDEN = re.compile(
    r"\\iffalse\b.*?(?:\\fi\b|\Z)|\\begin\{(verbatim|comment|lstlisting)\}.*?(?:\\end\{\1\}|\Z)"
    r"|\\verb\*?([^\sA-Za-z*])[^\n]{0,200}?\2|(?<!~)~~(?=[^\s~])[^~\n]{1,200}(?<=\S)~~(?!~)"
    r"|<(s|del|strike)>[^<]{0,400}</\3>|<(\w+)\s[^<>]{0,200}\b(?:hidden|none)\b[^<>]{0,200}>[^<]{0,400}</\4>"
    rf"|{_WHITE}\s*\{{{_NESTED}\}}?|{_WHITE}{_NESTED}"
    r"|\\(?:[bx]?cancel|sout|st|[hv]?phantom)\s*\{[^{}]*\\f?box(?:ed)?\s*\{(?:[^{}]|\{[^{}]*\})*\}[^{}]*\}",
    re.DOTALL,
)
_MAY_HIDE = re.compile(
    r"\\(?:iffalse|verb|begin\{(?:verbatim|comment|lstlisting)|[bx]?cancel|sout|st\b|[hv]?phantom|(?:text)?color)"
    r"|~~|<(?:s|del|strike)>|<\w+\s[^<>]{0,200}\b(?:hidden|none)\b"
)
# A thought under a tag that only looks like ours, in any case, with spaces or bars.
_ALIKE = re.compile(
    r"(?i)<[\s|]{0,3}(/?)[\s|]{0,3}(/?)(?:think|thinking|thought|thoughts)[\s|]{0,3}>"
    r"|<\|(?:begin|(end))_of_thought\|>"
)
_COMMENT = re.compile(r"%(?<!\S%)")  # after white space or at the start, where a line may begin with it
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\-_])")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_UNSEEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me"))
_IN_LINES = re.compile(r"[^\r\n]+")
_LONGEST_TOKEN = max(map(len, END_OF_TURN))


@dataclass(frozen=True, slots=True)
class Layout:
    """Tag positions in one assistant turn.

    turn: the turn's text from its first judged character: the part of the prefill that opens the thought,
    then the completion without trailing end-of-turn tokens. written_from: where the completion starts in it.
    opens, closes: positions of the thought's tags, in order.
    """

    turn: str
    written_from: int
    opens: tuple[int, ...]
    closes: tuple[int, ...]


def read_layout(text: str, prefill: str, spec: FormatSpec) -> Layout:
    """The layout of prefill and completion, judged together.

    Words that the template wrote before its opening tag are the prompt's, not the model's, and are left out;
    a prefill that opens no thought, or closes it again, adds nothing.
    """
    opened = prefill.rfind(spec.think_open)
    owned = "" if opened < 0 or spec.think_close in prefill[opened:] else prefill[opened:]
    turn = owned + text[: end_of_turn(text)]
    return Layout(turn, len(owned), find_all(turn, spec.think_open), find_all(turn, spec.think_close))


def answer_start(layout: Layout, spec: FormatSpec) -> int | None:
    """Where the answer begins in layout.turn: after the last closed thought; None inside an unclosed one.

    A closing tag alone counts (base-model prompts often open the thought themselves). A thought that is
    opened again and never closed leaves no answer.
    """
    if layout.opens and (not layout.closes or layout.closes[-1] < layout.opens[-1]):
        return None
    return layout.closes[-1] + len(spec.think_close) if layout.closes else layout.written_from


def in_open_thought(text: str) -> bool:
    """Whether text ends inside a thought under a look-alike of the usual tags: `<thinking>`, `<|Think|>`.

    >>> in_open_thought("<thinking>42"), in_open_thought("<thinking>6*7</thinking>42")
    (True, False)
    """
    if "<" not in text:
        return False
    last = None
    for match in _ALIKE.finditer(text):
        last = match
    return last is not None and not (last[1] or last[2] or last[3])


def end_of_turn(text: str) -> int:
    """The length of text without trailing white space and end-of-turn tokens."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        window = max(0, end - _LONGEST_TOKEN)
        start = max(text.rfind("<", window, end), text.rfind("[", window, end))
        if start < 0 or text[start:end] not in END_OF_TURN:
            return end
        end = start


def find_all(text: str, tag: str) -> tuple[int, ...]:
    """The start of every occurrence of tag, in order."""
    found: list[int] = []
    at = text.find(tag)
    while at >= 0:
        found.append(at)
        at = text.find(tag, at + len(tag))
    return tuple(found)


def is_visible(text: str) -> bool:
    """Whether a reader would see anything.

    White space, controls and their escape sequences, zero-width characters, blank letters (Hangul fillers,
    the empty Braille cell), characters without a glyph and accents that sit on nothing are nothing.
    """
    bare = _ESCAPE.sub("", text) if "\x1b" in text else text
    return any(
        not char.isspace() and char not in _BLANKS and unicodedata.category(char) not in _UNSEEN
        for char in bare
    )


def hide_quoted(text: str) -> str:
    r"""The text with fenced code and comments blanked out, every other character at its place.

    What stands in a closed code fence (three backticks or tildes), in an HTML comment or on a line that
    starts with `%` (a LaTeX comment) is quoted or invisible: it is no answer.
    """
    for mark in ("```", "~~~"):
        if mark in text:
            text = _hide_fences(text, mark)
    if "<!--" in text:
        text = _hide_comments(text)
    if _MAY_HIDE.search(text):
        text = _HIDDEN.sub(lambda run: _blank(run[0]), text)
    if _COMMENT.search(text):
        lines = text.splitlines(keepends=True)
        text = "".join(_blank(line) if line.lstrip().startswith("%") else line for line in lines)
    return text


def _blank(text: str) -> str:
    """As many spaces, line breaks kept."""
    return _IN_LINES.sub(lambda run: " " * len(run[0]), text)


def _hide_fences(text: str, mark: str) -> str:
    kept: list[str] = []
    fence: list[str] = []  # the lines of the fence that is open, if one is
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(mark):
            if fence:
                kept.append(_blank("".join([*fence, line])))
                fence = []
            else:
                fence = [line]
        elif fence:
            fence.append(line)
        else:
            kept.append(line)
    return "".join([*kept, *fence])  # a fence that never closes hides nothing


def _hide_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        kept.append(text[at:start])
        end = text.find("-->", start + 4)
        end = len(text) if end < 0 else end + 3
        kept.append(_blank(text[start:end]))
        at = end
    return "".join([*kept, text[at:]])
