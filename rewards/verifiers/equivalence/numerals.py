"""Numbers as written: integers, decimals, scientific, mixed, repeating, and digits with a base."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.lex import Token
from rewards.verifiers.equivalence.nodes import BaseN, Node, Num, Op
from rewards.verifiers.equivalence.settings import MAX_DIGITS

_BARS = (Token("cmd", "overline"), Token("cmd", "bar"), Token("cmd", "dot"))


def literal(text: str) -> Num:
    """A number as written: exact value, and for decimals the digits and the scale of the last one."""
    if text.isdecimal():
        return Num(Fraction(int(text)))
    mantissa, _, exponent = text.lower().partition("e")
    power = int(exponent) if exponent else 0
    if abs(power) > MAX_DIGITS:
        raise ParseError("exponent too large")
    whole, point, decimals = mantissa.partition(".")
    value = Fraction(int(whole + decimals or "0"), 1) * Fraction(10) ** (power - len(decimals))
    if not point or not decimals:
        return Num(value)
    digits = len((whole + decimals).lstrip("0")) or 1
    return Num(value, digits, power - len(decimals))


def number(cur: Cursor, fraction: Callable[[Cursor], Op]) -> Node:
    """The number at the cursor: plain, mixed, repeating or with a base."""
    text = cur.take().text
    if "." in text and cur.peek() in _BARS:
        return _repeating(cur, text)
    if text.isdigit():
        special = _mixed(cur, int(text), fraction) or _based(cur, text)
        if special is not None:
            return special
    return literal(text)


def _based(cur: Cursor, digits: str) -> Node | None:
    if not cur.is_op("_"):
        return None
    cur.take()
    token = cur.take()
    if token.kind == "open" and token.text == "{":
        token = cur.take()
        cur.expect("close", "}")
    words = {"two": "2", "eight": "8", "ten": "10", "sixteen": "16"}
    base = words.get(token.text, token.text)
    if not base.isdigit() or not 2 <= int(base) <= 36:
        raise ParseError("not a base")
    return BaseN(digits.lstrip("0") or "0", int(base))


def _mixed(cur: Cursor, whole: int, fraction: Callable[[Cursor], Op]) -> Num | None:
    """3 1/3 and 3\\frac13: a whole number with a proper fraction behind it."""
    if not cur.mixed_numbers:
        return None
    start = cur.at
    if cur.peek().kind == "num" and cur.peek().spaced and cur.peek().text.isdigit():
        top = int(cur.take().text)
        if cur.skip_op("/") and cur.peek().kind == "num" and cur.peek().text.isdigit():
            bottom = int(cur.take().text)
            if 0 < top < bottom and not cur.is_op("^", "!", "/"):
                return Num(whole + Fraction(top, bottom))
    elif cur.peek().kind == "cmd" and cur.peek().text.endswith("frac"):
        quotient = fraction(cur)
        top, bottom = quotient.args
        if isinstance(top, Num) and isinstance(bottom, Num) and not cur.is_op("^", "!"):
            proper = 0 < top.value < bottom.value and _plain(top, bottom)
            if proper:
                return Num(whole + top.value / bottom.value)
    cur.at = start
    return None


def _plain(*parts: Num) -> bool:
    return all(part.value.denominator == 1 and not part.digits for part in parts)


def _repeating(cur: Cursor, text: str) -> Num:
    """0.1\\overline{6}, \\bar6 or \\dot6: the bar repeats for ever."""
    cur.take()
    braced = cur.peek().text == "{"
    cur.at += braced
    digits = cur.take().text
    if braced:
        cur.expect("close", "}")
    if not digits.isdigit():
        raise ParseError("only digits repeat")
    head = literal(text if text[-1] != "." else text + "0").value
    places = len(text.partition(".")[2])
    return Num(head + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places))
