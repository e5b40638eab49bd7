"""Algebra for workers: equality by numbers at high precision, confirmed by sympy where numbers prove little.

Trees become mpmath numbers, or sympy objects built node by node from a fixed list of constructors; no string
reaches sympify, parse_expr or eval. Analytic expressions that agree at several random points to 85 digits and
more are taken for equal: they could differ only by something below that, and the precision grows with the
digits of the literals. Steps (floor, mod, ...) and values only known at whole numbers need sympy's proof.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as _mpmath  # pyright: ignore[reportMissingTypeStubs]
import sympy as _sympy  # pyright: ignore[reportMissingTypeStubs]

from rewards.verifiers.equivalence import equations
from rewards.verifiers.equivalence.highprec import NoValueError, Number, evaluate
from rewards.verifiers.equivalence.nodes import Big, Call, Const, Node, Num, Op, Quantity, Sym, symbols, walk
from rewards.verifiers.equivalence.probe import coordinate
from rewards.verifiers.equivalence.scalars import same_value
from rewards.verifiers.equivalence.settings import EquivalenceSettings

mpmath: Any = _mpmath  # neither library carries types
mp: Any = _mpmath.mp
sympy: Any = _sympy
_POINTS = 8
_REAL_POINTS = 5
"""The points from here on are whole numbers: agreement there is no evidence for all values."""
_ENOUGH = 3
_BASE_DIGITS = 50
_MAX_DIGITS = 2000
_STEPS = frozenset({"floor", "ceil", "mod", "sgn", "gcd", "lcm"})


def same_for(settings: EquivalenceSettings) -> Callable[[Node, Node], bool | None]:
    """The full scalar oracle under these settings: cheap rules first, then numbers and algebra."""

    def same(left: Node, right: Node) -> bool | None:
        cheap = same_value(left, right, settings)
        if cheap is not None:
            return cheap
        if any(isinstance(part, Big) for node in (left, right) for part in walk(node)):
            return confirmed(left, right)
        verdict = agrees(left, right)
        return confirmed(left, right) if verdict is None else verdict

    return same


def proportional(left: Node, right: Node) -> bool | None:
    """The full oracle for equations: a constant quotient at several points, where forms do not decide."""
    cheap = equations.proportional(left, right)
    if cheap is not None:
        return cheap
    names = sorted(symbols(left) | symbols(right))
    ratios: list[Number] = []
    with mp.workdps(_BASE_DIGITS):
        for index in range(_REAL_POINTS):
            point = {name: _number(coordinate(name, index)) for name in names}
            try:
                ratio = evaluate(left, point) / evaluate(right, point)
            except (ArithmeticError, ValueError, TypeError):
                continue
            if mpmath.isfinite(ratio) and ratio != 0:
                ratios.append(ratio)
        if len(ratios) < _ENOUGH:
            return False
        return all(abs(ratio - ratios[0]) < abs(ratios[0]) * mp.mpf(10) ** -30 for ratio in ratios)


def agrees(left: Node, right: Node) -> bool | None:
    """False at one clear difference, or where no point has values; True after enough agreement of analytic
    trees; None where they agree and that proves little.
    """
    names = sorted(symbols(left) | symbols(right))
    steps = any(isinstance(p, Call) and p.name in _STEPS for node in (left, right) for p in walk(node))
    imaginary = not names or Const("i") in (*walk(left), *walk(right))
    good = whole = 0
    for index in range(_POINTS if names else 1):
        outcome = _agree_at(left, right, {name: coordinate(name, index) for name in names}, imaginary)
        if outcome is False:
            return False
        good += outcome is True and index < _REAL_POINTS
        whole += outcome is True and index >= _REAL_POINTS
    if good >= (_ENOUGH if names else 1) and not steps:
        return True
    return None if good + whole else False


def _agree_at(left: Node, right: Node, at: dict[str, Fraction], imaginary: bool) -> bool | None:
    """Agreement at one point; None where a side has no real value there.

    Rounding errors shrink as the precision grows, a true difference does not: no tolerance is involved.
    """
    digits = min(_BASE_DIGITS + _literal_digits(left) + _literal_digits(right), _MAX_DIGITS)
    gaps: list[Number] = []
    size = mp.mpf(0)
    for precision in (2 * digits, 4 * digits):
        with mp.workdps(precision):
            point = {name: _number(value) for name, value in at.items()}
            try:
                a, b = evaluate(left, point), evaluate(right, point)
            except (NoValueError, ArithmeticError, ValueError, TypeError):
                return None
            size = max(abs(a), abs(b))
            if not mpmath.isfinite(size):
                return None
            if not imaginary and max(abs(mpmath.im(a)), abs(mpmath.im(b))) > size * mp.mpf(10) ** -30:
                return None
            gaps.append(abs(a - b))
    coarse, fine = gaps
    if fine == 0:
        return True
    return bool(
        fine < coarse * mp.mpf(10) ** -digits if coarse else fine < size * mp.mpf(10) ** -(3 * digits)
    )


def _literal_digits(node: Node) -> int:
    """Digits that the numbers of a tree could hide below: their own, and those of their powers."""
    total = 0
    for part in walk(node):
        if isinstance(part, Num):
            total += _digits(part.value)
        elif isinstance(part, Op) and part.kind == "pow" and isinstance(part.args[-1], Num | Op):
            exponents = [abs(p.value) for p in walk(part.args[-1]) if isinstance(p, Num)]
            bases = [_digits(p.value) + 1 for p in walk(part.args[0]) if isinstance(p, Num)]
            total += int(min(max(exponents, default=Fraction(0)) * max(bases, default=1), _MAX_DIGITS))
    return total


def _digits(value: Fraction) -> int:
    return len(str(value.numerator)) + len(str(value.denominator)) - 2


def _number(value: Fraction) -> Number:
    return mp.mpf(value.numerator) / value.denominator


_SYMPY_FAILS = (
    *(
        ArithmeticError,
        AttributeError,
        LookupError,
        NotImplementedError,
        RecursionError,
        TypeError,
        ValueError,
    ),
    sympy.polys.polyerrors.BasePolynomialError,
)
"""What sympy raises on expressions it cannot simplify."""


def confirmed(left: Node, right: Node) -> bool:
    """True where sympy simplifies the difference to zero; symbols are taken for whole numbers or reals."""
    try:
        difference = to_sympy(left) - to_sympy(right)
        if difference.has(sympy.zoo, sympy.nan, sympy.oo):
            return False
        return bool(sympy.simplify(difference.doit()) == 0)
    except _SYMPY_FAILS:
        return False


Expr = Any  # sympy's expressions carry no types


def to_sympy(node: Node) -> Expr:
    """A sympy expression built from a fixed list of constructors; raises NoValueError for anything else."""
    match node:
        case Num(value=value):
            return sympy.Rational(value.numerator, value.denominator)
        case Sym(name=name):
            return sympy.Symbol(name, integer=True) if name in "kmn" else sympy.Symbol(name, real=True)
        case Const(name=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case Quantity(value=inner):
            return to_sympy(inner)
        case Op(kind=kind, args=args) if kind in _OPERATIONS:
            return _OPERATIONS[kind](*(to_sympy(arg) for arg in args))
        case Call(name=name, args=args) if name in _CALLS:
            return _CALLS[name](*(to_sympy(arg) for arg in args))
        case Big(kind="sum" | "prod" | "int", var=Sym() as var, body=body):
            return _big(node.kind, to_sympy(body), to_sympy(var), node.low, node.high)
        case _:
            raise NoValueError(repr(node)[:60])


def _big(kind: str, body: Expr, var: Expr, low: Node | None, high: Node | None) -> Expr:
    if low is None or high is None:
        raise NoValueError("no limits")
    ends = to_sympy(low), to_sympy(high)
    if kind != "int" and any(end.is_number and abs(end) > 10**4 for end in ends if end.is_finite):
        raise NoValueError("limits out of range")
    build = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}[kind]
    return build(body, (var, *ends))


def _add(*args: Expr) -> Expr:
    return sympy.Add(*args)


def _multiply(*args: Expr) -> Expr:
    return sympy.Mul(*args)


def _negate(arg: Expr) -> Expr:
    return sympy.Mul(-1, arg)


def _divide(top: Expr, bottom: Expr) -> Expr:
    return sympy.Mul(top, sympy.Pow(bottom, -1))


def _percent(arg: Expr) -> Expr:
    return sympy.Mul(arg, sympy.Rational(1, 100))


def _degrees(arg: Expr) -> Expr:
    return sympy.Mul(arg, sympy.pi, sympy.Rational(1, 180))


def _power(base: Expr, exponent: Expr) -> Expr:
    if base.is_number and exponent.is_number and abs(exponent) > 10**4:
        raise NoValueError("power out of range")
    return sympy.Pow(base, exponent)


def _factorial(arg: Expr) -> Expr:
    if arg.is_number and not arg <= 10**4:
        raise NoValueError("factorial out of range")
    return sympy.factorial(arg)


def _binomial(top: Expr, bottom: Expr) -> Expr:
    if top.is_number and not abs(top) <= 10**4:
        raise NoValueError("binomial out of range")
    return sympy.binomial(top, bottom)


_CONSTANTS: dict[str, Expr] = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
_OPERATIONS: dict[str, Callable[..., Expr]] = {
    "add": _add,
    "mul": _multiply,
    "neg": _negate,
    "div": _divide,
    "pow": _power,
    "percent": _percent,
    "deg": _degrees,
}
_CALLS: dict[str, Callable[..., Expr]] = {
    **{n: vars(sympy)[n] for n in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth")},
    **{
        n: vars(sympy)[n]
        for n in ("asin", "acos", "atan", "acot", "asinh", "acosh", "atanh", "sqrt", "floor")
    },
    **{"ln": sympy.log, "log": sympy.log, "abs": sympy.Abs, "ceil": sympy.ceiling, "sgn": sympy.sign},
    **{"root": sympy.real_root, "factorial": _factorial, "binom": _binomial, "mod": sympy.Mod},
    **{"max": sympy.Max, "min": sympy.Min},
}
