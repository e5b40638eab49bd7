r"""Announced answers: "the answer is ...", "Final answer:", to the end of the sentence.

Text in, candidate out; a sentence that holds several values, denies its value or lists candidates gives none.
"""

from __future__ import annotations

import re
from itertools import pairwise

from rewards.extraction import Extraction, Kind, Rung
from rewards.marks import Mark, find_formulas, find_numbers, is_prose, is_quantity
from rewards.types import Reason
from rewards.values import goes_on, last_formula, last_number, moved, offers
from rewards.wording import is_denial_ahead, is_denied, is_row, states_value
from rewards.writing import EMPHASIS, clean, same_writing

_LONGEST = 4096  # characters of an announcement
_MANY = 32  # announcements from the end that are compared
# Begins with a set of letters, which the search can skip to.
MARKER = re.compile(
    r"[aAfF答](?:(?<=[aA])(?<!\w[aA])(?i:nswers?\b[ \t*_]*"
    r"(?:(?:to|for|of|in|here|must|should|would|will|may|then)\b[^.:\n]{0,40}?)?[ \t*_]*"
    r"(?:\bis\b|\bare\b|\bwas\b|\bequals?\b|\bbe\b|[:：=≈]))"
    r"|(?<=[fF])(?<!\w[fF])(?i:inal\s+answer)\b[ \t*_#]*\n"
    r"|(?<=答)案(?:是|为|：|:))"
)
_CLOSING = re.compile(r"[fF](?<!\w[fF])(?i:inal answer is):?\s*(?=\$|\\\()")
_AFTER_MARKER = re.compile(
    r"(?i)(?:[\s:：*_]|\b(?:therefore|thus|simply|just|indeed|clearly|exactly|then|hence|also|actually|now|still)\b)*"
)
_SENTENCE_END = re.compile(
    r"[.。](?=\s|$)|;(?!\s*[$\\(+-]*[0-9][0-9.,/$)]*\s*(?:[.;,\n]|(?:and|or)\b|$))|\n"
    r"|,?\s+(?:because|since|but|so|which|where)\b"
)
_CHECKED = re.compile(r"(?i)\b(?:check|verify|test)(?:ing|s)?\s+(?:our|the|this|your|my)\s+\Z")
_COPULA = re.compile(r"(?i)\b(?:is|are|be|was|equals?|namely|gives?|get)\b|[:=≈]")
_HEDGES = re.compile(
    r"(?i)(?:[\s$*(\[\\]|\b(?:about|around|approximately|exactly|equal|to|only|just|now|then|also|thus)\b)*"
)


def last_announced(text: str, kind: Kind) -> Extraction | None:
    """What the last announcement of the answer announces; none where it is one of a list of candidates."""
    markers = list(MARKER.finditer(text))
    if not markers:
        return None
    last = announcement(text, markers[-1], kind)
    if last.answer is None or kind == "text" or len(markers) == 1:
        return last
    pairs = pairwise(markers[-_MANY:])
    others = [announcement(text[: after.start()], one, kind) for one, after in pairs if states_value(one[0])]
    values = [one for one in others if one.answer and not is_prose(one.answer.replace("$", " "))]
    different: list[str] = [last.answer]
    for one in values:
        if not any(same_writing(one.answer or "", known) for known in different):
            different.append(one.answer or "")
    in_row = bool(values) and is_row(text[(values[-1].span or (0, 0))[1] : markers[-1].start()])
    if len(different) > 2 or (in_row and not same_writing(values[-1].answer or "", last.answer)):
        return Extraction(None, Rung.ANNOUNCED, Reason.AMBIGUOUS, last.span)
    return last


def announcement(text: str, marker: re.Match[str], kind: Kind) -> Extraction:
    """What one announcement announces."""
    start = _value_start(text, marker)
    if is_unstated(text, marker, kind):
        return Extraction(None, Rung.ANNOUNCED, Reason.NO_ANSWER, marker.span())
    return _announcement(text, start, kind)


def is_unstated(text: str, marker: re.Match[str], kind: Kind) -> bool:
    """Whether an announcement states no value: it denies, doubts or checks it, or calls it wrong.

    An answer in words may begin with a denial: "not enough information".
    """
    start = _value_start(text, marker)
    if _CHECKED.search(text, max(0, marker.start() - 40), marker.start()):
        return True
    if kind != "text" and (not states_value(marker[0]) or is_denial_ahead(text, start)):
        return True
    return is_denied(text, start, start)


