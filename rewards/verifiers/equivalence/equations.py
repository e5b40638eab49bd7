"""Equations and inequalities moved to one side: equal up to a constant factor."""

from __future__ import annotations

from fractions import Fraction

from rewards.verifiers.equivalence import forms as fm
from rewards.verifiers.equivalence.answers import Inequality
from rewards.verifiers.equivalence.forms import Form, TooComplexError
from rewards.verifiers.equivalence.nodes import Node
from rewards.verifiers.equivalence.rules import Rules, Verdict3
from rewards.verifiers.equivalence.scalars import form_of


def proportional(left: Node, right: Node) -> Verdict3:
    """Whether left = 0 and right = 0 are one equation: numerators equal up to a rational factor."""
    if left == right:
        return True
    one, two = form_of(left), form_of(right)
    if not (isinstance(one, Form) and isinstance(two, Form)):
        return None if "complex" in (one, two) else False
    ratio = constant_ratio(Form(cleared(one.num), fm.UNIT), Form(cleared(two.num), fm.UNIT))
    if ratio is not None:
        return True
    return None if one.opaque or two.opaque or _irrational(one) or _irrational(two) else False


def _irrational(form: Form) -> bool:
    """True where coefficients hold radicals or pi: a constant factor may then be no rational."""
    return any(key[0] in "pki" for mono in form.num for key, _ in mono)


def cleared(poly: fm.Poly) -> fm.Poly:
    """The polynomial without negative exponents: both sides multiplied by what stood below the line."""
    lowest: dict[str, fm.Exponent] = {}
    for mono in poly:
        for key, exponent in mono:
            if exponent < lowest.get(key, 0):
                lowest[key] = exponent
    if not lowest:
        return poly
    return fm.poly_mul(poly, {tuple(sorted((key, -low) for key, low in lowest.items())): Fraction(1)})


def constant_ratio(left: Form, right: Form) -> Fraction | None:
    """The rational c with left = c * right, or None where there is none (or it cannot be found)."""
    try:
        a, b = fm.poly_mul(left.num, right.den), fm.poly_mul(right.num, left.den)
    except TooComplexError:
        return None
    if not a or not b or a.keys() != b.keys():
        return None
    ratios = {a[mono] / b[mono] for mono in a}
    return ratios.pop() if len(ratios) == 1 else None


def same_inequality(gold: Inequality, answer: Inequality, rules: Rules) -> Verdict3:
    """Equal up to a positive factor, and both strict or neither."""
    if gold.strict != answer.strict:
        return False
    left, right = form_of(gold.difference), form_of(answer.difference)
    if isinstance(left, Form) and isinstance(right, Form):
        ratio = constant_ratio(left, right)
        return ratio is not None and ratio > 0
    return rules.same(gold.difference, answer.difference)
