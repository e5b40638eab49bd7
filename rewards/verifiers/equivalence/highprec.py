"""Trees to mpmath numbers at the working precision, with guards on magnitude; for workers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mpmath as _mpmath  # pyright: ignore[reportMissingTypeStubs]

from rewards.verifiers.equivalence.nodes import Call, Const, Node, Num, Op, Quantity, Sym

LIMIT = 10**5
"""Largest binary exponent, and largest argument of a factorial, that is evaluated."""

mpmath: Any = _mpmath  # mpmath and its numbers carry no types
mp: Any = _mpmath.mp
Number = Any


class NoValueError(ValueError):
    """No trustworthy value at this point."""


def evaluate(node: Node, point: Mapping[str, Number]) -> Number:
    """The value of a scalar tree; raises NoValueError, or mpmath's ValueError and ArithmeticError."""
    match node:
        case Num(value=value):
            return mp.mpf(value.numerator) / value.denominator
        case Sym(name=name):
            return point[name]
        case Const(name=name):
            return _constant(name)
        case Quantity(value=inner):
            return evaluate(inner, point)
        case Op(kind=kind, args=args):
            return _operation(kind, [evaluate(arg, point) for arg in args])
        case Call(name=name, args=args):
            return _call(name, [evaluate(arg, point) for arg in args])
        case _:
            raise NoValueError(type(node).__name__)


def _constant(name: str) -> Number:
    known = {"pi": mp.pi, "e": mp.e, "i": mp.mpc(0, 1)}
    if name not in known:
        raise NoValueError(name)
    return +known[name]


def _operation(kind: str, parts: list[Number]) -> Number:
    match kind:
        case "add":
            return mpmath.fsum(parts)
        case "mul":
            return mpmath.fprod(parts)
        case "neg":
            return -parts[0]
        case "div":
            return parts[0] / parts[1]
        case "pow":
            return _power(parts[0], parts[1])
        case "percent":
            return parts[0] / 100
        case "deg":
            return parts[0] * mp.pi / 180
        case _:
            raise NoValueError(kind)


def _power(base: Number, exponent: Number) -> Number:
    if base == 0:
        if exponent == 0 or mpmath.re(exponent) <= 0:
            raise NoValueError("0 to a power that is not positive")
        return mp.mpf(0)
    if abs(exponent) > LIMIT or abs(exponent) * abs(mpmath.log(base)) > LIMIT:
        raise NoValueError("power out of range")
    return mpmath.power(base, exponent)


def _bounded(function: Callable[[Number], Number]) -> Callable[..., Number]:
    def apply(arg: Number) -> Number:
        if abs(arg) > LIMIT:
            raise NoValueError("argument out of range")
        return function(arg)

    return apply


def _root(base: Number, index: Number) -> Number:
    if mpmath.isint(index) and int(index) % 2 and mpmath.im(base) == 0 and base < 0:
        return -_power(-base, 1 / index)
    return _power(base, 1 / index) if base != 0 else mp.mpf(0)


def _real(function: Callable[..., Number]) -> Callable[..., Number]:
    def apply(*args: Number) -> Number:
        if any(abs(mpmath.im(arg)) > abs(arg) * mp.mpf(10) ** (10 - mp.dps) for arg in args):
            raise NoValueError("not real")
        return function(*(mpmath.re(arg) for arg in args))

    return apply


def _stepped(function: Callable[[Number], Number]) -> Callable[..., Number]:
    def apply(arg: Number) -> Number:
        if abs(arg) > mp.mpf(10) ** (mp.dps - 10):
            raise NoValueError("a step out of range")
        return function(arg)

    return _real(apply)


def _mod(left: Number, right: Number) -> Number:
    if abs(left) > mp.mpf(10) ** (mp.dps - 10):
        raise NoValueError("a remainder out of range")
    return left % right


def _log(arg: Number, base: Number | None = None) -> Number:
    return mpmath.log(arg) if base is None else mpmath.log(arg) / mpmath.log(base)


def _binomial(top: Number, bottom: Number) -> Number:
    if abs(top) > LIMIT:
        raise NoValueError("argument out of range")
    return mpmath.binomial(top, bottom)


_LIBRARY: Mapping[str, Callable[[Number], Number]] = vars(_mpmath)
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    **{n: _bounded(_LIBRARY[n]) for n in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{n: _bounded(_LIBRARY[n]) for n in ("sinh", "cosh", "tanh", "coth", "sech", "csch")},
    **{n: _LIBRARY[n] for n in ("asin", "acos", "atan", "acot", "asec", "acsc", "asinh", "acosh", "atanh")},
    **{"ln": _log, "log": _log, "abs": abs, "root": _root, "re": mpmath.re, "im": mpmath.im},
    **{"sqrt": mpmath.sqrt, "factorial": _bounded(mpmath.factorial), "sgn": _real(mpmath.sign)},
    **{"binom": _binomial},
    **{"floor": _stepped(mpmath.floor), "ceil": _stepped(mpmath.ceil), "mod": _real(_mod)},
    **{"max": _real(max), "min": _real(min)},
}


def _call(name: str, args: list[Number]) -> Number:
    function = _FUNCTIONS.get(name)
    if function is not None:
        return function(*args)
    if len(name) > 1:
        raise NoValueError(name)
    # an unknown function such as f: any fixed smooth one serves to tell its arguments apart
    weights = [mp.mpf(ord(name)) / 97 + k for k in range(len(args))]
    return mpmath.sin(mpmath.fsum(w * arg for w, arg in zip(weights, args, strict=True)))
