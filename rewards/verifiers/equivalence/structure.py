"""Tree to typed answer: which list is a tuple, which bracket an interval, which equation names a value."""

from __future__ import annotations

from rewards.verifiers.equivalence.answers import (
    Answer,
    Items,
    Named,
    Ordered,
    Reals,
    Scalar,
    Table,
)
from rewards.verifiers.equivalence.brackets import system
from rewards.verifiers.equivalence.cursor import ParseError
from rewards.verifiers.equivalence.matrices import fold, has_matrix
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
    Quantity,
    Ratio,
    Rel,
    Seq,
    Sym,
    neg,
    num,
    walk,
)
from rewards.verifiers.equivalence.reals import (
    REAL_LINE,
    as_reals,
    intersect,
    interval,
    place,
    subtract,
    unite,
)
from rewards.verifiers.equivalence.relations import related


def interpret(node: Node) -> Answer:
    """The typed answer a tree stands for; raises ParseError where it stands for none."""
    match node:
        case Seq(items=items, joiner=joiner):
            return _listed(items, joiner)
        case Group():
            return _bracketed(node)
        case Rel(ops=ops, terms=terms):
            return related(ops, terms, interpret)
        case Matrix(rows=rows):
            return Table(rows)
        case Call(name="cases"):
            return interpret(system(node))
        case Call(name="piecewise", args=cells):
            return _pieces(cells)
        case Ratio(items=items):
            return Ordered("ratio", tuple(Scalar(item) for item in items))
        case BaseN(digits=digits, base=base):
            return Ordered(f"base {base}", (Scalar(num(int(digits, 36))),))
        case Quantity(value=value, unit=unit):
            return _quantity(interpret(value), unit)
        case Op(kind="union" | "inter" | "minus", args=(left, right)):
            return _combined(node.kind, interpret(left), interpret(right))
        case Op(kind="deg", args=(inner,)):
            return Scalar(inner, "deg")
        case Const(name="R"):
            return REAL_LINE
        case _:
            return _scalar(node)


def _pieces(cells: tuple[Node, ...]) -> Ordered:
    """A function defined piece by piece: values with their conditions, in any order."""
    pairs = zip(cells[::2], cells[1::2], strict=True)
    pieces = tuple(Ordered("piece", (interpret(value), interpret(condition))) for value, condition in pairs)
    return Ordered("piecewise", pieces, symmetric=True)


def _quantity(answer: Answer, unit: str) -> Answer:
    match answer:
        case Scalar(node=node, unit=""):
            return Scalar(node, unit)
        case Ordered(label="ratio", parts=parts) if unit in ("a.m.", "p.m.", "am", "pm") and len(parts) == 2:
            return _clock(parts, afternoon=unit[0] == "p")
        case Ordered(label="ratio"):
            return answer
        case _:
            raise ParseError("words behind a list")


def _clock(parts: tuple[Answer, ...], *, afternoon: bool) -> Answer:
    """08:34 p.m. is 20:34."""
    hour = parts[0]
    if not (isinstance(hour, Scalar) and isinstance(hour.node, Num) and 1 <= hour.node.value <= 12):
        raise ParseError("no time of day")
    return Ordered("ratio", (Scalar(num(hour.node.value % 12 + 12 * afternoon)), parts[1]))


def _scalar(node: Node) -> Answer:
    if has_matrix(node):
        return fold(node)
    spread = expand_signs(node)
    if len(spread) > 1:
        return Items("either", tuple(Scalar(one) for one in spread))
    for part in walk(node):
        if isinstance(part, Group | Seq | Rel | Matrix | Ratio | BaseN | Quantity):
            raise ParseError(f"{type(part).__name__} inside an expression")
        if part == DOTS:
            return Ordered("dots", (Scalar(node),)) if node == DOTS else _refuse_dots()
    if (
        isinstance(node, Op)
        and node.kind == "neg"
        and isinstance(node.args[0], Op)
        and node.args[0].kind == "deg"
    ):
        return Scalar(neg(node.args[0].args[0]), "deg")
    return Scalar(node)


def _refuse_dots() -> Answer:
    raise ParseError("an expression that trails off")


def expand_signs(node: Node) -> tuple[Node, ...]:
    """The values of an expression with plus-minus signs: all signs move together, mp against pm."""
    kinds = {part.kind for part in walk(node) if isinstance(part, Op)} & {"pm", "mp"}
    if not kinds:
        return (node,)
    return (_signed(node, plus=True), _signed(node, plus=False))


