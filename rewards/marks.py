r"""Where marked answers stand in a text: boxes, delimited formulas, plain numbers, and what is prose.

One pass each, linear in the text. Positions and contents only; which mark counts is decided in rewards.text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BOX = re.compile(r"(\\{1,2}(?:boxed|fbox)(?![A-Za-z]))\s*(\{)?|\\[\s\S]|[{}]")
_PLAIN = r"[^{}\\]|\\[\s\S]"
# With the content of a box in group 1 where its braces are nested no deeper than usual.
_BOX_COMMAND = re.compile(
    r"\\(?:boxed|fbox)(?![A-Za-z])"
    rf"(?:\s*\{{((?:{_PLAIN}|\{{(?:{_PLAIN}|\{{(?:{_PLAIN}|\{{(?:{_PLAIN})*+\}})*+\}})*+\}})*+)\}})?"
)
_BARE_BOX = re.compile(r"\s*([^\s$\\{}]+)")
_FORMULA = re.compile(r"\\[\s\S]|\$\$?")
_CLOSERS = {"\\[": "\\]", "\\(": "\\)", "$$": "$$", "$": "$"}
_NUMBER = re.compile(
    r"[0-9]+(?::[0-9]+)+(?:\s?[aApP]\.?[mM]\b\.?)?|"  # a time of day or a ratio is one value
    r"(?:[-+−]\s?)?(?:\\?[$€£]\s?)?"
    r"(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])|[0-9]+)?(?:\.[0-9]+|(?<=[0-9]))"
    r"(?:[eE][-+]?[0-9]+)?(?:\s?/\s?[0-9]+)?(?:\s?(?:\\?%|percent\b))?"
)
_QUANTITY = re.compile(r"[-+−$€£\s]*[0-9][0-9,.]*(?:\s*/\s*[0-9]+)?\s*(?:[^\W\d_]+\s*){0,3}")
_TEXT_MACRO = re.compile(r"\\(?:text|mbox|mathrm|textbf|textit|operatorname|mathbf|textrm)\s*\{[^{}]*\}")
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[^{}]*\})?|\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MATH_WORDS = re.compile(  # words that stand in plain formulas
    r"a?(?:sin|cos|tan|cot|sec|csc)h?|arc(?:sin|cos|tan)|exp|log|ln|lg|sqrt|cbrt|root|abs|min|max|gcd|lcm|mod|det|"
    r"pi|inf|infinity|oo|nan|alpha|beta|gamma|delta|theta|lambda|mu|phi|psi|sigma|omega|rho|tau|epsilon|eta|zeta|"
    r"and|or|in|union|true|false|none|d[xyt]"
)
_GOES_ON = re.compile(r"\s*[*/^×÷=+<>]")
_SHORT_WORDS = re.compile(r"am|an|as|at|be|by|do|go|he|if|is|it|me|my|no|of|on|so|to|up|us|we")


_UNIT_AFTER = re.compile(
    r"(?:mm|cm|dm|km|m|mg|kg|g|s|ms|min|h|hr|hrs|N|J|W|V|K|L|ml|mL|in|ft|yd|lb|oz)(?![A-Za-z0-9])"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked piece: half-open span [start, end) of the whole mark; content is None when it never closes."""

    start: int
    end: int
    content: str | None


def find_boxes(text: str) -> list[Mark]:
    r"""The outermost `\boxed` and `\fbox` marks, in order.

    A box may have spaces before its brace or no braces at all (`\boxed 4`); a bare mention of the command is
    no box. An unbalanced box has content None; boxes inside it then count for themselves. A command that was
    escaped twice (`\\boxed`) has its content unescaped once.
    """
    boxes: list[Mark] = []
    at = 0
    while command := _BOX_COMMAND.search(text, at):  # braces between boxes need no look
        start = command.start()
        content = command[1]
        if content is not None and (start == at or text[start - 1] != "\\"):
            at = command.end()
            boxes.append(Mark(start, at, content))
            continue
        while start > at and text[start - 1] == "\\":
            start -= 1
        found, at = _outermost_box(text, start)
        boxes += found
    return boxes


