r"""What a text does to a marked answer around it: denies it, doubts it, takes it back, or offers another.

Reads the words beside a mark and two answers as written; knows nothing of golds. Every search is bounded by
`_NEAR` characters or is one pass over the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NEAR = 80  # characters beside a mark in which a denial or a doubt about it stands
_MANY = 32  # turns and denials from the end that are looked at
_OPENERS = r"(?:[\s$*({\[\"'“~_:]|\\[(\[]|\\text\s*\{)*"
_CLOSERS = r"(?:[\s$*)}\]\"'”~_]|\\[)\]])*"
_DENIED_BEFORE = re.compile(
    r"(?i)(?:\b(?:is|are|was|be|it|answer|equals?|but|rather|certainly|definitely|clearly|,)\s+(?:not|never)"
    r"|\bcannot(?:\s+be)?|\b(?:ca|is|was|are|does|wo|would|could)n[’']t(?:\s+be)?|\banything\s+but)\b"
    rf"(?:\s+(?:be|equals?|to|the|a|answer|final|value))*{_OPENERS}$"
    r"|\b(?:wrong|incorrect|mistaken|bogus|bad)(?:\s*:|\s+(?:(?:final|but|tempting)\s+)?"
    r"(?:answers?|results?|values?|solutions?|guess|box)\b\s*(?:(?:is|was|would\s+be)\b)?)"
    rf"{_OPENERS}$"
)
_DENIED_AFTER = re.compile(
    rf"(?i){_CLOSERS}(?:\\text\s*\{{)?[.,;:—–-]?\s*(?:\(\s*)?(?:(?:but|and|which|that|this|it|the\s+answer)\s+)*"
    r"(?:(?:is|was|would\s+be|seems|turns\s+out|isn[’']t|wasn[’']t)\s+)?"
    r"(?:(?:clearly|obviously|definitely|certainly|actually|simply|just|to\s+be|of\s+course|all|quite|"
    r"the|a|an|my)\s+)*"
    r"(?:(?:wrong|incorrect|mistaken|ruled\s+out)\b|not\s+(?:the\s+|my\s+)?(?:final\s+)?"
    r"(?:right|correct|true|valid|answer|solution|it)\b|(?<=n[’']t\s)(?:the\s+)?(?:right|correct|answer|it)\b)"
)
_DOUBTED_BEFORE = re.compile(
    rf"(?i)(?:\b(?:could|may|might)\s+(?:also\s+|well\s+|perhaps\s+)*be|\b(?:maybe|perhaps|possibly))\b{_OPENERS}$"
)
_DOUBT = re.compile(r"(?i)\b(?:could|may|might|maybe|perhaps|possibly)\b")
_DOUBTED_AFTER = re.compile(rf"{_CLOSERS}\?")
_DOUBT_INSIDE = re.compile(
    r"\?[\s$})*\]]*\Z|(?i:\b(?:ish|maybe|perhaps|possibly|not\s+sure|i\s+guess)\b)|[0-9](?i:ish)\b"
)
_STRUCK = re.compile(r"\\(?:[bx]?cancel|cancelto|sout)(?![A-Za-z])|~~\s*[^~\s]")
_GLUED = re.compile(r"[0-9]|\(\s*[-+]?[0-9.]+\s*\)")
_ROW = re.compile(
    r"(?i)(?:[\s.,;:*_$!?|&/(){}\[\]~#—–-]|\\[()\[\],;]|\\text|\\q?quad|</?answer>"
    r"|\b(?:and|or|also|alternatively|either|maybe|perhaps|possibly|another|else|again|too|as\s+well"
    r"|the|a|my|final|answer|possible|option)\b)*"
)
_TURN = re.compile(
    r"(?i)\b(?:no,?\s+wait|wait,?\s+(?:no|actually)|correction|(?:i\s+)?(?:actually\s+)?meant|scratch\s+that|"
    r"take\s+(?:that|it)\s+back|"
    r"on\s+(?:second\s+thought|reflection)|my\s+mistake|oops|sorry|alternatively|actually|rather)\b"
)
_FIRM = re.compile(r"(?i)no,?\s+wait|wait,?\s+no\b|correction\b|\bmeant|scratch|take\s")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;,\n—–(]|\b(?:or|and|but|so))[\s*_$\])}]*$")
_LEAD = re.compile(
    r"(?i)(?:[\s:：,;.!*_—–-]|\b(?:sorry|no|i|think|meant?|to\s+say|the|correct|right|final|real|true|answer|"
    r"result|value|it|that|this|should|must|have|been|is|be|was|its|would|option|choice|actually|rather|so|"
    r"wait|oops)\b|[’']s\b)*"
)
_DISOWNED = re.compile(
    r"(?i)\b(?:that|this|it|which|above|answer)(?:\s+(?:is|was)|[’']s)\s+(?:\w+ly\s+)?"
    r"(?:wrong|incorrect|not\s+(?:right|correct|true|the\s+(?:final\s+)?answer))\b"
)
_DENIES = re.compile(rf"(?i)\b(?:is|was|be)(?:\s+not|n[’']t)\s+{_OPENERS}")
_COSMETIC = re.compile(
    r"\\(?:left|right|displaystyle|text|mathrm|mathbf|textbf|mbox|boxed|,|;|!|:| )(?![A-Za-z])|[\s${}*_\\~]"
)
_SIMPLE = re.compile(r"([-+]?[0-9]*\.?[0-9]+)(?:/([0-9]*\.?[0-9]+))?(%?)[a-zA-Z]*\Z")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([0-9.]+)\}\s*\{([0-9.]+)\}|\\[dt]?frac\s*([0-9])\s*([0-9])")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def is_denied(text: str, start: int, end: int) -> bool:
    r"""Whether the words beside text[start:end] deny it: "not \boxed{4}", "\boxed{4} is wrong"."""
    before = text[max(0, start - _NEAR) : start]
    after = text[end : end + _NEAR]
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.match(after))


def is_doubted(text: str, start: int, end: int) -> bool:
    """Whether the words beside text[start:end] make a guess of it: "could be 4", "perhaps 4", "4?"."""
    before = text[max(0, start - _NEAR) : start]
    return bool(_DOUBTED_BEFORE.search(before) or _DOUBTED_AFTER.match(text[end : end + _NEAR]))


def has_doubt(words: str) -> bool:
    """Whether words of an announcement make a guess of it."""
    return _DOUBT.search(words) is not None


def is_half_said(answer: str) -> bool:
    r"""Whether an answer strikes itself out or asks: `\cancel{4}`, `~~4~~`, `4?`, `4\text{ish}`."""
    return bool(_STRUCK.search(answer) or _DOUBT_INSIDE.search(answer))


def is_glued(text: str, end: int) -> bool:
    r"""Whether a mark that ends here is a piece of a longer value: `\boxed{4}2`, `\boxed{4}(2)`."""
    return _GLUED.match(text, end) is not None


def is_row(between: str) -> bool:
    """Whether only white space, punctuation, "and", "or", "alternatively" stand between two answers."""
    return len(between) <= 2 * _NEAR and _ROW.fullmatch(between) is not None


def turns(text: str, start: int) -> list[tuple[int, int, bool]]:
    """Where the text from start on turns to another answer: "Correction: 41", "Sorry, I meant 41".

    Each as (start of the turn, where the new answer would stand, whether the words take back for certain).
    """
    found: list[tuple[int, int, bool]] = []
    for match in _TURN.finditer(text, start):
        lead = _LEAD.match(text, match.end(), match.end() + _NEAR)
        firm = _FIRM.search(text, match.start(), lead.end() if lead else match.end())
        opens = _SENTENCE_START.search(text[max(0, match.start() - 8) : match.start()])
        if not (firm or opens or match.start() == start):
            continue
        found.append((match.start(), lead.end() if lead else match.end(), firm is not None))
    return found[-_MANY:]


def is_disowned(text: str, start: int) -> bool:
    """Whether the text from start on calls what stood before it wrong."""
    return _DISOWNED.search(text, start, start + 4 * _NEAR) is not None


def denials(text: str, start: int) -> list[int]:
    """Where values stand that the text from start on denies: "it is not 42"."""
    return [match.end() for match in _DENIES.finditer(text, start)][-_MANY:]


def same_writing(one: str, two: str) -> bool:
    r"""Whether two answers are the same as written: spaces, wrappers and ways to write a number aside.

    >>> same_writing("\\frac{1}{2}", "$0.5$"), same_writing("x = 5", "5"), same_writing("41", "42")
    (True, True, False)
    """
    left, right = _plain(one), _plain(two)
    if left == right or (_value(left) is not None and _value(left) == _value(right)):
        return True
    digits = [set(_DIGITS.findall(text)) for text in (left, right)]
    return bool(digits[0] and digits[0] == digits[1])


def _plain(text: str) -> str:
    text = _FRACTION.sub(
        lambda m: f"{m[1] or m[3]}/{m[2] or m[4]}", text.replace(",\\!", "").replace("−", "-")
    )
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", text)
    return _COSMETIC.sub("", text).rstrip(".").casefold()


def _value(text: str) -> Fraction | None:
    match = _SIMPLE.match(text)
    if match is None or len(text) > 100 or (match[2] and not float(match[2])):
        return None
    return Fraction(match[1]) / Fraction(match[2] or "1") / (100 if match[3] else 1)
