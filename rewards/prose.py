r"""Answers in running text: announced ("the answer is ..."), the whole text, the last formula or number.

The loose half of the ladder in rewards.text. Each rung gives one candidate; a text that offers alternatives
or denies its number gives none. Text in, candidate out; linear in the text.
"""

from __future__ import annotations

import re
from itertools import pairwise

from rewards.extraction import Extraction, ExtractionSettings, Kind, Rung
from rewards.marks import Mark, find_formulas, find_numbers, is_prose
from rewards.types import Reason
from rewards.withdrawn import has_doubt, is_denied, is_doubted, is_row, same_writing

_WHOLE_LIMIT = 4096  # characters of a text that may be one formula
_SHORT_LIMIT = 120  # characters of a text answer
_MANY = 32  # announcements from the end that are compared
_TAIL = 4096  # characters from the end in which the last number is sought first
# Begins with a set of letters, which the search can skip to.
MARKER = re.compile(
    r"[aAfF答](?:(?<=[aA])(?<!\w[aA])(?i:nswers?\b[ \t*_]*"
    r"(?:(?:to|for|of|in|here|must|should|would|will|may|then)\b[^.:\n]{0,40}?)?[ \t*_]*"
    r"(?:\bis\b|\bare\b|\bwas\b|\bequals?\b|\bbe\b|[:：=≈]))"
    r"|(?<=[fF])(?<!\w[fF])(?i:inal\s+answer)\b[ \t*_#]*\n"
    r"|(?<=答)案(?:是|为|：|:))"
)
# What a text says another's answer is: to the end of the sentence, decimal points aside.
_REFERENCE = re.compile(
    r"(?i)\b(?:the\s+)?(?:(?:reference|golden|gold|official)\s+(?:answer|solution|label)s?|ground[- ]truth)\b"
    r"(?:[^.。\n]|[.。](?!\s|$))*[.。]?"
)
_CLOSING = re.compile(r"[fF](?<!\w[fF])(?i:inal answer is):?\s*(?=\$|\\\()")
_AFTER_MARKER = re.compile(
    r"(?i)(?:[\s:：*_]|\b(?:therefore|thus|simply|just|indeed|clearly|exactly|then|hence|also|actually|now|still)\b)*"
)
_SENTENCE_END = re.compile(r"[.。](?=\s|$)|[;\n]|,?\s+(?:because|since|but|so|which|where)\b")
_COPULA = re.compile(r"(?i)\b(?:is|are|be|was|equals?|namely|gives?|get)\b|[:=≈]")
_OPENERS = r"(?:[\s$*(\[]|\\[(\[])*"
# A denial right before a value, "not 5", "cannot be equal to $x = 5", or at the start of an announcement.
_DENIAL = re.compile(
    r"(?i)(?:\b(?:not|cannot|never|than|neither|nor|different\s+from|anything\s+but|no\s+(?:more|longer))|n[’']t)\b"
    rf"[\s,]*(?:(?:be|equals?|to|is|the|a)\s+){{0,4}}{_OPENERS}(?:[a-z]\w{{0,2}}(?:\([^()\n]{{0,8}}\))?\s*=\s*)?{_OPENERS}$"
)
_DENIED = re.compile(
    r"(?i)(?:\w+ly\s+)?(?:not|never|neither|nor|unlikely|different\s+from|anything\s+but|no\s+(?:more|longer)|"
    r"\w+er\s+than)\b"
)
_DENYING = re.compile(r"(?i)\b(?:not|never|nor|neither|cannot)\b|n[’']t\b")
_WRONG = re.compile(r"(?i)\b(?:wrong|incorrect|mistaken|bad)\s+(?:final\s+)?$")
_OR = re.compile(r"(?i)\b(?:or|either|between)\b")
_LIST_GAP = re.compile(
    r"(?i)(?:[\s$*)\]}]|\\right|\\[)\]}])*(,|;|/|,?\s*(?:and|or)\b)[\s$*]*(?:maybe|perhaps|possibly)?"
    rf"(?:(?<=;)\s*{_OPENERS}[a-z]\w{{0,2}}\s*=)?{_OPENERS}"
)
_OFFER = re.compile(r"(?i)\b(?:candidates|guesses|possibilities|options)\b[^.:\n]{0,20}(?::|\bare\b)")
_OR_BEFORE = re.compile(r"(?i)\bor\s+(?:maybe\s+|perhaps\s+|possibly\s+)?$")
_HEDGES = re.compile(
    r"(?i)(?:[\s$*(\[\\]|\b(?:about|around|approximately|exactly|equal|to|only|just|now|then|also|thus)\b)*"
)
_OPERATOR_BEFORE = re.compile(r"[-+*/^<>≤≥×÷·_\\{]\s*$")
_OPERATOR_AFTER = re.compile(r"\s*(?:[*/^<>≤≥×÷·{\\]|[-+]\s*[\d(])")
_IS_THE_ANSWER = re.compile(r"(?i)[\s*]+(?:is|was)\s+(?:the|my)\s+(?:(?:final|correct|right)\s+)?answer\Z")
_POINT_AT_END = re.compile(
    r"(?i)(?:\b(?:is|are|at|equals)|[=:])\s*([(\[]\s*[-+−]?[0-9][0-9./]*(?:\s*,\s*[-+−]?[0-9][0-9./]*)+\s*[)\]])[.\s]*\Z"
)
_NUMBER_WITH_WORDS = re.compile(r"[-+−$€£\s]*[0-9][0-9,.]*(?:\s*/\s*[0-9]+)?\s*(?:[^\W\d_]+\s*){0,3}")
_BOLD = re.compile(r"(?<![\w)\]}])\*\*([^*\n]+)\*\*(?![\w(\[{])")  # not the powers of 2**3**x
# Two parts of one quantity, or two quantities: "1 hour and 30 minutes", "3 apples, 2 pears", "5 ft 3 in".
_PART_GAP = re.compile(
    r"(?i)\s*(?:[^\W\d_]+\s*(?:,\s*and\b|,|;|&|\band\b)|(?:hours?|hrs?|h|minutes?|mins?|days?|weeks?|months?|"
    r"years?|feet|foot|ft|pounds?|lbs?|dollars?|met(?:er|re)s?|m|degrees?))\s*"
)
_QUOTES = '*`"“”'
_EMPHASIS = '*_`"“”'