def _outermost_box(text: str, start: int) -> tuple[list[Mark], int]:
    """The box whose command starts here, or those inside it when it never closes; and where the search ended.

    start is the first of the backslashes before the command, so that escapes are read in step.
    """
    boxes: list[Mark] = []
    opened: list[tuple[int, int] | None] = []  # per open brace: (start, content start) of a box, or None
    for token in _BOX.finditer(text, start):
        command, brace = token.groups()
        if brace:
            opened.append((token.start(), token.end()))
        elif command:
            boxes += _bare_box(text, token)
            if not opened:
                return boxes, token.end()
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            box = opened.pop()
            if box is not None:
                while boxes and boxes[-1].start > box[0]:
                    boxes.pop()  # inside the one that closes here
                content = text[box[1] : token.start()]
                boxes.append(Mark(box[0], token.end(), _unescape(content, text, box[0])))
            if not opened:
                return boxes, token.end()
    unclosed = [Mark(box[0], len(text), None) for box in opened if box is not None]
    return sorted([*boxes, *unclosed], key=lambda box: box.start), len(text)


def _bare_box(text: str, command: re.Match[str]) -> list[Mark]:
    """The box without braces that a command makes of the word behind it, if it makes one."""
    bare = _BARE_BOX.match(text, command.end())
    value = bare[1].rstrip(".,;:!?") if bare else ""
    if bare and (len(value) == 1 or any("0" <= char <= "9" for char in value)):
        return [Mark(command.start(), bare.start(1) + len(value), value)]
    return []


def _unescape(content: str, text: str, start: int) -> str:
    return content.replace("\\\\", "\\") if text.startswith("\\\\", start) else content


def find_formulas(text: str) -> Iterator[Mark]:
    r"""The delimited formulas, in order: `$...$`, `$$...$$`, `\(...\)`, `\[...\]`.

    A dollar sign is a delimiter only if what it closes can be a formula: no blank line, no prose, and no
    digit right after it (that is an amount of money).
    """
    opener, begin = "", 0
    for token in _FORMULA.finditer(text):
        symbol = token[0]
        if opener and symbol == _CLOSERS[opener]:
            content = text[begin : token.start()]
            money = symbol == "$" and text[token.end() : token.end() + 1].isdigit()
            if money or (symbol[0] == "$" and not _can_be_formula(content)):
                begin = token.end()  # this dollar may open the next one
            else:
                yield Mark(begin - len(opener), token.end(), content)
                opener = ""
        elif symbol in _CLOSERS and (not opener or opener == "$" or symbol == opener):
            opener, begin = symbol, token.end()


def _can_be_formula(content: str) -> bool:
    stripped = content.strip()
    if not stripped or "\n\n" in content or (stripped[0].isdigit() and stripped.endswith((" and", " or"))):
        return False  # "$5 and $6": two amounts of money
    return not is_prose(content)


def is_prose(text: str) -> bool:
    """Whether text holds words that are no mathematics (outside text macros)."""
    bare = _COMMAND.sub(" ", _TEXT_MACRO.sub(" ", text))
    return any(_is_word(word) for word in _WORD.findall(bare))


def _is_word(word: str) -> bool:
    lowered = word.lower()
    if len(word) == 2:
        return _SHORT_WORDS.fullmatch(lowered) is not None
    return not _MATH_WORDS.fullmatch(lowered) and len(set(word)) > 1 and not _is_product(word)


def _is_product(word: str) -> bool:
    """Whether the letters read as a product of variables: no vowel makes a word of them."""
    return not set(word.lower()) & set("aeiouy") and len(word) <= 4


def is_quantity(text: str) -> bool:
    """Whether text is a number with at most three words behind it."""
    return _QUANTITY.fullmatch(text) is not None


def find_numbers(text: str) -> list[Mark]:
    """The plain numbers that stand for themselves: not part of a word, a name or a longer formula."""
    return [
        Mark(match.start(), match.end(), match[0].strip())
        for match in _NUMBER.finditer(text)
        if _stands_alone(text, match)
    ]


def number_at(text: str, start: int) -> str | None:
    """The plain number that starts here, or None where none does or it goes on as a word or a formula."""
    match = _NUMBER.match(text, start)
    if match is None or not _stands_alone(text, match) or _GOES_ON.match(text, match.end()):
        return None
    return match[0].strip() or None


def _stands_alone(text: str, match: re.Match[str]) -> bool:
    start = match.start()
    before, after = text[start - 1 : start], text[match.end() : match.end() + 1]
    if before.isalnum() or before in ("_", ".", "\\") or after == "_":
        return False
    if before in ("(", "[") and start > 1 and (text[start - 2].isalnum() or text[start - 2] in ")]_"):
        return False  # the argument of a call or an index
    return not after.isalpha() or _UNIT_AFTER.match(text, match.end()) is not None