def _value_start(text: str, marker: re.Match[str]) -> int:
    skipped = _AFTER_MARKER.match(text, marker.end())
    return skipped.end() if skipped else marker.end()


def closing_line(text: str, start: int, kind: Kind) -> Extraction | None:
    """What the last "The final answer is $...$" from start on says: few-shot prompts teach this ending."""
    closing = None
    for match in _CLOSING.finditer(text, start):
        closing = match
    return _announcement(text, closing.end(), kind) if closing else None


def _announcement(text: str, start: int, kind: Kind) -> Extraction:
    formula = next(find_formulas(text[start : start + _LONGEST]), None)
    if formula is not None and formula.start == 0:
        return _leading_formula(text, start, formula)
    end = sentence_end(text, start)
    sentence = text[start:end]
    if kind == "text":
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    if not is_prose(sentence) or is_quantity(sentence):
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    return _from_sentence(text, start, end)


def _leading_formula(text: str, start: int, formula: Mark) -> Extraction:
    """An announcement that opens with a formula: it alone, unless others are listed beside it."""
    end = sentence_end(text, start + formula.end)
    if goes_on(text, start + formula.end, end) and not is_prose(text[start:end].replace("$", " ")):
        return Extraction(clean(text[start:end]), Rung.ANNOUNCED, None, (start, end))
    if offers(text, start + formula.end, end):
        return Extraction(None, Rung.ANNOUNCED, Reason.AMBIGUOUS, (start, end))
    unit = text[start + formula.end : end].strip().strip(EMPHASIS + ".")
    words = f" {unit}" if unit.isalpha() and len(unit) <= 12 else ""
    return Extraction(
        clean(formula.content or "") + words, Rung.ANNOUNCED, None, (start, start + formula.end)
    )


def _from_sentence(text: str, start: int, end: int) -> Extraction:
    """A sentence of words: the value that follows its last "is", else the only value it holds.

    One of several values of a sentence, as a repeated question has them, is no answer.
    """
    formulas = [moved(mark, start) for mark in find_formulas(text[start:end])]
    values = _values(text, start, end, formulas)
    copulas = [
        match.end()
        for match in _COPULA.finditer(text, start, end)
        if not any(formula.start < match.start() < formula.end for formula in formulas)
    ]
    for at in copulas[-1:]:
        if is_visible_math(text[at:end]):
            denied = is_denied(text, at, end, loose=True)
            answer, reason = (None, Reason.NO_ANSWER) if denied else (clean(text[at:end]), None)
            return Extraction(answer, Rung.ANNOUNCED, reason, (at, end))
        hedges = _HEDGES.match(text, at, end)
        said = [mark for mark in values if mark.end > at]
        if len(said) == 1 and hedges and said[0].start <= hedges.end():
            values = said
    if not values:
        return Extraction(clean(text[start:end]), Rung.ANNOUNCED, None, (start, end))
    if len({mark.content for mark in values}) > 1:
        return Extraction(None, Rung.ANNOUNCED, Reason.AMBIGUOUS, (start, end))
    if values[-1] in formulas:
        return last_formula(text, start, end, Rung.ANNOUNCED) or Extraction(None, Rung.ANNOUNCED)
    number = last_number(text[start:end], start)
    assert number is not None, "the sentence holds a number"
    return Extraction(number.answer, Rung.ANNOUNCED, number.reason, number.span)


def _values(text: str, start: int, end: int, formulas: list[Mark]) -> list[Mark]:
    """The values of a sentence: its formulas, names beside numbers left out, or else its plain numbers."""
    counted = [mark for mark in formulas if re.search(r"\d", mark.content or "")]
    if counted:
        return counted
    numbers = [moved(mark, start) for mark in find_numbers(text[start:end])]
    return numbers or formulas


def is_visible_math(text: str) -> bool:
    """Whether text is mathematics only, and something."""
    return bool(clean(text)) and not is_prose(text.replace("$", " "))


def sentence_end(text: str, start: int) -> int:
    """Where the sentence from start ends; a mark inside a formula ends none, nor does one between values."""
    window = text[start : start + _LONGEST]
    formulas = list(find_formulas(window))
    for match in _SENTENCE_END.finditer(window):
        if not any(formula.start < match.start() < formula.end for formula in formulas):
            return start + match.start()
    return start + len(window)