def loose_answer(text: str, settings: ExtractionSettings, kind: Kind) -> Extraction:
    """The candidate of the first rung that hits; spans are positions in text."""
    text = without_reference(text)
    found = _announced(text, kind) or _whole(text)
    if found is None and kind == "text":
        found = _short_text(text)
    if found is None:
        found = _concluded(text, numbers=settings.last_number and kind == "math")
    return found or Extraction(None, Rung.NONE, Reason.NO_ANSWER)


def without_reference(text: str) -> str:
    """The text with what it says of another's answer blanked out."""
    return _REFERENCE.sub(lambda quoted: " " * len(quoted[0]), text)


def _concluded(text: str, *, numbers: bool) -> Extraction | None:
    """The later of the last formula and the last plain number in the last two paragraphs."""
    start = len(text.rstrip())
    for _ in range(2):
        start = max(0, text.rfind("\n\n", 0, start))
        start = len(text[:start].rstrip()) if start else 0
    found = _last_formula(text, start, len(text), Rung.FORMULA)
    if not numbers:
        return found
    if point := _POINT_AT_END.search(text, max(start, len(text) - 400)):
        return Extraction(point[1], Rung.FORMULA, None, point.span(1))
    after = found.span[1] if found and found.span else start
    return last_number(text[after:], after) or found


def clean(text: str) -> str:
    """Without white space, emphasis, quotes and a full stop around it, nor delimiters of the whole."""
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    before = None
    while text != before:
        before = text
        text = text.strip().strip(_EMPHASIS if text.strip().endswith("_") else _QUOTES)
        if text.endswith((".", ",", ";", ":", "。")) and not text.endswith(".."):
            text = text[:-1]
    for opener, closer in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        inner = text[len(opener) : len(text) - len(closer)]
        if len(text) > len(opener + closer) and text.startswith(opener) and text.endswith(closer):
            return text if opener in inner or closer in inner else clean(inner)
    return text


def _announced(text: str, kind: Kind) -> Extraction | None:
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
    skipped = _AFTER_MARKER.match(text, marker.end())
    start = skipped.end() if skipped else marker.end()
    if kind != "text" and (not states_value(marker[0]) or _DENIED.match(text, start)):
        return Extraction(None, Rung.ANNOUNCED, Reason.NO_ANSWER, marker.span())
    before = text[max(0, marker.start() - 30) : marker.start()]
    if kind != "text" and _WRONG.search(before):
        return Extraction(None, Rung.ANNOUNCED, Reason.NO_ANSWER, marker.span())
    return _announcement(text, start, kind)


