"""Which of the answers that a text gives still stands at its end.

Whatever comes later and announces another answer takes the earlier one back; answers in a row, or three
different ones, are a list of candidates. Text in, the answer that replaces one or the reason why none counts;
linear in the text.
"""

from __future__ import annotations

from rewards.announced import MARKER, announcement, is_unstated, is_visible_math, sentence_end
from rewards.choices import announced_choice, turned_choice
from rewards.extraction import Extraction, Kind, Rung
from rewards.marks import find_formulas, is_prose, number_at
from rewards.types import Reason
from rewards.wording import (
    conclusions,
    denials,
    is_denied,
    is_disowned,
    is_doubted,
    is_glued,
    is_half_said,
    is_row,
    states_value,
    turns,
    without_contrast,
    without_reference,
)
from rewards.writing import clean, may_round, same_writing

_MANY = 32  # announcements from the end that are looked at
_OFFERING = ("alternatively", "rather")


def latest(text: str, found: Extraction, other: Extraction | None) -> Extraction:
    """The later of two marked answers, or AMBIGUOUS where they differ and stand in a row."""
    if other is None or other.answer is None or found.answer is None or found.span is None or not other.span:
        return found
    if other.span[0] < found.span[1] and found.span[0] < other.span[1]:
        return found
    if same_writing(found.answer, other.answer):
        return found
    second = other if found.span < other.span else found
    between = sorted((*found.span, *other.span))[1:3]
    if is_row(text[between[0] : between[1]]):
        return Extraction(None, second.rung, Reason.AMBIGUOUS, second.span)
    return second


def standing(text: str, found: Extraction, kind: Kind, *, announced: bool = True) -> Extraction:
    """The answer, or what replaces it: a denied, doubted or withdrawn one is none.

    announced: whether announcements in words can replace a mark.
    """
    if found.answer is None or found.span is None:
        return found
    start, end = found.span
    if kind != "text" and found.rung in (Rung.BOX, Rung.TAGS, Rung.HASH):
        if is_denied(text, start, end):
            return Extraction(None, found.rung, Reason.NO_ANSWER, found.span)
        if is_doubted(text, start, end) or (found.rung is Rung.BOX and is_glued(text, start, end)):
            return Extraction(None, found.rung, Reason.AMBIGUOUS, found.span)
    if kind == "math" and is_half_said(found.answer):
        return Extraction(None, found.rung, Reason.AMBIGUOUS, found.span)
    return _replaced(text, end, found, kind) if announced else found


def spelled_out(text: str, gold: str, kind: Kind) -> Extraction | None:
    """The gold's own words as the whole text or as its one announcement, before anything reads parts of them.

    Names with a stop and quantities of several parts ("E. coli", "1 hour and 30 minutes") are whole so.
    """
    at = text.rfind(gold) if gold else -1
    if at < 0 or text[at + len(gold) :].strip(' \t\r\n*_`"”.!'):
        return None
    span = (at, at + len(gold))
    if not text[:at].strip(' \t\r\n*_`"“'):
        return Extraction(gold, Rung.WHOLE, None, span)
    markers = list(MARKER.finditer(text, 0, at))
    if len(markers) != 1 or text[markers[0].end() : at].strip(' \t\r\n*_`"“:'):
        return None
    return None if is_unstated(text, markers[0], kind) else Extraction(gold, Rung.ANNOUNCED, None, span)


def _replaced(text: str, start: int, found: Extraction, kind: Kind) -> Extraction:
    if not text[start:].strip(" \t\r\n.*$"):
        return found
    tail = without_contrast(without_reference(text)[start:])
    text = text[:start] + tail
    if kind == "choice":
        return _chosen_later(tail, found, (start, len(text)))
    latest_at, result = _announced_later(text, start, found, kind)
    for at, value_at, firm in turns(text, start):
        value = _value_at(text, value_at, kind, firm=firm)
        if at < latest_at or (value is None and not firm):
            continue
        if value is not None and same_writing(value, found.answer or ""):
            latest_at, result = at, found
        elif text[at : at + 14].lower().startswith(_OFFERING):
            latest_at, result = at, _other(None, found, (at, value_at))
        else:
            latest_at, result = at, _other(value, found, (at, value_at))
    denied = any(
        same_writing(value, found.answer or "")
        for at in denials(text, start)
        if (value := number_at(text, at)) is not None
    )
    if result is found and (denied or is_disowned(text, start)):
        return _other(None, found, (start, len(text)))
    return result


def _chosen_later(tail: str, found: Extraction, span: tuple[int, int]) -> Extraction:
    """The letters that the text behind an answer turns to, or the answer."""
    turned = turned_choice(tail)
    new = announced_choice(tail, announced_only=True) if turned is None else turned
    if new == () and turned is None:
        return found
    joined = ", ".join(new)
    return found if joined == found.answer else _other(joined or None, found, span)


def _announced_later(text: str, start: int, found: Extraction, kind: Kind) -> tuple[int, Extraction]:
    """(where, what) the last announcement or conclusion from start on says; (-1, found) if there is none."""
    latest_at, result = -1, found
    markers = list(MARKER.finditer(text, start))[-_MANY:] if kind == "math" else []
    for match in markers:
        said = announcement(text, match, kind)
        if said.answer and not is_prose(said.answer.replace("$", " ")) and states_value(match[0]):
            same = same_writing(said.answer, found.answer or "")
            latest_at, result = match.start(), found if same else said
    for at, value_at in conclusions(text, start):
        value = text[value_at : sentence_end(text, value_at)]
        if at > latest_at and is_visible_math(value):
            answer = found.answer or ""
            same = same_writing(value, answer) or may_round(value, answer)
            latest_at, result = at, found if same else _other(clean(value), found, (at, value_at))
    return latest_at, result


def _other(answer: str | None, found: Extraction, span: tuple[int, int]) -> Extraction:
    if answer is None:
        return Extraction(None, found.rung, Reason.AMBIGUOUS, span)
    return Extraction(answer, found.rung, None, span)


def _value_at(text: str, start: int, kind: Kind, *, firm: bool) -> str | None:
    """The value that stands right here: a formula, a number, or for words the sentence."""
    if kind == "text":
        sentence = clean(text[start : sentence_end(text, start)])
        return sentence if firm and sentence else None
    formula = next(find_formulas(text[start : start + 400]), None)
    if formula is not None and formula.start == 0:
        return clean(formula.content or "") or None
    return number_at(text, start)
