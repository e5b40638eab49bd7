"""Exact values of functions at exact arguments, and opaque generators for the rest.

Evaluates closed arithmetic only under caps: factorials and binomials of small integers, gcd, lcm, mod, floor,
extremes, absolute values, sines and cosines at multiples of pi/12, logarithms of rationals split by primes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial, gcd, lcm

from rewards.verifiers.equivalence import forms as fm
from rewards.verifiers.equivalence.forms import ONE, UNIT, Form, UndefinedError
from rewards.verifiers.equivalence.settings import MAX_FACTORIAL

_QUOTIENTS: dict[str, tuple[str, str]] = {
    **{"tan": ("sin", "cos"), "cot": ("cos", "sin"), "sec": ("", "cos"), "csc": ("", "sin")},
    **{"tanh": ("sinh", "cosh"), "coth": ("cosh", "sinh"), "sech": ("", "cosh"), "csch": ("", "sinh")},
}
_SYMMETRIC = frozenset({"max", "min", "gcd", "lcm"})


def call(name: str, args: list[Form]) -> Form:
    """The form of a function call; raises UndefinedError outside the domain, TooComplexError past limits."""
    if name == "log":
        name = "ln"
    if name in _QUOTIENTS and len(args) == 1:
        over, under = _QUOTIENTS[name]
        top = call(over, args) if over else fm.constant(1)
        return fm.mul(top, fm.inverse(call(under, args)))
    values = [arg.rational() for arg in args]
    exact = [value for value in values if value is not None]
    if len(exact) == len(args) and name in _EXACT:
        found = _EXACT[name](exact)
        if found is not None:
            return fm.constant(found)
    if name == "ln" and len(args) == 1:
        return _logarithm(args[0])
    if name in ("sin", "cos") and len(args) == 1:
        return _circular(name, args[0])
    if name == "abs" and len(args) == 1:
        args = [_unsigned(args[0])]
    keys = [fm.key_of(arg) for arg in args]
    if name in _SYMMETRIC:
        keys = sorted(set(keys))
        if len(keys) == 1:
            return args[0]
    return fm.generator(f"@{name}[{','.join(keys)}]")


def _unsigned(form: Form) -> Form:
    """The form or its negative, whichever has the positive first coefficient: |x - y| is |y - x|."""
    if not form.num:
        return form
    first = form.num[min(form.num, key=repr)]
    return fm.mul(fm.constant(-1), form) if first < 0 else form


def _integers(values: list[Fraction]) -> list[int] | None:
    return [int(v) for v in values] if all(v.denominator == 1 for v in values) else None


def _factorial(values: list[Fraction]) -> Fraction | None:
    whole = _integers(values)
    if whole is None or len(whole) != 1:
        return None
    if whole[0] < 0:
        raise UndefinedError("factorial of a negative integer")
    if whole[0] > MAX_FACTORIAL:
        return None
    return Fraction(factorial(whole[0]))


def _binomial(values: list[Fraction]) -> Fraction | None:
    whole = _integers(values)
    if whole is None or len(whole) != 2 or not 0 <= whole[0] <= 10 * MAX_FACTORIAL or whole[1] < 0:
        return None
    return Fraction(comb(whole[0], whole[1]))


def _common_divisor(values: list[Fraction]) -> Fraction | None:
    if not values:
        return None
    bottom = lcm(*(v.denominator for v in values))
    return Fraction(gcd(*(int(v * bottom) for v in values)), bottom)


def _common_multiple(values: list[Fraction]) -> Fraction | None:
    if not values:
        return None
    bottom = lcm(*(v.denominator for v in values))
    return Fraction(lcm(*(int(v * bottom) for v in values)), bottom)


def _remainder(values: list[Fraction]) -> Fraction | None:
    if len(values) != 2:
        return None
    if not values[1]:
        raise UndefinedError("remainder by zero")
    return values[0] % values[1]


def _only(function: Callable[[Fraction], Fraction]) -> Callable[[list[Fraction]], Fraction | None]:
    return lambda values: function(values[0]) if len(values) == 1 else None


_EXACT: dict[str, Callable[[list[Fraction]], Fraction | None]] = {
    "factorial": _factorial,
    "binom": _binomial,
    "gcd": _common_divisor,
    "lcm": _common_multiple,
    "mod": _remainder,
    "max": lambda values: max(values) if values else None,
    "min": lambda values: min(values) if values else None,
    "abs": _only(abs),
    "floor": _only(lambda v: Fraction(v.numerator // v.denominator)),
    "ceil": _only(lambda v: Fraction(-(-v.numerator // v.denominator))),
    "sgn": _only(lambda v: Fraction((v > 0) - (v < 0))),
}


def _logarithm(arg: Form) -> Form:
    """ln of a term: rationals by their primes, e by its exponent."""
    if not arg.num:
        raise UndefinedError("logarithm of zero")
    if len(arg.num) == 1 and arg.den == UNIT:
        ((mono, coef),) = arg.num.items()
        known = coef > 0 and all(key in ("ke", "kpi") or key[0] == "p" for key, _ in mono)
        top, bottom = fm.factorize(abs(coef.numerator)), fm.factorize(coef.denominator)
        if known and top is not None and bottom is not None:
            out = fm.constant(0)
            for prime, count in [*top.items(), *((p, -c) for p, c in bottom.items())]:
                out = fm.add(out, fm.mul(fm.constant(count), fm.generator(f"@ln[{prime}]")))
            for key, exponent in mono:
                part = fm.constant(1) if key == "ke" else fm.generator(f"@ln[{key.removeprefix('p')}]")
                out = fm.add(out, fm.mul(fm.constant(exponent), part))
            return out
    return fm.generator(f"@ln[{fm.key_of(arg)}]")


def _circular(name: str, arg: Form) -> Form:
    """sin and cos: table at multiples of pi/12, shifts by pi/2 taken out, odd and even used."""
    if arg.den != UNIT:
        return fm.generator(f"@{name}[{fm.key_of(arg)}]")
    turn = arg.num.get((("kpi", 1),), Fraction(0))  # arg = turn * pi + rest
    rest: fm.Poly = {mono: coef for mono, coef in arg.num.items() if mono != (("kpi", 1),)}
    if not rest:
        return _table(name, turn)
    quarter = (2 * turn).numerator // (2 * turn).denominator
    left = turn - Fraction(quarter, 2)
    if left:
        rest[(("kpi", 1),)] = left
    sign = 1
    for _ in range(quarter % 4):  # sin(u + pi/2) = cos u, cos(u + pi/2) = -sin u
        name, sign = ("cos", sign) if name == "sin" else ("sin", -sign)
    inner = Form(rest, UNIT)
    if rest[min(rest, key=repr)] < 0:
        inner = fm.mul(fm.constant(-1), inner)
        sign = -sign if name == "sin" else sign
    return fm.mul(fm.constant(sign), fm.generator(f"@{name}[{fm.key_of(inner)}]"))


def _table(name: str, turn: Fraction) -> Form:
    """sin or cos of turn * pi."""
    if name == "cos":
        turn += Fraction(1, 2)
    turn %= 2
    sign = 1
    if turn >= 1:
        turn, sign = turn - 1, -1
    if turn > Fraction(1, 2):
        turn = 1 - turn
    half = Fraction(1, 2)
    values: dict[Fraction, fm.Poly] = {
        Fraction(0): {},
        Fraction(1, 12): {(("p2", half), ("p3", half)): Fraction(1, 4), (("p2", half),): Fraction(-1, 4)},
        Fraction(1, 6): {ONE: half},
        Fraction(1, 4): {(("p2", half),): half},
        Fraction(1, 3): {(("p3", half),): half},
        Fraction(5, 12): {(("p2", half), ("p3", half)): Fraction(1, 4), (("p2", half),): Fraction(1, 4)},
        Fraction(1, 2): {ONE: Fraction(1)},
    }
    if turn not in values:
        return fm.mul(fm.constant(sign), fm.generator(f"@sinpi[{turn}]"))
    return fm.mul(fm.constant(sign), Form(values[turn], UNIT))
