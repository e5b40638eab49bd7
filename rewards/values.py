r"""The values that running text ends with: which one it states, and which stand in a list.

A list is one of candidates, the parts of one quantity, or the several results asked for. Text and marks in,
candidate out.
"""

from __future__ import annotations

import re

from rewards.extraction import Extraction, Rung
from rewards.marks import Mark, find_formulas, find_numbers
from rewards.types import Reason
from rewards.wording import OPENERS, answers_twice, is_denied, is_doubted, is_rough
from rewards.writing import clean

_TAIL = 4096  # characters from the end in which the last number is sought first
_OPERATOR_BEFORE = re.compile(r"[-+*/^<>≤≥×÷·_\\{]\s*$")
_OPERATOR_AFTER = re.compile(r"\s*(?:[*/^<>≤≥×÷·{\\]|[-+]\s*[\d(])")
_OR = re.compile(r"(?i)\b(?:or|either|between)\b")
_OR_BEFORE = re.compile(r"(?i)\bor\s+(?:maybe\s+|perhaps\s+|possibly\s+)?$")
_LIST_GAP = re.compile(
    r"(?i)(?:[\s$*)\]}]|\\right|\\[)\]}])*(,|;|/|,?\s*(?:and|or)\b)[\s$*]*(?:maybe|perhaps|possibly)?"
    rf"(?:(?<=;)\s*{OPENERS}[a-z]\w{{0,2}}\s*=)?{OPENERS}"
)
_OFFER = re.compile(r"(?i)\b(?:candidates|guesses|possibilities|options)\b[^.:\n]{0,20}(?::|\bare\b)")
# Two parts of one quantity, or two quantities: "1 hour and 30 minutes", "3 apples, 2 pears", "5 ft 3 in".
_PART_GAP = re.compile(
    r"(?i)\s*(?:[^\W\d_]+\s*(?:,\s*and\b|,|;|&|\band\b)|(?:hours?|hrs?|h|minutes?|mins?|days?|weeks?|months?|"
    r"years?|feet|foot|ft|pounds?|lbs?|dollars?|met(?:er|re)s?|m|degrees?))\s*"
)


def offers(text: str, start: int, end: int) -> bool:
    """Whether words of alternatives stand in text[start:end]: "or", "either", "between"."""
    return _OR.search(text, start, end) is not None


def goes_on(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] goes on a list: with a comma, a semicolon, "and" or "or"."""
    return _LIST_GAP.match(text, start, end) is not None


def moved(mark: Mark, offset: int) -> Mark:
    """The mark of a piece of text, in positions of the whole."""
    return Mark(offset + mark.start, offset + mark.end, mark.content)


def last_formula(text: str, start: int, end: int, rung: Rung, count: int = 1) -> Extraction | None:
    """The last formula between two positions, or why it is none: one of several alternatives, or denied.

    Where count results are wanted, exactly as many formulas in a list are these.
    """
    formulas = [moved(mark, start) for mark in find_formulas(text[start:end])]
    if not formulas:
        return None
    last = formulas[-1]
    said = _results(text, formulas, count)
    if not said and _is_listed(text[:end], formulas):
        return Extraction(None, rung, Reason.AMBIGUOUS, (last.start, last.end))
    return _stated(text, said or [last], rung)


def last_number(text: str, offset: int, count: int = 1) -> Extraction | None:
    """The last plain number, or why it is none: one of several alternatives, denied, or part of a formula.

    Where count results are wanted, exactly as many numbers in a list are these. offset: of text in the whole.
    """
    base = max(0, len(text) - _TAIL)
    numbers = find_numbers(text[base:])
    if len(numbers) < 4 and base:
        base = 0
        numbers = find_numbers(text)
    if not numbers:
        return None
    tail = text[base:]
    last = numbers[-1]
    said = _results(tail, numbers, count)
    span = (offset + base + last.start, offset + base + last.end)
    if (not said and _is_alternative(tail, numbers)) or answers_twice(tail[: last.start]):
        return Extraction(None, Rung.NUMBER, Reason.AMBIGUOUS, span)
    before = tail[max(0, last.start - 40) : last.start]
    if _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(tail, last.end):
        return Extraction(None, Rung.NUMBER, Reason.NO_ANSWER, span)
    found = _stated(tail, said or [last], Rung.NUMBER)
    start, end = found.span or (0, 0)
    return Extraction(found.answer, found.rung, found.reason, (offset + base + start, offset + base + end))


def _stated(text: str, said: list[Mark], rung: Rung) -> Extraction:
    """The values that these marks state, or why they are none by the words around them."""
    start, end = said[0].start, said[-1].end
    if is_doubted(text, start, end):
        return Extraction(None, rung, Reason.AMBIGUOUS, (start, end))
    if is_denied(text, start, end, loose=True):
        return Extraction(None, rung, Reason.NO_ANSWER, (start, end))
    rough = "\\approx " if is_rough(text, start, end) else ""
    answer = ", ".join(clean(mark.content or "") for mark in said)
    return Extraction(rough + answer, rung, None, (start, end))


def _results(text: str, marks: list[Mark], count: int) -> list[Mark]:
    """The last marks, where exactly as many as there are results stand in a list; else none."""
    run = marks[-1:]
    for mark in reversed(marks[:-1]):
        if len(run) > count or _LIST_GAP.fullmatch(text, mark.end, run[0].start) is None:
            break
        run.insert(0, mark)
    return run if len(run) == count > 1 and not _are_offered(text, run[0].start) else []


def _are_offered(text: str, start: int) -> bool:
    """Whether the line calls what stands from start on candidates."""
    line = max(0, text.rfind("\n", 0, start), text.rfind(". ", 0, start))
    return _OFFER.search(text, line, start) is not None


def _is_listed(text: str, marks: list[Mark]) -> bool:
    """Whether the last mark stands in a list: after a comma, "or", or as the last of three before "and"."""
    last = marks[-1]
    if _OR_BEFORE.search(text[max(0, last.start - 40) : last.start]):
        return True
    if len(marks) < 2:
        return False
    if _are_offered(text, marks[-2].start):
        return True
    gap = _LIST_GAP.fullmatch(text, marks[-2].end, last.start)
    if gap is None:
        return _PART_GAP.fullmatch(text, marks[-2].end, last.start) is not None
    if gap[1].strip(" ,") != "and":
        return True
    lead = text[max(0, marks[-2].start - 20) : marks[-2].start]
    if _OR.search(lead):
        return True
    return len(marks) > 2 and _LIST_GAP.fullmatch(text, marks[-3].end, marks[-2].start) is not None


def _is_alternative(text: str, numbers: list[Mark]) -> bool:
    """Whether the last number is one of several offered: "41 or 42", "41, 42", "4, 5 and 6"."""
    last = numbers[-1]
    previous = numbers[-2].end if len(numbers) > 1 else max(0, last.start - 200)
    sentence = max(previous, text.rfind("\n", 0, last.start), text.rfind(". ", 0, last.start))
    return offers(text, sentence, last.start) or _is_listed(text, numbers)
