"""Whole numbers in English words: "twenty-one", "three hundred and five". Text in, value out; no judging."""

from __future__ import annotations

import re

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_BELOW_HUNDRED = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_NAMES = "|".join((*_BELOW_HUNDRED, "hundred", *_SCALES))
_SPELLED = re.compile(rf"(?i)(?:{_NAMES})\b(?:(?:\s+and\s+|\s*-\s*|\s+)(?:{_NAMES})\b)*")


def leading_number(text: str) -> tuple[int, int] | None:
    """(value, length) of the number in words that text begins with; None where it begins with none.

    Words that are no number together, such as "five seven" and "twenty twelve", are none.

    >>> leading_number("twenty-one apples"), leading_number("one two")
    ((21, 10), None)
    """
    match = _SPELLED.match(text)
    if match is None:
        return None
    value = _value(match[0].lower().replace("-", " ").split())
    return None if value is None else (value, match.end())


def _value(words: list[str]) -> int | None:
    total, below, scale = 0, 0, 10**12  # whole thousands so far, what stands below them, the last scale
    for place, word in enumerate(words):
        if word in _SCALES:
            if not below or _SCALES[word] >= scale:
                return None
            scale = _SCALES[word]
            total, below = total + below * scale, 0
        elif word == "hundred":
            if not 1 <= below <= 9:
                return None
            below *= 100
        elif word == "and":
            if words[place - 1] not in ("hundred", *_SCALES):
                return None
        else:
            value = _BELOW_HUNDRED[word]
            beside = below % 100
            fits = beside == 0 if value >= 10 or not beside else beside >= 20 and beside % 10 == 0
            if not fits or (value == 0 and len(words) > 1):
                return None
            below += value
    return total + below
