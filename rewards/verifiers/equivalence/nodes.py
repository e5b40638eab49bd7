"""The typed tree an answer is read into: numbers, symbols, operations, brackets, lists, relations, text.

Frozen, hashable, comparable with ==. Knows nothing of text or of comparison. A tree is data: it is evaluated
only by this package's own capped arithmetic, or turned into numbers in a worker, never by eval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Num:
    """An exact rational. digits is the count of significant digits of a decimal literal, 0 for others."""

    value: Fraction
    digits: int = 0
    scale: int = 0
    """Decimal exponent of the last digit written (-2 in 3.14); meaningful when digits > 0."""


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, subscript and primes included in the name."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """pi, e, i, oo (infinity), empty, or a number set: R, N, Z, Q, C."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """Arithmetic: add, mul, div, pow, neg, pm, mp, percent, deg, union, inter, minus (of sets)."""

    kind: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of arguments: sin, root, abs, binom, det, ... or an unknown one such as f."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Big:
    """sum, prod, int or lim with its body, bound variable and limits (None where not given)."""

    kind: str
    body: Node
    var: Node | None
    low: Node | None
    high: Node | None


@dataclass(frozen=True, slots=True)
class Group:
    """Members in brackets of a written kind: () [] (] [) {} ][ ..., read as tuple, interval or set later."""

    open: str
    close: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """A bare list: members joined by comma, semicolon, "and" or "or"; dots is a list that trails off."""

    items: tuple[Node, ...]
    joiner: str = ","


@dataclass(frozen=True, slots=True)
class Rel:
    """A chain a < b <= c: len(ops) == len(terms) - 1; ops from = < > <= >= != ~ in notin."""

    ops: tuple[str, ...]
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of equal length."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """a:b or a:b:c, also a time of day."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BaseN:
    """Digits with a base as subscript, 204_5."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with words behind it: unit is a known unit's name, or the words themselves."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Text:
    """Words: casefolded where settings say so, at comparison."""

    text: str


Node = Num | Sym | Const | Op | Call | Big | Group | Seq | Rel | Matrix | Ratio | BaseN | Quantity | Text

OTHERWISE = Text("otherwise")
"""The last condition of a function defined piece by piece."""
UNNAMED = Sym("")
"""What a relation speaks of whose left side was left out: "> 3"."""
DOTS = Sym("\\dots")
"""Stands in a list for "and so on": such a list is compared as written only."""


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below, in reading order."""
    match node:
        case Op(args=args) | Call(args=args):
            return args
        case Group(items=items) | Seq(items=items) | Ratio(items=items):
            return items
        case Rel(terms=terms):
            return terms
        case Matrix(rows=rows):
            return tuple(cell for row in rows for cell in row)
        case Quantity(value=value):
            return (value,)
        case Big(body=body, var=var, low=low, high=high):
            return tuple(part for part in (body, var, low, high) if part is not None)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, parents first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def symbols(node: Node) -> frozenset[str]:
    """The names of the free symbols: the variable a sum, an integral or a limit binds is none."""
    if isinstance(node, Sym):
        return frozenset((node.name,))
    found: set[str] = set()
    for child in children(node):
        found |= symbols(child)
    if isinstance(node, Big) and isinstance(node.var, Sym):
        found.discard(node.var.name)
    return frozenset(found)


def num(value: int | Fraction) -> Num:
    """An exact number node."""
    return Num(Fraction(value))


def neg(node: Node) -> Node:
    """The negative, folded into a literal number."""
    if isinstance(node, Num):
        return Num(-node.value, node.digits, node.scale)
    if isinstance(node, Op) and node.kind == "neg":
        return node.args[0]
    return Op("neg", (node,))


def replace_symbol(node: Node, name: str, by: Node) -> Node:
    """The expression with another node in place of a symbol; operators and calls only are entered."""
    match node:
        case Sym(name=found) if found == name:
            return by
        case Op(kind=kind, args=args):
            return Op(kind, tuple(replace_symbol(arg, name, by) for arg in args))
        case Call(name=called, args=args):
            return Call(called, tuple(replace_symbol(arg, name, by) for arg in args))
        case _:
            return node
