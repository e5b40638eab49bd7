"""Whether two scalar trees have the same value: exact forms first, decimals by rounding, probes to refute.

Answers True, False or None (not decided here: the worker's algebra goes on). Pure Python.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from rewards.verifiers.equivalence import forms as fm
from rewards.verifiers.equivalence.canon import NotScalarError, canon
from rewards.verifiers.equivalence.forms import Form, TooComplexError, UndefinedError
from rewards.verifiers.equivalence.nodes import Big, Const, Node, Num, Op, replace_symbol, symbols, walk
from rewards.verifiers.equivalence.probe import number, refuted
from rewards.verifiers.equivalence.settings import EquivalenceSettings

DOUBLE_DIGITS = 15
"""Significant digits a double keeps: digits beyond are noise of a computed answer."""


@lru_cache(maxsize=8192)
def form_of(node: Node) -> Form | str:
    """The exact form, or why there is none: "undefined", "complex" (too large) or "other" (no scalar)."""
    try:
        return canon(node)
    except UndefinedError:
        return "undefined"
    except TooComplexError:
        return "complex"
    except NotScalarError:
        return "other"


def same_value(gold: Node, answer: Node, settings: EquivalenceSettings) -> bool | None:
    """Equality of two scalars; True and False are proofs, but for decimals, which follow min_digits."""
    if "oo" in (_infinite(gold), _infinite(answer)):
        return gold == answer or _signed_infinity(gold) == _signed_infinity(answer) != 0
    gold, answer = _imaginary(gold, answer), _imaginary(answer, gold)
    left, right = form_of(gold), form_of(answer)
    if "undefined" in (left, right):
        return False
    if is_unevaluated(answer) and not settings.allow_unevaluated:
        return is_unevaluated(gold) and _same_form(left, right)
    if "other" in (left, right):
        return gold == answer
    if isinstance(left, Form) and isinstance(right, Form):
        exact = _compare_forms(left, right)
        if exact is True:
            return True
        if by_rounding(gold, answer, settings) or by_rounding(answer, gold, settings):
            return True
        if _within(gold, answer, settings.rel_tol):
            return True
        if exact is False:
            return False
    if gold == answer:
        return True
    return False if refuted(gold, answer) else None


def _same_form(left: Form | str, right: Form | str) -> bool:
    return isinstance(left, Form) and isinstance(right, Form) and _compare_forms(left, right) is True


def _imaginary(node: Node, other: Node) -> Node:
    """The tree with I read as i, where the other side writes i and no I."""
    if "I" not in symbols(node) or "I" in symbols(other) or Const("i") in walk(node):
        return node
    return replace_symbol(node, "I", Const("i")) if Const("i") in walk(other) else node


def _compare_forms(left: Form, right: Form) -> bool | None:
    a, b = left.rational(), right.rational()
    if a is not None and b is not None:
        return a == b
    try:
        difference = fm.add(left, right, -1)
        if fm.is_zero(difference):
            return True
    except TooComplexError:
        return None
    return None if difference.opaque else False


def _infinite(node: Node) -> str:
    return "oo" if any(part == Const("oo") for part in walk(node)) else ""


def _signed_infinity(node: Node) -> int:
    """1 for oo, also with + or % on it, -1 for -oo, 0 for anything else."""
    if node == Const("oo"):
        return 1
    if isinstance(node, Op) and len(node.args) == 1 and node.kind in ("neg", "percent"):
        return _signed_infinity(node.args[0]) * (-1 if node.kind == "neg" else 1)
    return 0


def is_unevaluated(node: Node) -> bool:
    """True where a sum, product, integral or limit is left standing."""
    return any(isinstance(part, Big) for part in walk(node))


def as_decimal(node: Node) -> Num | None:
    """A decimal literal, also in percent, times a power of ten, or negative; None for all else."""
    match node:
        case Num(digits=digits):
            return node if digits else None
        case Op(kind="percent", args=(inner,)):
            found = as_decimal(inner)
            return found and Num(found.value / 100, found.digits, found.scale - 2)
        case Op(kind="neg", args=(inner,)):
            found = as_decimal(inner)
            return found and Num(-found.value, found.digits, found.scale)
        case Op(kind="mul", args=(inner, Op(kind="pow", args=(Num(value=base), Num(value=power))))):
            found = as_decimal(inner)
            if found is None or base != 10 or power.denominator != 1 or abs(power) > 400:
                return None
            return Num(found.value * Fraction(10) ** int(power), found.digits, found.scale + int(power))
        case _:
            return None


def by_rounding(exact: Node, decimal: Node, settings: EquivalenceSettings) -> bool:
    """True where decimal is exact, which has no decimal, rounded to at least min_digits digits."""
    written = as_decimal(decimal)
    if written is None or written.digits < settings.min_digits or as_decimal(exact) is not None:
        return False
    if symbols(exact):
        return False
    form = form_of(exact)
    target = form.rational() if isinstance(form, Form) else None
    if target is None:
        approximate = number(exact)
        if approximate is None:
            return False
        target = Fraction(approximate)
    elif terminates(target):
        return False
    surplus = max(0, written.digits - DOUBLE_DIGITS)
    unit = Fraction(10) ** (written.scale + surplus)
    return abs(written.value - target) <= unit / 2 + abs(target) / 10**15


def terminates(value: Fraction) -> bool:
    """True where the rational has a finite decimal."""
    bottom = value.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    return bottom == 1


def _within(left: Node, right: Node, tolerance: float) -> bool:
    if not tolerance or symbols(left) or symbols(right):
        return False
    a, b = number(left), number(right)
    return a is not None and b is not None and abs(a - b) <= tolerance * max(abs(a), abs(b))
