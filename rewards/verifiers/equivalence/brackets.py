"""What brackets hold: a group, a tuple, an interval, a set, also by its condition, a system."""

from __future__ import annotations

from collections.abc import Callable

from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.nodes import Call, Const, Group, Matrix, Node, Rel, Seq, Sym, symbols
from rewards.verifiers.equivalence.settings import MAX_ITEMS

_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "{": ("}",), "\\{": ("\\}", "}", "."), ".": ()}


def bracket(cur: Cursor, atom: Callable[[Cursor], Node]) -> Node:
    """What stands in the brackets at the cursor, told apart by signs and commas only."""
    before = cur.ahead(-1).text if cur.at else ""
    opening = cur.take().text
    if opening in ("floor(", "ceil("):
        inner = cur.expr(cur)
        cur.expect("close", opening[:-1] + ")")
        return Call(opening[:-1], (inner,))
    cur.deeper()
    bars, cur.bars = cur.bars, 0
    if cur.peek().kind == "close" and cur.peek().text in _CLOSERS[opening]:
        cur.take()
        cur.bars = bars
        if opening == "{" and cur.peek().kind == "open":
            return atom(cur)
        if opening == "\\{":
            return Const("empty")
        raise ParseError("empty brackets")
    conditional = opening in ("{", "\\{") and _names_member(cur)
    inner = _condition(cur) if conditional else cur.listing(cur)
    closing = cur.take()
    if closing.kind != "close" or closing.text not in _CLOSERS[opening]:
        raise ParseError(f"{opening!r} closed by {closing.text!r}")
    cur.bars = bars
    cur.depth -= 1
    if conditional or closing.text == ".":
        return inner if conditional else system(inner)
    member = opening == "{" and before in ("{", ",") and cur.peek().text in ("}", ",")
    return _grouped(opening[-1], closing.text[-1], inner, is_set=member or opening == "\\{")


def _names_member(cur: Cursor) -> bool:
    """True for { x | ... }, { x : ... } and { x in R | ... }."""
    if cur.peek().kind != "name":
        return False
    at = 3 if cur.ahead(1).text == "in" and cur.ahead(2).text == "R" else 1
    sign = cur.ahead(at)
    return sign.kind == "bar" or sign.text in ("mid", ":")


def _condition(cur: Cursor) -> Node:
    """The condition of a set, as the relation it is: { x | x > 2 } is x > 2."""
    member = Sym(cur.take().text)
    if cur.peek().text == "in":
        cur.at += 2
    cur.take()
    condition = cur.listing(cur)
    parts = condition.items if isinstance(condition, Seq) else (condition,)
    if not all(isinstance(part, Rel) and member.name in symbols(part) for part in parts):
        raise ParseError("a set given by no condition on its member")
    return condition


def system(node: Node) -> Node:
    """What stands behind one brace: relations that hold together, or the pieces of a function."""
    if isinstance(node, Matrix) and all(len(row) == 2 for row in node.rows):
        return Call("piecewise", tuple(cell for row in node.rows for cell in row))
    rows = _rows(node)
    if not rows or not all(isinstance(row, Rel) for row in rows):
        raise ParseError("no system of equations")
    return rows[0] if len(rows) == 1 else Seq(rows, "and")


def _rows(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Matrix) and all(len(row) == 1 for row in node.rows):
        return tuple(cell for row in node.rows for cell in row)
    return node.args if isinstance(node, Call) and node.name == "cases" else ()


def _grouped(opening: str, closing: str, inner: Node, *, is_set: bool) -> Node:
    if opening == "{" and isinstance(inner, Group) and len(inner.items) == 1:
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


def outward_interval(cur: Cursor) -> Node:
    """]a, b[ and ]a, b]: the French way to write an open end."""
    cur.take()
    inner = cur.listing(cur)
    closing = cur.take()
    if not isinstance(inner, Seq) or len(inner.items) != 2 or closing.text not in ("[", "]"):
        raise ParseError("not an interval")
    return Group("(", ")" if closing.text == "[" else "]", inner.items)