def states_value(marker: str) -> bool:
    """Whether an announcement states its answer, and neither denies nor doubts it."""
    return not (_DENYING.search(marker) or has_doubt(marker))


def closing_line(text: str, start: int, kind: Kind) -> Extraction | None:
    """What the last "The final answer is $...$" from start on says: few-shot prompts teach this ending."""
    closing = None
    for match in _CLOSING.finditer(text, start):
        closing = match
    return _announcement(text, closing.end(), kind) if closing else None


def _announcement(text: str, start: int, kind: Kind) -> Extraction:
    formula = next(find_formulas(text[start : start + _WHOLE_LIMIT]), None)
    if formula is not None and formula.start == 0:
        return _leading_formula(text, start, formula)
    end = sentence_end(text, start)
    sentence = text[start:end]
    if kind == "text":
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    if not is_prose(sentence) or _NUMBER_WITH_WORDS.fullmatch(sentence):
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    return _from_sentence(text, start, end)


def _leading_formula(text: str, start: int, formula: Mark) -> Extraction:
    """An announcement that opens with a formula: it alone, unless others are listed beside it."""
    end = sentence_end(text, start + formula.end)
    if _LIST_GAP.match(text, start + formula.end, end) and not is_prose(text[start:end].replace("$", " ")):
        return Extraction(clean(text[start:end]), Rung.ANNOUNCED, None, (start, end))
    if _OR.search(text, start + formula.end, end):
        return Extraction(None, Rung.ANNOUNCED, Reason.AMBIGUOUS, (start, end))
    unit = text[start + formula.end : end].strip().strip(_EMPHASIS + ".")
    words = f" {unit}" if unit.isalpha() and len(unit) <= 12 else ""
    return Extraction(
        clean(formula.content or "") + words, Rung.ANNOUNCED, None, (start, start + formula.end)
    )


def _from_sentence(text: str, start: int, end: int) -> Extraction:
    """A sentence of words: the value that follows its last "is", else the only value it holds.

    One of several values of a sentence, as a repeated question has them, is no answer.
    """
    formulas = [_moved(mark, start) for mark in find_formulas(text[start:end])]
    values = _values(text, start, end, formulas)
    copulas = [
        match.end()
        for match in _COPULA.finditer(text, start, end)
        if not any(formula.start < match.start() < formula.end for formula in formulas)
    ]
    for at in copulas[-1:]:
        if is_visible_math(text[at:end]):
            return Extraction(clean(text[at:end]), Rung.ANNOUNCED, None, (at, end))
        hedges = _HEDGES.match(text, at, end)
        said = [mark for mark in values if mark.end > at]
        if len(said) == 1 and hedges and said[0].start <= hedges.end():
            values = said
    if not values:
        return Extraction(clean(text[start:end]), Rung.ANNOUNCED, None, (start, end))
    if len({mark.content for mark in values}) > 1:
        return Extraction(None, Rung.ANNOUNCED, Reason.AMBIGUOUS, (start, end))
    if values[-1] in formulas:
        return _last_formula(text, start, end, Rung.ANNOUNCED) or Extraction(None, Rung.ANNOUNCED)
    number = last_number(text[start:end], start)
    assert number is not None, "the sentence holds a number"
    return Extraction(number.answer, Rung.ANNOUNCED, number.reason, number.span)


def _values(text: str, start: int, end: int, formulas: list[Mark]) -> list[Mark]:
    """The values of a sentence: its formulas, names beside numbers left out, or else its plain numbers."""
    counted = [mark for mark in formulas if re.search(r"\d", mark.content or "")]
    if counted:
        return counted
    numbers = [_moved(mark, start) for mark in find_numbers(text[start:end])]
    return numbers or formulas


def _moved(mark: Mark, offset: int) -> Mark:
    return Mark(offset + mark.start, offset + mark.end, mark.content)


def is_visible_math(text: str) -> bool:
    """Whether text is mathematics only, and something."""
    return bool(clean(text)) and not is_prose(text.replace("$", " "))


def sentence_end(text: str, start: int) -> int:
    """Where the sentence from start ends; a mark inside a formula ends none."""
    window = text[start : start + _WHOLE_LIMIT]
    formulas = list(find_formulas(window))
    for match in _SENTENCE_END.finditer(window):
        if not any(formula.start < match.start() < formula.end for formula in formulas):
            return start + match.start()
    return start + len(window)


