r"""Answers as written: what stands around them taken off, and whether two are the same but for their dress.

Strings only; what an answer means is the business of rewards.verifiers.equivalence.
"""

from __future__ import annotations

import re
from fractions import Fraction

_QUOTES = '*`"“”'
EMPHASIS = '*_`"“”'
_BOLD = re.compile(r"(?<![\w)\]}])\*\*([^*\n]+)\*\*(?![\w(\[{])")  # not the powers of 2**3**x
_COSMETIC = re.compile(
    r"\\(?:left|right|displaystyle|text|mathrm|mathbf|textbf|mbox|boxed|,|;|!|:| )(?![A-Za-z])|[\s${}*_\\~]"
)
_SIMPLE = re.compile(r"([-+]?[0-9]*\.?[0-9]+)(?:/([0-9]*\.?[0-9]+))?(%?)[a-zA-Z]*\Z")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([0-9.]+)\}\s*\{([0-9.]+)\}|\\[dt]?frac\s*([0-9])\s*([0-9])")
_DECIMAL = re.compile(r"[0-9]\.[0-9]|\\approx|≈")
_PLAIN_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+%?[a-z]*")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def clean(text: str) -> str:
    """Without white space, emphasis, quotes and a full stop around it, nor delimiters of the whole."""
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    before = None
    while text != before:
        before = text
        text = text.strip().strip(EMPHASIS if text.strip().endswith("_") else _QUOTES)
        if text.endswith((".", ",", ";", ":", "。")) and not text.endswith(".."):
            text = text[:-1]
    for opener, closer in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        inner = text[len(opener) : len(text) - len(closer)]
        if len(text) > len(opener + closer) and text.startswith(opener) and text.endswith(closer):
            return text if opener in inner or closer in inner else clean(inner)
    return text


def same_writing(one: str, two: str) -> bool:
    r"""Whether two answers are the same as written: spaces, wrappers and ways to write a number aside.

    Names and units are aside too: the same numbers in the same order, with as many commas, are the same.

    >>> same_writing("\\frac{1}{2}", "$0.5$"), same_writing("x = 5", "5"), same_writing("41", "42")
    (True, True, False)
    """
    left, right = _plain(one), _plain(two)
    if left == right or (_value(left) is not None and _value(left) == _value(right)):
        return True
    digits = [(_DIGITS.findall(text), text.count(",")) for text in (left, right)]
    return bool(digits[0][0] and digits[0] == digits[1])


def may_round(decimal: str, answer: str) -> bool:
    r"""Whether a decimal may be an answer rounded, which has none: `0.333` of `\frac{1}{3}` or `\sqrt{2}`."""
    return _DECIMAL.search(decimal) is not None and _PLAIN_NUMBER.fullmatch(_plain(answer)) is None


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
