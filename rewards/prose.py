r"""Answers in running text: announced ("the answer is ..."), the whole text, the last formula or number.

The loose half of the ladder in rewards.text. Each rung gives one candidate; a text that offers alternatives
or denies its number gives none. Text in, candidate out; linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewards.extraction import Extraction, ExtractionSettings, Kind, Rung
from rewards.marks import Mark, find_formulas, find_numbers, is_prose
from rewards.types import Reason

_WHOLE_LIMIT = 4096  # characters of a text that may be one formula
_SHORT_LIMIT = 120  # characters of a text answer
_TAIL = 4096  # characters from the end in which the last number is sought first
_MARKER = re.compile(
    r"(?i)\banswers?\b[ \t*_]*"
    r"(?:(?:to|for|of|in|here|must|should|would|will|may|then)\b[^.:\n]{0,40}?)?[ \t*_]*"
    r"(?:\bis\b|\bare\b|\bwas\b|\bequals?\b|\bbe\b|[:：=≈])|\bfinal\s+answer\b[ \t*_#]*\n|答案(?:是|为|：|:)"
)
# What a text says another's answer is: to the end of the sentence, decimal points aside.
_REFERENCE = re.compile(
    r"(?i)\b(?:the\s+)?(?:reference|golden|gold|ground[- ]truth|official)\s+answers?\b"
    r"(?:[^.。\n]|[.。](?!\s|$))*[.。]?"
)
_CLOSING = re.compile(r"(?i)\bfinal answer is:?\s*(?=\$|\\\()")
_AFTER_MARKER = re.compile(
    r"(?i)(?:[\s:：*_]|\b(?:therefore|thus|simply|just|indeed|clearly|exactly|then|hence|also|actually|now|still)\b)*"
)
_SENTENCE_END = re.compile(r"[.。](?=\s|$)|[;\n]|,?\s+(?:because|since|but|so|which|where)\b")
_COPULA = re.compile(r"(?i)\b(?:is|are|be|was|equals?|namely|gives?|get)\b|[:=≈]")
_DENIAL = re.compile(r"(?i)(?:\bnot|n[’']t|\bnever|\bthan|\bneither|\bnor)\s*$")
_OR = re.compile(r"(?i)\b(?:or|either|between)\b")
_LIST_GAP = re.compile(r"(?i)[\s$*]*(,|;|/|,?\s*(?:and|or)\b)[\s$*]*(?:maybe|perhaps|possibly)?[\s$*]*")
_OPERATOR_BEFORE = re.compile(r"[-+*/^<>≤≥×÷·_\\{]\s*$")
_OPERATOR_AFTER = re.compile(r"\s*(?:[*/^<>≤≥×÷·{\\]|[-+]\s*[\d(])")
_NUMBER_WITH_WORDS = re.compile(r"[-+−$€£\s]*[0-9][0-9,.]*(?:\s*/\s*[0-9]+)?\s*(?:[^\W\d_]+\s*){0,3}")
_BOLD = re.compile(r"(?<![\w)\]}])\*\*([^*\n]+)\*\*(?![\w(\[{])")  # not the powers of 2**3**x
_EMPHASIS = '*_`"“”'


def loose_answer(text: str, settings: ExtractionSettings, kind: Kind) -> Extraction:
    """The candidate of the first rung that hits; spans are positions in text."""
    text = _REFERENCE.sub(lambda quoted: " " * len(quoted[0]), text)
    found = _announced(text, kind) or _whole(text)
    if found is None and kind == "text":
        found = _short_text(text)
    if found is None:
        found = _concluded(text, numbers=settings.last_number and kind == "math")
    return found or Extraction(None, Rung.NONE, Reason.NO_ANSWER)


def _concluded(text: str, *, numbers: bool) -> Extraction | None:
    """The later of the last formula and the last plain number in the last two paragraphs."""
    start = len(text.rstrip())
    for _ in range(2):
        start = max(0, text.rfind("\n\n", 0, start))
        start = len(text[:start].rstrip()) if start else 0
    found = _last(find_formulas(text[start:]), Rung.FORMULA, start)
    if not numbers:
        return found
    after = found.span[1] if found and found.span else start
    return last_number(text[after:], after) or found


def clean(text: str) -> str:
    """Without white space, emphasis, quotes and a full stop around it, nor delimiters of the whole."""
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    before = None
    while text != before:
        before = text
        text = text.strip().strip(_EMPHASIS)
        if text.endswith((".", ",", ";", ":", "。")) and not text.endswith(".."):
            text = text[:-1]
    for opener, closer in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        inner = text[len(opener) : len(text) - len(closer)]
        if len(text) > len(opener + closer) and text.startswith(opener) and text.endswith(closer):
            return text if opener in inner or closer in inner else clean(inner)
    return text


def _announced(text: str, kind: Kind) -> Extraction | None:
    """What the last announcement of the answer announces."""
    marker = None
    for match in _MARKER.finditer(text):
        marker = match
    if marker is None:
        return None
    skipped = _AFTER_MARKER.match(text, marker.end())
    start = skipped.end() if skipped else marker.end()
    return _announcement(text, start, kind)


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
    end = _sentence_end(text, start)
    sentence = text[start:end]
    if kind == "text":
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    if not is_prose(sentence) or _NUMBER_WITH_WORDS.fullmatch(sentence):
        return Extraction(clean(sentence), Rung.ANNOUNCED, None, (start, end))
    return _from_sentence(text, start, end)


def _leading_formula(text: str, start: int, formula: Mark) -> Extraction:
    """An announcement that opens with a formula: it alone, unless others are listed beside it."""
    end = _sentence_end(text, start + formula.end)
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
    """A sentence of words: what follows its last "is", else its last formula, else its last number."""
    copulas = [match.end() for match in _COPULA.finditer(text, start, end)]
    for at in copulas[-1:]:
        tail = text[at:end]
        if is_visible_math(tail):
            return Extraction(clean(tail), Rung.ANNOUNCED, None, (at, end))
    found = _last(find_formulas(text[start:end]), Rung.ANNOUNCED, start)
    if found is not None:
        return found
    number = last_number(text[start:end], start)
    if number is not None:
        return Extraction(number.answer, Rung.ANNOUNCED, number.reason, number.span)
    return Extraction(clean(text[start:end]), Rung.ANNOUNCED, None, (start, end))


def is_visible_math(text: str) -> bool:
    """Whether text is mathematics only, and something."""
    return bool(clean(text)) and not is_prose(text.replace("$", " "))


def _sentence_end(text: str, start: int) -> int:
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
    answer = clean(stripped)
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


def _last(marks: Iterable[Mark], rung: Rung, offset: int) -> Extraction | None:
    """The content of the last mark; offset is added to its positions."""
    last = None
    for mark in marks:
        last = mark
    if last is None or last.content is None:
        return None
    return Extraction(clean(last.content), rung, None, (offset + last.start, offset + last.end))


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
    if _is_alternative(text[base:], numbers):
        return Extraction(None, Rung.NUMBER, Reason.AMBIGUOUS, span)
    if _DENIAL.search(before) or _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(text, end):
        return Extraction(None, Rung.NUMBER, Reason.NO_ANSWER, span)
    return Extraction(last.content, Rung.NUMBER, None, span)


def _is_alternative(text: str, numbers: list[Mark]) -> bool:
    """Whether the last number is one of several offered: "41 or 42", "41, 42", "4, 5 and 6"."""
    last = numbers[-1]
    previous = numbers[-2].end if len(numbers) > 1 else max(0, last.start - 200)
    sentence = max(previous, text.rfind("\n", 0, last.start), text.rfind(". ", 0, last.start))
    if _OR.search(text, sentence, last.start):
        return True
    if len(numbers) < 2:
        return False
    gap = _LIST_GAP.fullmatch(text, numbers[-2].end, last.start)
    if gap is None:
        return False
    if gap[1].strip(" ,") != "and":
        return True
    lead = text[max(0, numbers[-2].start - 20) : numbers[-2].start]
    if _OR.search(lead):
        return True
    return len(numbers) > 2 and _LIST_GAP.fullmatch(text, numbers[-3].end, numbers[-2].start) is not None