def _signed(node: Node, *, plus: bool) -> Node:
    match node:
        case Op(kind="pm" | "mp", args=args):
            positive = plus == (node.kind == "pm")
            last = _signed(args[-1], plus=plus)
            last = last if positive else neg(last)
            return last if len(args) == 1 else Op("add", (_signed(args[0], plus=plus), last))
        case Op(kind=kind, args=args):
            return Op(kind, tuple(_signed(arg, plus=plus) for arg in args))
        case Call(name=name, args=args):
            return Call(name, tuple(_signed(arg, plus=plus) for arg in args))
        case _:
            return node


def _listed(items: tuple[Node, ...], joiner: str) -> Answer:
    members = [_semicolon_member(item) if joiner == ";" else interpret(item) for item in items]
    if members and isinstance(members[0], Named) and all(isinstance(m, Scalar) for m in members[1:]):
        first = members[0]
        if isinstance(first.value, Scalar) and len(members) > 1:  # n = 1, 2, 3
            return Named(first.subject, Items("bare", (first.value, *members[1:])))
    subjects = {member.subject for member in members if isinstance(member, Named)}
    if len(subjects) == 1 and all(isinstance(member, Named) for member in members):
        values = [member.value for member in members if isinstance(member, Named)]
        return Named(next(iter(subjects)), _joined(values, joiner))
    return _joined(members, joiner)


def _semicolon_member(item: Node) -> Answer:
    """Between semicolons, commas make points: 1,2;3,4 is two points."""
    answer = interpret(item)
    return Items("round", answer.members) if isinstance(answer, Items) and answer.shape == "bare" else answer


def _joined(members: list[Answer], joiner: str) -> Answer:
    ranges = [member for member in members if isinstance(member, Reals) and not member.brackets]
    if joiner in ("or", "and") and len(ranges) == len(members) and _orderable(*ranges):
        total = ranges[0]
        for member in ranges[1:]:
            total = (unite if joiner == "or" else intersect)(total, member)
        return total
    return Items("either" if joiner == "or" else "bare", tuple(_flattened(members)))


def _flattened(members: list[Answer]) -> list[Answer]:
    """1, \\pm 2 is a list of three."""
    flat: list[Answer] = []
    for member in members:
        if isinstance(member, Items) and member.shape in ("bare", "either"):
            flat.extend(member.members)
        else:
            flat.append(member)
    return flat


def _bracketed(node: Group) -> Answer:
    if node.open == "{":
        if len(node.items) == 1 and isinstance(node.items[0], Rel) and node.items[0].ops[0] == "mid":
            raise ParseError("a set given by a condition")
        return Items("set", tuple(_flattened([interpret(item) for item in node.items])))
    endless = any(_is_infinite(item) for item in node.items)
    if len(node.items) == 2 and ((node.open == "(") != (node.close == ")") or endless):
        return interval(node.items[0], node.items[1], node.open == "[", node.close == "]")
    shape = "round" if node.open == "(" else "square"
    members = tuple(interpret(item) for item in node.items)
    if shape == "square" and len({len(m.members) for m in members if isinstance(m, Items)}) == 1:
        rows = [m.members for m in members if isinstance(m, Items) and m.shape == "square"]
        if len(rows) == len(members) and all(isinstance(cell, Scalar) for row in rows for cell in row):
            return Table(tuple(tuple(c.node for c in row if isinstance(c, Scalar)) for row in rows))
    return Items(shape, members)


def _is_infinite(node: Node) -> bool:
    return any(part == Const("oo") for part in walk(node))


def _combined(kind: str, left: Answer, right: Answer) -> Answer:
    if isinstance(left, Named):
        return Named(left.subject, _combined(kind, left.value, right))
    left, right = _set_of_one(left), _set_of_one(right)
    if isinstance(left, Items) and isinstance(right, Items) and left.shape == right.shape == "set":
        if kind == "union":
            return Items("set", left.members + right.members)
        return Ordered(kind, (left, right), symmetric=kind == "inter")
    one, two = as_reals(left), as_reals(right)
    if one is None or two is None or not _orderable(one, two):
        return Ordered(kind, (left, right), symmetric=kind != "minus")
    return {"union": unite, "inter": intersect, "minus": subtract}[kind](one, two)


def _set_of_one(answer: Answer) -> Answer:
    """Next to a set sign, a single value is meant as the set that holds it."""
    single = isinstance(answer, Scalar) and not isinstance(answer.node, Const | Sym)
    return Items("set", (answer,)) if single else answer


def _orderable(*sets: Reals) -> bool:
    ends = [end for one in sets for piece in one.pieces for end in (piece.low, piece.high)]
    return all(place(end) is not None for end in ends)
