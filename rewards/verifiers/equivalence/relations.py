"""Chains of relations to typed answers: a name with its value, an equation, an interval, a statement."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from rewards.verifiers.equivalence.answers import (
    Answer,
    Equation,
    Inequality,
    Named,
    Ordered,
    Reals,
    Scalar,
)
from rewards.verifiers.equivalence.chains import contradict, differ, in_tens, is_closed, is_work
from rewards.verifiers.equivalence.cursor import ParseError
from rewards.verifiers.equivalence.forms import Form
from rewards.verifiers.equivalence.nodes import (
    UNNAMED,
    Call,
    Const,
    Group,
    Matrix,
    Node,
    Op,
    Ratio,
    Seq,
    Sym,
    neg,
    num,
    symbols,
)
from rewards.verifiers.equivalence.probe import number
from rewards.verifiers.equivalence.reals import REAL_LINE, from_points, interval, subtract, unite
from rewards.verifiers.equivalence.scalars import form_of

Read = Callable[[Node], Answer]
_ORDER = {"<": True, ">": True, "<=": False, ">=": False}
"""Relation -> strict?"""
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def related(ops: tuple[str, ...], terms: tuple[Node, ...], read: Read) -> Answer:
    """The answer a chain of relations gives; read turns a part of it into an answer of its own."""
    kinds = set(ops)
    if kinds <= {"="}:
        return _equality(terms, read)
    if kinds <= {"=", "~"}:
        return _approximate(ops, terms, read)
    if kinds <= _ORDER.keys() and len(ops) <= 2:
        return _ordering(ops, terms, read)
    if ops == ("in",):
        value = read(terms[1])
        return Named(terms[0], value) if symbols(terms[0]) else Ordered("in", (read(terms[0]), value))
    if ops == ("!=",) and _is_subject(terms[0]) and number(terms[1]) is not None:
        return Named(terms[0], subtract(REAL_LINE, from_points([terms[1]])))
    symmetric = len(ops) == 1 and ops[0] in ("!=", "equiv", "cong", "parallel", "perp")
    return Ordered(" ".join(ops), tuple(read(term) for term in terms), symmetric=symmetric)


def _is_subject(node: Node) -> bool:
    """True for what can be given a value: a symbol, f(x), |AB|, AB, angle ABC, a ratio of such."""
    match node:
        case Sym():
            return True
        case Call(name="abs", args=(inner,)):
            return _is_label(inner)
        case Call(name=name, args=args):
            return len(name) == 1 and not any(isinstance(arg, Group) for arg in args)
        case Group(items=items) | Ratio(items=items):
            return all(_is_subject(item) for item in items)
        case Op(kind="mul", args=(Sym(name="Delta"), Sym())):
            return True
        case Op(kind="mul" | "div", args=args):
            return all(_is_label(arg) for arg in args)
        case _:
            return False


def _is_applied(node: Node) -> bool:
    """f(2), whose value only an equation can give."""
    return isinstance(node, Call) and len(node.name) == 1


def _is_label(node: Node) -> bool:
    """Capital letters set side by side name a segment or an angle."""
    if isinstance(node, Op) and node.kind == "mul":
        return all(_is_label(arg) for arg in node.args)
    return isinstance(node, Sym) and (node.name[:1].isupper() or node.name in ("angle", "triangle"))


def _equality(terms: tuple[Node, ...], read: Read) -> Answer:
    subject, last = terms[0], terms[-1]
    if not symbols(subject) and not _is_applied(subject) and _is_subject(last) and len(terms) == 2:
        subject, last = last, subject
    for middle in terms[1:-1]:
        if not isinstance(middle, Sym) and _contradict(middle, last, read):
            raise ParseError("a chain that contradicts itself")
    if not symbols(subject) and not symbols(last) and not _is_applied(subject):
        if _contradict(subject, last, read):
            raise ParseError("an equation that does not hold")
        return read(last)
    if isinstance(subject, Group) and not _is_subject(subject):
        raise ParseError("values on the left of an equation")
    if isinstance(subject, Ratio) or (isinstance(last, Group | Seq | Matrix | Op) and _names_set(last)):
        return Named(subject, read(last))
    if _is_subject(subject) and not (isinstance(subject, Sym) and subject.name in symbols(last)):
        value = read(last)
        varies = isinstance(value, Scalar) and (symbols(subject) or symbols(last))
        return Named(subject, value, _difference(subject, last) if varies else None)
    if len(terms) > 2:
        raise ParseError("a chain of equations")
    return Equation(_difference(subject, last))


def _contradict(left: Node, right: Node, read: Read) -> bool:
    """True where the sides are not one value; only expressions are compared where symbols stand in them."""
    if is_closed(left) and is_closed(right):
        return not is_work(left, right) and contradict(read(in_tens(left)), read(in_tens(right)))
    return differ(left, right)


def _names_set(node: Node) -> bool:
    return not isinstance(node, Op) or node.kind in ("union", "inter", "minus")


def _difference(left: Node, right: Node) -> Node:
    return Op("add", (left, neg(right)))


def _approximate(ops: tuple[str, ...], terms: tuple[Node, ...], read: Read) -> Answer:
    """Keeps the exact side: x = sqrt(3)/3 ~ 0.577 is sqrt(3)/3, once 0.577 is near it."""
    cut = ops.index("~")
    exact, rough = terms[cut], terms[-1]
    if cut == 0 and symbols(exact):
        return _equality((exact, rough), read)
    if (
        is_closed(exact)
        and is_closed(rough)
        and contradict(read(in_tens(exact)), read(in_tens(rough)), nearly=True)
    ):
        raise ParseError("an approximation that is far off")
    head = terms[: cut + 1]
    return _equality(head, read) if len(head) > 1 else read(exact)


def _ordering(ops: tuple[str, ...], terms: tuple[Node, ...], read: Read) -> Answer:
    if len(ops) == 2:
        if ops[0][0] != ops[1][0]:
            raise ParseError("a chain of inequalities that turns")
        if ops[0][0] == ">":
            terms, ops = terms[::-1], (_FLIPPED[ops[1]], _FLIPPED[ops[0]])
        low, middle, high = terms
        if symbols(low) or symbols(high) or not symbols(middle):
            parts = tuple(read(term) for term in terms)
            return Ordered(" ".join(ops), parts)
        return Named(middle, interval(low, high, not _ORDER[ops[0]], not _ORDER[ops[1]], inequality=True))
    (op,) = ops
    left, right = terms
    if not symbols(left) and symbols(right):
        left, right, op = right, left, _FLIPPED[op]
    if not symbols(right) and symbols(left):
        bounded = _half_line(left, right, op)
        if bounded is not None:
            return bounded
    larger, smaller = (left, right) if op[0] == ">" else (right, left)
    return Inequality(_difference(larger, smaller), _ORDER[op])


def _half_line(left: Node, right: Node, op: str) -> Answer | None:
    """x > 3 as a ray; a x + b > c and |a x + b| > c in one symbol are solved for it."""
    if isinstance(left, Call) and left.name == "abs" and not _is_subject(left):
        return _distance(left.args[0], right, op)
    if not _is_subject(left):
        solved = _linear(_difference(left, right))
        if solved is None:
            return None
        name, slope, root = solved
        left, right = Sym(name), root
        op = _FLIPPED[op] if slope < 0 else op
    ray = _above(right, op) if op[0] == ">" else _below(right, op)
    return ray if left == UNNAMED else Named(left, ray)


def _above(end: Node, op: str) -> Reals:
    return interval(end, Const("oo"), op == ">=", False, inequality=True)


def _below(end: Node, op: str) -> Reals:
    return interval(neg(Const("oo")), end, False, op == "<=", inequality=True)


def _distance(inner: Node, radius: Node, op: str) -> Answer | None:
    """|a x + b| < c as the interval around the root of a x + b, |a x + b| > c as what lies outside it."""
    solved, size = _linear(inner), number(radius)
    if solved is None or size is None or size < 0 or (size == 0 and op == "<"):
        return None
    name, slope, root = solved
    reach = Op("div", (radius, num(abs(slope))))
    low, high = _difference(root, reach), Op("add", (root, reach))
    if op[0] == "<":
        within = interval(low, high, op == "<=", op == "<=", inequality=True)
        return Named(Sym(name), within)
    return Named(Sym(name), unite(_below(low, _FLIPPED[op]), _above(high, op)))


def _linear(difference: Node) -> tuple[str, Fraction, Node] | None:
    """(symbol, slope, root) of a linear form with rational coefficients in one symbol."""
    form = form_of(difference)
    names = symbols(difference)
    if not isinstance(form, Form) or len(names) != 1 or form.den != {(): Fraction(1)}:
        return None
    (name,) = names
    slope = form.num.get((("x" + name, 1),), Fraction(0))
    offset = form.num.get((), Fraction(0))
    if not slope or len(form.num) > 1 + (() in form.num):
        return None
    return name, slope, num(-offset / slope)
