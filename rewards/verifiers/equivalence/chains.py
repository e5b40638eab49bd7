"""Whether the sides of an equation, or of an approximation, can be one value.

A side may be dropped only where it names the quantity or says the same: 284 = (3, 4) gives two values, and an
answer of two values is none. Works on typed answers; what cannot be decided here is no contradiction.
"""

from __future__ import annotations

from rewards.verifiers.equivalence.answers import Answer, Ordered, Scalar
from rewards.verifiers.equivalence.compare import equal
from rewards.verifiers.equivalence.equations import proportional
from rewards.verifiers.equivalence.forms import Form
from rewards.verifiers.equivalence.nodes import (
    BaseN,
    Const,
    Group,
    Matrix,
    Node,
    Op,
    Text,
    num,
    symbols,
    walk,
)
from rewards.verifiers.equivalence.probe import number
from rewards.verifiers.equivalence.rules import Rules, Verdict3
from rewards.verifiers.equivalence.scalars import form_of, same_value
from rewards.verifiers.equivalence.settings import EquivalenceSettings

_SETTINGS = EquivalenceSettings(allow_unevaluated=True, convert_units=True, ratios_reduced=True)
_NEAR = 0.01
"""Largest relative distance between a value and what is said to be about it."""


def differ(left: Node, right: Node) -> bool:
    """True where both are single values, and not the same."""
    forms = form_of(left), form_of(right)
    return all(isinstance(form, Form) for form in forms) and same_value(left, right, _SETTINGS) is False


def contradict(left: Answer, right: Answer, *, nearly: bool = False) -> bool:
    """True where the answers are not one value; nearly: where they are not even about the same."""
    left, right = _as_scalar(left, right), _as_scalar(right, left)
    return equal(left, right, _NEARLY if nearly else _EXACTLY) is False


def is_closed(node: Node) -> bool:
    """Whether a tree stands for a value of its own: it holds no symbol and no words."""
    return not symbols(node) and not any(isinstance(part, Text) for part in walk(node))


def in_tens(node: Node) -> Node:
    """A tree with its based numbers as plain ones: 58_9 - 18_9 = 40_9 is 53 - 17 = 36."""
    match node:
        case BaseN(digits=digits, base=base):
            return num(int(digits, base))
        case Op(kind=kind, args=args):
            return Op(kind, tuple(map(in_tens, args)))
        case _:
            return node


def is_work(left: Node, right: Node) -> bool:
    """True where the left side combines vectors or matrices: 2(1, 2) = (2, 4) and (1, 2)(3, 4) = 11."""
    if not isinstance(left, Op):
        return False
    if isinstance(right, Group | Matrix):
        return left.kind in ("mul", "add", "neg")
    return left.kind == "mul" and all(isinstance(arg, Group | Matrix) for arg in left.args)


def _as_scalar(answer: Answer, other: Answer) -> Answer:
    """1/2 = 1:2: a ratio as the number that it is."""
    match answer, other:
        case Ordered(label="ratio", parts=(Scalar(node=one), Scalar(node=two))), Scalar():
            return Scalar(Op("div", (one, two)))
        case _:
            return answer


def _exactly(left: Node, right: Node) -> Verdict3:
    if _is_set(left) or _is_set(right):
        return left == right
    return False if differ(left, right) else None


def _is_set(node: Node) -> bool:
    return isinstance(node, Const) and node.name not in ("pi", "e", "i", "oo")


def _nearly(left: Node, right: Node) -> Verdict3:
    if _is_set(left) or _is_set(right):
        return left == right
    a, b = number(left), number(right)
    if a is None or b is None:
        return None
    return None if abs(a - b) <= _NEAR * max(abs(a), abs(b)) else False


_EXACTLY = Rules(_exactly, proportional, _SETTINGS)
_NEARLY = Rules(_nearly, proportional, _SETTINGS)
