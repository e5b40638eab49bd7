"""Functions and big operators of the grammar: sin x, log_2 8, sqrt[3]{x}, sum, product, integral, limit."""

from __future__ import annotations

from collections.abc import Callable

from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.nodes import Big, Call, Const, Group, Node, Num, Op, Rel, Sym, neg, num

_LISTS = frozenset({"max", "min", "gcd", "lcm"})
_INVERSES = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch"]
)


def function(cur: Cursor, atom: Callable[[Cursor], Node]) -> Node:
    """A named function with its power, base and argument."""
    called = cur.take().text
    if called in ("sqrt", "cbrt"):
        return _root(cur, called, atom)
    power: Node | None = None
    base: Node | None = None
    while cur.is_op("^", "_"):
        if cur.take().text == "^":
            power = _script(cur, atom)
        else:
            base = _script(cur, atom)
    args = _arguments(cur, called, atom)
    if called == "log" and base is not None:
        args = (*args, base)
    elif base is not None:
        raise ParseError(f"subscript on {called}")
    if called == "lg" or (called == "log" and base is None and cur.common_log):
        called, args = "log", (*args, num(10))
    if called in _INVERSES and power == num(-1):
        return Call("a" + called, args)
    node = Op("pow", (Const("e"), args[0])) if called == "exp" and len(args) == 1 else Call(called, args)
    return node if power is None else Op("pow", (node, power))


def _script(cur: Cursor, atom: Callable[[Cursor], Node]) -> Node:
    if cur.is_op("-"):
        cur.take()
        return neg(atom(cur))
    return atom(cur)


def _root(cur: Cursor, called: str, atom: Callable[[Cursor], Node]) -> Node:
    index: Node | None = num(3) if called == "cbrt" else None
    if cur.peek().kind == "open" and cur.peek().text == "[":
        cur.take()
        index = cur.expr(cur)
        cur.expect("close", "]")
    radicand = atom(cur)
    if isinstance(radicand, Group):
        raise ParseError("a root of a list")
    return Call("sqrt", (radicand,)) if index is None or index == num(2) else Call("root", (radicand, index))


def _arguments(cur: Cursor, called: str, atom: Callable[[Cursor], Node]) -> tuple[Node, ...]:
    if cur.peek().kind == "open":
        inner = atom(cur)
        if isinstance(inner, Group):
            if called not in _LISTS and len(inner.items) == 1:
                return inner.items
            if called not in _LISTS and inner.open != "(":
                raise ParseError(f"{called} of a set")
            return inner.items
        return (inner,)
    cur.deeper()
    factors: list[Node] = []
    while cur.peek().kind in ("num", "name", "const", "cmd", "bar", "begin") or not factors:
        if cur.peek().kind == "bar" and cur.bars:
            break
        if factors and cur.peek().kind == "cmd" and cur.peek().text in ("pmod", "sum", "int", "prod", "lim"):
            break
        factors.append(_powered(cur, atom))
    cur.depth -= 1
    return (factors[0] if len(factors) == 1 else Op("mul", tuple(factors)),)


def _powered(cur: Cursor, atom: Callable[[Cursor], Node]) -> Node:
    node = neg(atom(cur)) if cur.skip_op("-") else atom(cur)
    while cur.is_op("^", "!", "deg"):
        sign = cur.take().text
        if sign == "!":
            node = Call("factorial", (node,))
        elif sign == "deg" or cur.skip_op("circ"):
            node = Op("deg", (node,))
        elif cur.peek().text == "{" and cur.ahead(1).text == "circ" and cur.ahead(2).text == "}":
            cur.at += 3
            node = Op("deg", (node,))
        else:
            node = Op("pow", (node, _script(cur, atom)))
    return node


def big_operator(cur: Cursor) -> Node:
    """sum, prod, int, lim with limits in either order; an integral ends at its differential."""
    kind = cur.take().text
    if kind not in ("sum", "prod", "int", "lim"):
        raise ParseError(f"\\{kind} is not read here")
    cur.deeper()
    low: Node | None = None
    high: Node | None = None
    while cur.is_op("^", "_"):
        if cur.take().text == "^":
            high = _limit(cur)
        else:
            low = _limit(cur)
    var: Node | None = None
    if isinstance(low, Rel) and kind in ("sum", "prod", "lim") and len(low.terms) == 2:
        var, low = low.terms
    if kind == "int":
        inner = cur.expr(cur)
        braced = isinstance(inner, Group) and len(inner.items) == 1
        body, var = _integrand(inner.items[0] if isinstance(inner, Group) and braced else inner)
    else:
        body = cur.product(cur)
    cur.depth -= 1
    return Big(kind, body, var, low, high)


def _limit(cur: Cursor) -> Node | None:
    """One limit: braced, or a single operand; x \\to 0 reads as a relation; braces around nothing as none."""
    if not (cur.peek().kind == "open" and cur.peek().text == "{"):
        return _single(cur)
    cur.take()
    if cur.peek().kind == "close":
        cur.take()
        return None
    node = cur.listing(cur)
    if cur.skip_op("to"):
        node = Rel(("to",), (node, cur.expr(cur)))
        if cur.skip_op("^"):
            cur.take()
    cur.expect("close", "}")
    return node


def _single(cur: Cursor) -> Node:
    token = cur.take()
    if token.kind == "num":
        return num(int(token.text)) if token.text.isdigit() else _bad(token.text)
    if token.kind == "name":
        return Sym(token.text)
    if token.kind == "const":
        return Const(token.text)
    return _bad(token.text)


def _bad(text: str) -> Node:
    raise ParseError(f"limit expected, found {text!r}")


def _integrand(node: Node) -> tuple[Node, Node]:
    """Body and variable of what stands behind an integral sign: the letters d x are taken out."""
    terms = list(node.args) if isinstance(node, Op) and node.kind == "add" else [node]
    last, var = _without_differential(terms[-1])
    if var is None:
        return node, Sym("x")  # no differential written: in x
    if isinstance(last, Num) and last == num(1) and len(terms) > 1:
        raise ParseError("a differential stands alone in a sum")
    terms[-1] = last
    return (terms[0] if len(terms) == 1 else Op("add", tuple(terms))), var


def _without_differential(node: Node) -> tuple[Node, Node | None]:
    if isinstance(node, Op) and node.kind == "neg":
        inner, var = _without_differential(node.args[0])
        return neg(inner), var
    if isinstance(node, Op) and node.kind == "div":
        top, var = _without_differential(node.args[0])
        return Op("div", (top, node.args[1])), var
    if not (isinstance(node, Op) and node.kind == "mul"):
        return node, None
    factors = list(node.args)
    for at in range(len(factors) - 1):
        if factors[at] == Sym("d") and isinstance(factors[at + 1], Sym):
            rest = factors[:at] + factors[at + 2 :]
            body: Node = num(1) if not rest else rest[0] if len(rest) == 1 else Op("mul", tuple(rest))
            return body, factors[at + 1]
    inner, var = _without_differential(factors[-1])
    if var is not None:
        return Op("mul", (*factors[:-1], inner)), var
    return node, None
