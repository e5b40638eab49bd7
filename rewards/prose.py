r"""Answers in running text: announced ("the answer is ..."), the whole text, the last formula or number.

The loose half of the ladder in rewards.text. Each rung gives one candidate; a text that offers alternatives
or denies its number gives none, one that calls its value rough gives `\approx` and the value. Text in,
candidate out; linear in the text.
"""

from __future__ import annotations

import re

from rewards.announced import last_announced
from rewards.extraction import Extraction, ExtractionSettings, Rung, Wanted
from rewards.marks import is_prose, is_quantity
from rewards.number_words import leading_number
from rewards.types import Reason
from rewards.values import last_formula, last_number
from rewards.wording import without_contrast, without_reference
from rewards.writing import clean

_WHOLE_LIMIT = 4096  # characters of a text that may be one formula
_SHORT_LIMIT = 120  # characters of a text answer
_IS_THE_ANSWER = re.compile(r"(?i)[\s*]+(?:is|was)\s+(?:the|my)\s+(?:(?:final|correct|right)\s+)?answer\Z")
_POINT_AT_END = re.compile(
    r"(?i)(?:\b(?:is|are|at|equals)|[=:])\s*([(\[]\s*[-+−]?[0-9][0-9./]*(?:\s*,\s*[-+−]?[0-9][0-9./]*)+\s*[)\]])[.\s]*\Z"
)
_FIRST_SIDE = re.compile(r"([^=<>]*)=(?!=)([^<>]*)\Z")
_COMMAND = re.compile(r"\\(?!text|mathrm)[A-Za-z]+")


def loose_answer(text: str, settings: ExtractionSettings, wanted: Wanted) -> Extraction:
    """The candidate of the first rung that hits; spans are positions in text."""
    text = without_reference(text)
    if wanted.kind == "math":
        text = without_contrast(text)
    found = last_announced(text, wanted.kind) or _whole(text)
    if found is None and wanted.kind == "text":
        found = _short_text(text)
    if found is None:
        found = _concluded(text, wanted, numbers=settings.last_number and wanted.kind == "math")
    return found or Extraction(None, Rung.NONE, Reason.NO_ANSWER)


def value_of_equation(formula: str) -> str:
    r"""What a formula says its first side is, where that side names a quantity: 42 of `x + y = 42`.

    A side with two names or more does; one with a single name, `n^2 + 3n = 42`, is an equation left unsolved.

    >>> value_of_equation("x + y = 40 + 2 = 42"), value_of_equation("40 + 2 = 42")
    (' 40 + 2 = 42', '40 + 2 = 42')
    """
    match = _FIRST_SIDE.match(formula)
    if match is None:
        return formula
    names = {char for char in _COMMAND.sub("", match[1]) if char.isalpha()}
    return match[2] if len(names) > 1 else formula


def _concluded(text: str, wanted: Wanted, *, numbers: bool) -> Extraction | None:
    """The later of the last formula and the last plain number in the last two paragraphs."""
    start = len(text.rstrip())
    for _ in range(2):
        start = max(0, text.rfind("\n\n", 0, start))
        start = len(text[:start].rstrip()) if start else 0
    found = last_formula(text, start, len(text), Rung.FORMULA, wanted.values)
    if not numbers:
        return found
    if point := _POINT_AT_END.search(text, max(start, len(text) - 400)):
        return Extraction(point[1], Rung.FORMULA, None, point.span(1))
    after = found.span[1] if found and found.span else start
    return last_number(text[after:], after, wanted.values) or found


def _whole(text: str) -> Extraction | None:
    """The whole text, when it is one formula, mathematics only, a number in words, or one with its unit."""
    start = len(text) - len(text.lstrip())
    stripped = text.strip()
    if not stripped or len(stripped) > _WHOLE_LIMIT or "\n\n" in stripped:
        return None
    answer = _IS_THE_ANSWER.sub("", clean(stripped))
    plain = answer.replace("$", " ").strip()
    one_formula = stripped[0] == "$" and answer != stripped and "$" not in answer
    if not one_formula and is_prose(plain) and not is_quantity(plain):
        spelled = leading_number(plain)
        if spelled is None or spelled[1] < len(plain):
            return None
    return Extraction(answer, Rung.WHOLE, None, (start, start + len(stripped)))


def _short_text(text: str) -> Extraction | None:
    """A text of one short line, for golds that are words."""
    start = len(text) - len(text.lstrip())
    stripped = text.strip()
    if not stripped or len(stripped) > _SHORT_LIMIT or "\n" in stripped:
        return None
    return Extraction(clean(stripped), Rung.WHOLE, None, (start, start + len(stripped)))
