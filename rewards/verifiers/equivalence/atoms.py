"""The operands of the grammar: numbers, names, brackets, bars, fractions and matrices."""

from __future__ import annotations

import re
from fractions import Fraction

from rewards.verifiers.equivalence import lexicon as lx
from rewards.verifiers.equivalence.calls import big_operator, function
from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.lex import Token
from rewards.verifiers.equivalence.nodes import (
    DOTS,
    BaseN,
    Call,
    Const,
    Group,
    Matrix,
    Node,
    Num,
    Op,
    Seq,
    Sym,
)
from rewards.verifiers.equivalence.settings import MAX_DIGITS, MAX_ITEMS

_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "{": ("}",), "\\{": ("\\}", "}")}
_APPLIED = frozenset({"f", "g", "h"})


def atom(cur: Cursor) -> Node:
    """The operand at the cursor; raises ParseError where none begins."""
    token = cur.now
    match token.kind:
        case "num":
            return _number(cur)
        case "name":
            return name(cur)
        case "const":
            cur.take()
            return _constant(token.text)
        case "func":
            return function(cur, atom)
        case "open":
            return bracket(cur)
        case "bar":
            return _bars(cur)
        case "cmd":
            return _command(cur)
        case "begin":
            return _environment(cur)
        case "dots":
            cur.take()
            return DOTS
        case "close" if token.text == "]":
            return _outward_interval(cur)
        case "word" if token.text.lower() in lx.MULTIPLES:
            raise ParseError("a multiple without a number")
        case _:
            raise ParseError(f"operand expected, found {token.text!r}")


def literal(text: str) -> Num:
    """A number as written: exact value, and for decimals the digits and the scale of the last one."""
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


def _number(cur: Cursor) -> Node:
    text = cur.take().text
    if "." in text and cur.now == Token("cmd", "overline"):
        return _repeating(cur, text)
    if text.isdigit():
        special = _mixed(cur, int(text)) or _based(cur, text)
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


def _mixed(cur: Cursor, whole: int) -> Num | None:
    """3 1/3 and 3\\frac13: a whole number with a proper fraction behind it."""
    if not cur.mixed_numbers:
        return None
    start = cur.at
    if cur.now.kind == "num" and cur.now.spaced and cur.now.text.isdigit():
        top = int(cur.take().text)
        if cur.skip_op("/") and cur.now.kind == "num" and cur.now.text.isdigit():
            bottom = int(cur.take().text)
            if 0 < top < bottom and not cur.is_op("^", "!", "/"):
                return Num(whole + Fraction(top, bottom))
    elif cur.now.kind == "cmd" and cur.now.text.endswith("frac"):
        quotient = fraction(cur)
        top, bottom = quotient.args
        whole_parts = isinstance(top, Num) and isinstance(bottom, Num)
        if whole_parts and 0 < top.value < bottom.value and not cur.is_op("^", "!"):
            if top.value.denominator == 1 == bottom.value.denominator and not (top.digits or bottom.digits):
                return Num(whole + top.value / bottom.value)
    cur.at = start
    return None


def _repeating(cur: Cursor, text: str) -> Num:
    """0.1\\overline{6}: the bar repeats for ever."""
    cur.take()
    cur.expect("open", "{")
    digits = cur.take().text
    cur.expect("close", "}")
    if not digits.isdigit():
        raise ParseError("only digits repeat")
    head = literal(text if text[-1] != "." else text + "0").value
    places = len(text.partition(".")[2])
    return Num(head + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places))


def _constant(text: str) -> Node:
    if text in ("pi", "oo", "empty", "e", "i"):
        return Const(text)
    if len(text) == 1 and text in lx.NUMBER_SETS:
        return Const(text)
    if len(text) == 1 and text.isalpha():
        return Sym(text)
    raise ParseError(f"unknown constant {text!r}")


def name(cur: Cursor) -> Node:
    """A symbol with subscripts and primes, or e, i; an application where arguments must be meant."""
    text = cur.take().text
    while cur.is_op("_", "'"):
        if cur.take().text == "'":
            text += "'"
        else:
            text += "_" + subscript(cur)
    if text in ("e", "i"):
        return Const(text)
    node = Sym(text)
    if cur.now.kind == "open" and cur.now.text == "(" and (text in _APPLIED or _many_arguments(cur)):
        inner = bracket(cur)
        return Call(text, inner.items if isinstance(inner, Group) else (inner,))
    return node


def _many_arguments(cur: Cursor) -> bool:
    """True where the bracket at the cursor holds a comma of its own."""
    depth = 0
    for token in cur.tokens[cur.at :]:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0:
            return False
        if depth == 1 and token.kind == "comma":
            return True
    return False


def subscript(cur: Cursor) -> str:
    """The text of a subscript, braces dropped and spaces gone: x_{1} is x_1."""
    token = cur.take()
    if not (token.kind == "open" and token.text == "{"):
        if token.kind in ("num", "name", "const", "func", "word"):
            return token.text
        raise ParseError("subscript expected")
    parts: list[str] = []
    depth = 1
    while True:
        token = cur.take()
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "end":
            raise ParseError("unbalanced subscript")
        if depth == 0:
            return "".join(parts)
        parts.append(token.text)


