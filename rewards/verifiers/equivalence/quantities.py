"""Single values with their units, degrees and percent signs, and their constants of integration."""

from __future__ import annotations

from fractions import Fraction

from rewards.verifiers.equivalence.answers import Scalar
from rewards.verifiers.equivalence.forms import Form
from rewards.verifiers.equivalence.lexicon import UNIT_FACTORS, UNIT_NAMES
from rewards.verifiers.equivalence.nodes import Node, Num, Op, Sym, num, replace_symbol, symbols
from rewards.verifiers.equivalence.rules import Rules, Verdict3
from rewards.verifiers.equivalence.scalars import form_of

_COMPOSED = {"mi/h": "mph", "km/h": "kph"}


def same_quantity(gold: Scalar, answer: Scalar, rules: Rules) -> Verdict3:
    """Equal values in equal units, under the conventions for units, percent and reduced fractions."""
    settings = rules.settings
    gold, answer = _named_once(gold), _named_once(_same_constant(gold, answer))
    if settings.reduced and _reducible(answer.node):
        return False
    if "deg" in (gold.unit, answer.unit):
        return _degrees(gold, answer, rules)
    if gold.unit and not answer.unit and settings.units_required and gold.unit != "unit":
        return False
    if gold.unit and answer.unit and gold.unit != answer.unit and "unit" not in (gold.unit, answer.unit):
        factor = _conversion(answer.unit, gold.unit) if settings.convert_units else None
        if factor is None:
            return False
        return rules.same(gold.node, Op("mul", (answer.node, num(factor))))
    verdict = rules.same(gold.node, answer.node)
    if verdict is not True and settings.percent == "lenient":
        bare = _without_percent(gold.node), _without_percent(answer.node)
        return rules.same(*bare) if bare != (gold.node, answer.node) else verdict
    return verdict


def _named_once(quantity: Scalar) -> Scalar:
    """The quantity with one name for a unit that has two: miles per hour are mph."""
    unit = _COMPOSED.get(quantity.unit)
    return quantity if unit is None else Scalar(quantity.node, unit)


def _same_constant(gold: Scalar, answer: Scalar) -> Scalar:
    """The answer with its constant of integration in the gold's letter case: C for c."""
    names = symbols(gold.node), symbols(answer.node)
    for one, two in (("c", "C"), ("C", "c")):
        renamed = one in names[0] and names[1] == names[0] - {one} | {two}
        if renamed and _is_added_constant(gold.node, one) and _is_added_constant(answer.node, two):
            return Scalar(replace_symbol(answer.node, two, Sym(one)), answer.unit)
    return answer


def _is_added_constant(node: Node, name: str) -> bool:
    """Whether a symbol stands once, to the first power, in one of several terms, as in y = y_p + c y_h.

    A function or a power must stand beside it: in a + c the letter is more likely a length than a constant.
    """
    form = form_of(node)
    if not isinstance(form, Form) or len(form.num) < 2:
        return False
    powers = [(key, power) for mono in form.num for key, power in mono if f"x{name}" in key]
    curved = any(key[0] == "@" or power != 1 for mono in form.num for key, power in mono)
    return curved and powers == [(f"x{name}", 1)]


def _degrees(gold: Scalar, answer: Scalar, rules: Rules) -> Verdict3:
    """60 degrees equals a bare 60 and pi/3; a length never."""
    other = {gold.unit, answer.unit} - {"deg"}
    if other & {"degC", "degF"}:
        return rules.same(gold.node, answer.node)
    if other - {"", "rad"}:
        return False
    bare_allowed = rules.settings.degrees_optional or not other
    plain = rules.same(gold.node, answer.node) if bare_allowed and "rad" not in other else False
    if plain is True or not other or (rules.settings.units_required and gold.unit and not answer.unit):
        return plain
    left = Op("deg", (gold.node,)) if gold.unit == "deg" else gold.node
    right = Op("deg", (answer.node,)) if answer.unit == "deg" else answer.node
    return rules.same(left, right)


def _conversion(source: str, target: str) -> Fraction | None:
    """How many targets make one source; None where they measure different things."""
    for power in ("", "^2", "^3"):
        one, two = source.removesuffix(power), target.removesuffix(power)
        raised = source.endswith(power) and target.endswith(power)
        known = one in UNIT_FACTORS and two in UNIT_FACTORS
        if raised and known and _DIMENSIONS[one] == _DIMENSIONS[two]:
            return (Fraction(*UNIT_FACTORS[one]) / Fraction(*UNIT_FACTORS[two])) ** int(power[1:] or "1")
    return None


_DIMENSIONS = {unit: dimension for dimension, unit in UNIT_NAMES.values()}


def _reducible(node: Node) -> bool:
    inner = node.args[0] if isinstance(node, Op) and node.kind == "neg" else node
    if not (isinstance(inner, Op) and inner.kind == "div"):
        return False
    top, bottom = inner.args
    if not (isinstance(top, Num) and isinstance(bottom, Num)):
        return False
    quotient = top.value / bottom.value if bottom.value else Fraction(0)
    return quotient.denominator != bottom.value


def _without_percent(node: Node) -> Node:
    return node.args[0] if isinstance(node, Op) and node.kind == "percent" else node