def _whole(text: str) -> Extraction | None:
    """The whole text, when it is one formula, mathematics only, or a number with its unit."""
    start = len(text) - len(text.lstrip())
    stripped = text.strip()
    if not stripped or len(stripped) > _WHOLE_LIMIT or "\n\n" in stripped:
        return None
    answer = _IS_THE_ANSWER.sub("", clean(stripped))
    plain = answer.replace("$", " ").strip()
    one_formula = stripped[0] == "$" and answer != stripped and "$" not in answer
    if not one_formula and is_prose(plain) and not _NUMBER_WITH_WORDS.fullmatch(plain):
        return None
    return Extraction(answer, Rung.WHOLE, None, (start, start + len(stripped)))


def _short_text(text: str) -> Extraction | None:
    """A text of one short line, for golds that are words."""
    start = len(text) - len(text.lstrip())
    stripped = text.strip()
    if not stripped or len(stripped) > _SHORT_LIMIT or "\n" in stripped:
        return None
    return Extraction(clean(stripped), Rung.WHOLE, None, (start, start + len(stripped)))


def _last_formula(text: str, start: int, end: int, rung: Rung) -> Extraction | None:
    """The last formula between two positions, or why it is none: one of several alternatives, or denied."""
    formulas = [_moved(mark, start) for mark in find_formulas(text[start:end])]
    if not formulas:
        return None
    last = formulas[-1]
    span = (last.start, last.end)
    before = text[max(start, last.start - 40) : last.start]
    if _OR_BEFORE.search(before) or _is_listed(text, formulas):
        return Extraction(None, rung, Reason.AMBIGUOUS, span)
    if _DENIAL.search(before) or is_denied(text, last.start, last.end):
        return Extraction(None, rung, Reason.NO_ANSWER, span)
    if is_doubted(text, last.start, last.end):
        return Extraction(None, rung, Reason.AMBIGUOUS, span)
    return Extraction(clean(last.content or ""), rung, None, span)


def last_number(text: str, offset: int) -> Extraction | None:
    """The last plain number, or why it is none: one of several alternatives, denied, or part of a formula."""
    base = max(0, len(text) - _TAIL)
    numbers = find_numbers(text[base:])
    if len(numbers) < 4 and base:
        base = 0
        numbers = find_numbers(text)
    if not numbers:
        return None
    last = numbers[-1]
    start, end = base + last.start, base + last.end
    span = (offset + start, offset + end)
    before = text[max(0, start - 40) : start]
    if _is_alternative(text[base:], numbers) or is_doubted(text, start, end):
        return Extraction(None, Rung.NUMBER, Reason.AMBIGUOUS, span)
    if is_denied(text, start, end):
        return Extraction(None, Rung.NUMBER, Reason.NO_ANSWER, span)
    if _DENIAL.search(before) or _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(text, end):
        return Extraction(None, Rung.NUMBER, Reason.NO_ANSWER, span)
    return Extraction(last.content, Rung.NUMBER, None, span)


def _is_alternative(text: str, numbers: list[Mark]) -> bool:
    """Whether the last number is one of several offered: "41 or 42", "41, 42", "4, 5 and 6"."""
    last = numbers[-1]
    previous = numbers[-2].end if len(numbers) > 1 else max(0, last.start - 200)
    sentence = max(previous, text.rfind("\n", 0, last.start), text.rfind(". ", 0, last.start))
    return bool(_OR.search(text, sentence, last.start)) or _is_listed(text, numbers)


def _is_listed(text: str, numbers: list[Mark]) -> bool:
    """Whether the last mark stands in a list: after a comma, "or", or as the last of three before "and"."""
    if len(numbers) < 2:
        return False
    last = numbers[-1]
    line = max(text.rfind("\n", 0, last.start), text.rfind(". ", 0, last.start))
    if _OFFER.search(text, max(0, line), numbers[-2].start):
        return True
    gap = _LIST_GAP.fullmatch(text, numbers[-2].end, last.start)
    if gap is None:
        return _PART_GAP.fullmatch(text, numbers[-2].end, last.start) is not None
    if gap[1].strip(" ,") != "and":
        return True
    lead = text[max(0, numbers[-2].start - 20) : numbers[-2].start]
    if _OR.search(lead):
        return True
    return len(numbers) > 2 and _LIST_GAP.fullmatch(text, numbers[-3].end, numbers[-2].start) is not None