def bracket(cur: Cursor) -> Node:
    """Grouping, tuple, interval or set: told apart by signs and commas only."""
    opening = cur.take().text
    if opening in ("floor(", "ceil("):
        inner = cur.expr(cur)
        cur.expect("close", opening[:-1] + ")")
        return Call(opening[:-1], (inner,))
    cur.deeper()
    bars, cur.bars = cur.bars, 0
    if cur.now.kind == "close" and cur.now.text in _CLOSERS[opening]:
        cur.take()
        cur.bars = bars
        if opening == "{" and cur.now.kind == "open":
            return atom(cur)
        if opening == "\\{":
            return Const("empty")
        raise ParseError("empty brackets")
    inner = cur.listing(cur)
    closing = cur.take()
    if closing.kind != "close" or closing.text not in _CLOSERS[opening]:
        raise ParseError(f"{opening!r} closed by {closing.text!r}")
    cur.bars = bars
    cur.depth -= 1
    return _grouped(opening[-1], closing.text[-1], inner, is_set=opening == "\\{")


def _grouped(opening: str, closing: str, inner: Node, *, is_set: bool) -> Node:
    if opening == "{" and not is_set and isinstance(inner, Group) and len(inner.items) == 1:
        return inner.items[0]
    if isinstance(inner, Seq):
        if len(inner.items) > MAX_ITEMS:
            raise ParseError("too many members")
        if inner.joiner in ("and", "or") and opening != "{":
            raise ParseError("words join members of a bracket")
        return Group(opening, closing, inner.items)
    if opening + closing not in ("()", "[]", "{}"):
        raise ParseError("half-open bracket around one member")
    return Group("{", "}", (inner,)) if is_set else inner


def _outward_interval(cur: Cursor) -> Node:
    """]a, b[ and ]a, b]: the French way to write an open end."""
    cur.take()
    inner = cur.listing(cur)
    closing = cur.take()
    if not isinstance(inner, Seq) or len(inner.items) != 2 or closing.text not in ("[", "]"):
        raise ParseError("not an interval")
    return Group("(", ")" if closing.text == "[" else "]", inner.items)


def _bars(cur: Cursor) -> Node:
    sign = cur.take().text
    cur.deeper()
    cur.bars += 1
    inner = cur.expr(cur)
    cur.bars -= 1
    cur.expect("bar", sign)
    cur.depth -= 1
    node = Call("abs", (inner,))
    return Call("abs", (node,)) if sign == "||" else node


def fraction(cur: Cursor) -> Op:
    """\\frac with its two arguments, braced or single: \\frac12 is one half."""
    cur.take()
    top = _argument(cur)
    return Op("div", (top, _argument(cur)))


def _argument(cur: Cursor) -> Node:
    token = cur.now
    if token.kind == "num" and token.text.isdigit() and len(token.text) > 1:
        cur.tokens[cur.at] = Token("num", token.text[1:])
        return literal(token.text[0])
    if token.kind == "num":
        cur.take()
        return literal(token.text)
    if token.kind == "name":
        cur.take()
        return Const(token.text) if token.text in ("e", "i") else Sym(token.text)
    return atom(cur)


def _command(cur: Cursor) -> Node:
    text = cur.now.text
    if text in ("frac", "dfrac", "tfrac", "cfrac"):
        return fraction(cur)
    if text in ("binom", "dbinom", "tbinom"):
        cur.take()
        top = _argument(cur)
        return Call("binom", (top, _argument(cur)))
    if text in ("sum", "prod", "int", "iint", "iiint", "oint", "lim"):
        return big_operator(cur)
    if text in lx.WRAPPERS:
        cur.take()
        return atom(cur)
    if text in lx.ACCENTS:
        cur.take()
        start = cur.at
        inner = atom(cur)
        marked = "".join(token.text for token in cur.tokens[start : cur.at] if token.kind == "name")
        if not marked or not isinstance(inner, Sym | Op):
            raise ParseError(f"\\{text} over no name")
        return Sym(f"{text} {marked}" if text not in ("overline", "mathring") else marked)
    raise ParseError(f"\\{text} is not read here")


_ROWS = re.compile(r"[a-zA-Z]?(?:small)?matrix\Z|array\Z")


def _environment(cur: Cursor) -> Node:
    kind = cur.take().text
    cur.deeper()
    bars, cur.bars = cur.bars, 0
    rows: list[list[Node]] = [[]]
    while not (cur.now.kind == "end" and cur.now.text == kind):
        if cur.now.kind == "row":
            cur.take()
            rows.append([])
            continue
        if cur.now.kind == "amp":
            cur.take()
            continue
        rows[-1].append(cur.listing(cur))
        if cur.now.kind not in ("row", "amp", "end") or cur.now.text == "":
            raise ParseError(f"unexpected {cur.now.text!r} in {kind}")
    cur.take()
    cur.bars = bars
    cur.depth -= 1
    table = [tuple(row) for row in rows if row]
    if not table or sum(map(len, table)) > MAX_ITEMS:
        raise ParseError("no cells, or too many")
    if not _ROWS.match(kind):
        return Call(kind, tuple(cell for row in table for cell in row))
    if len({len(row) for row in table}) != 1:
        raise ParseError("ragged matrix")
    matrix = Matrix(tuple(table))
    return Call("det", (matrix,)) if kind == "vmatrix" else matrix
