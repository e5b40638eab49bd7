"""The operands of the grammar: numbers, names, brackets, bars, fractions and matrices."""

from __future__ import annotations

import re

from rewards.verifiers.equivalence import lexicon as lx
from rewards.verifiers.equivalence.brackets import bracket, outward_interval
from rewards.verifiers.equivalence.calls import big_operator, function
from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.lex import Token
from rewards.verifiers.equivalence.nodes import (
    DOTS,
    OTHERWISE,
    Call,
    Const,
    Group,
    Matrix,
    Node,
    Op,
    Sym,
)
from rewards.verifiers.equivalence.numerals import literal, number
from rewards.verifiers.equivalence.settings import MAX_ITEMS

_APPLIED = frozenset({"f", "g", "h"})


def atom(cur: Cursor) -> Node:
    """The operand at the cursor; raises ParseError where none begins."""
    cur.skip_currency()
    token = cur.peek()
    match token.kind:
        case "num":
            return number(cur, fraction)
        case "name":
            return name(cur)
        case "const":
            cur.take()
            return _constant(token.text)
        case "func":
            return function(cur, atom)
        case "open":
            return bracket(cur, atom)
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
            return outward_interval(cur)
        case "word" if token.text.lower() in lx.MULTIPLES:
            raise ParseError("a multiple without a number")
        case _:
            raise ParseError(f"operand expected, found {token.text!r}")


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
    first = cur.at == 0
    text = cur.take().text + _indices(cur)
    if text in ("e", "i"):
        return Const(text)
    node = Sym(text)
    applied = text in _APPLIED or _many_arguments(cur) or (first and _is_heading(cur))
    if cur.peek().kind == "open" and cur.peek().text == "(" and applied:
        inner = bracket(cur, atom)
        return Call(text, inner.items if isinstance(inner, Group) else (inner,))
    return node


def _indices(cur: Cursor) -> str:
    """The subscripts and primes at the cursor, as they are added to a name."""
    text = ""
    while cur.is_op("_", "'"):
        text += "'" if cur.take().text == "'" else "_" + subscript(cur)
    return text


def _is_heading(cur: Cursor) -> bool:
    """True for the bracket in y(x) = ... and P(3) = ..., where a function is meant and no product."""
    argument, closing, sign = cur.ahead(1), cur.ahead(2), cur.ahead(3)
    return argument.kind in ("name", "num") and closing.text == ")" and (sign.kind, sign.text) == ("rel", "=")


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
    token = cur.peek()
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
    text = cur.peek().text
    if text in ("frac", "dfrac", "tfrac", "cfrac"):
        return fraction(cur)
    if text in ("binom", "dbinom", "tbinom"):
        cur.take()
        top = _argument(cur)
        return Call("binom", (top, _argument(cur)))
    if text in ("sum", "prod", "int", "iint", "iiint", "oint", "lim"):
        return big_operator(cur)
    if text in ("boxed", "fbox"):
        if cur.boxed:
            raise ParseError("several boxes")
        cur.boxed = True
    if text in lx.WRAPPERS or text in ("boxed", "fbox"):
        cur.take()
        return atom(cur)
    if text in lx.ACCENTS:
        cur.take()
        marked = _marked_name(atom(cur)) + _indices(cur)
        return Sym(f"{text} {marked}" if text not in ("overline", "mathring") else marked)
    raise ParseError(f"\\{text} is not read here")


def _marked_name(node: Node) -> str:
    """What an accent stands over: a name, or several side by side as in \\overline{AB}."""
    if isinstance(node, Sym):
        return node.name
    if isinstance(node, Op) and node.kind == "mul":
        return "".join(_marked_name(arg) for arg in node.args)
    raise ParseError("an accent over no name")


def _cell(cur: Cursor) -> Node:
    """One cell; that of a condition may begin with "if", be "otherwise", and follow a comma."""
    if cur.peek().kind == "word" and cur.peek().text.lower() in ("if", "for", "when", "where"):
        cur.take()
    if cur.peek().kind == "word" and cur.peek().text.lower() in ("otherwise", "else", "elsewhere"):
        cur.take()
        return OTHERWISE
    node = cur.listing(cur)
    if cur.peek().kind == "comma":
        cur.take()
    return node


_ROWS = re.compile(r"[a-zA-Z]?(?:small)?matrix\Z|array\Z")


def _environment(cur: Cursor) -> Node:
    kind = cur.take().text
    cur.deeper()
    bars, cur.bars = cur.bars, 0
    rows: list[list[Node]] = [[]]
    while not (cur.peek().kind == "end" and cur.peek().text == kind):
        if cur.peek().kind == "row":
            cur.take()
            rows.append([])
            continue
        if cur.peek().kind == "amp":
            cur.take()
            continue
        rows[-1].append(_cell(cur))
        if cur.peek().kind not in ("row", "amp", "end") or cur.peek().text == "":
            raise ParseError(f"unexpected {cur.peek().text!r} in {kind}")
    cur.take()
    cur.bars = bars
    cur.depth -= 1
    table = [tuple(row) for row in rows if row]
    if not table or sum(map(len, table)) > MAX_ITEMS:
        raise ParseError("no cells, or too many")
    if not _ROWS.match(kind):
        name = "piecewise" if kind == "cases" and {len(row) for row in table} == {2} else kind
        return Call(name, tuple(cell for row in table for cell in row))
    if len({len(row) for row in table}) != 1:
        raise ParseError("ragged matrix")
    matrix = Matrix(tuple(table))
    return Call("det", (matrix,)) if kind == "vmatrix" else matrix
