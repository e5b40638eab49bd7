"""Numeric probing in plain floats: a quick refuter at fixed points, with an error bound beside every value.

A value is (complex, bound on its absolute error). Two trees are refuted where their values differ by far more
than their errors at a point where both are defined. Agreement here is never a proof.
"""

from __future__ import annotations

import cmath
import hashlib
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from rewards.verifiers.equivalence.nodes import Call, Const, Node, Num, Op, Quantity, Sym, symbols, walk

Value = tuple[complex, float]
Env = Mapping[str, complex]
EPS = 2.3e-16
POINTS = 8
_HUGE = 1e150


class UnclearError(ValueError):
    """No trustworthy value at this point: undefined, out of range, or lost to rounding."""


@lru_cache(maxsize=4096)
def coordinate(name: str, index: int) -> Fraction:
    """The value of a symbol at a point: 0-2 positive, 3-4 of either sign, 5-7 whole numbers from 2 to 9."""
    digest = hashlib.blake2b(f"{name}#{index}".encode(), digest_size=8).digest()
    draw = int.from_bytes(digest, "big")
    if index >= 5:
        return Fraction(2 + draw % 8)
    value = Fraction(3 + draw % 2003, 707)
    return -value if index >= 3 and draw >> 32 & 1 else value


def value(node: Node, env: Env) -> Value:
    """The value of a scalar tree with its symbols set; raises UnclearError."""
    try:
        result, error = _value(node, env)
    except (ArithmeticError, ValueError) as problem:
        raise UnclearError(str(problem)) from problem
    size = abs(result)
    if not size < _HUGE or not error <= 1e-3 * size + 1e-9:
        raise UnclearError("out of range")
    return result, error


def _value(node: Node, env: Env) -> Value:
    match node:
        case Num(value=exact):
            return complex(float(exact)), EPS * abs(float(exact))
        case Sym(name=name):
            return env[name] if name in env else _unknown(name), EPS * abs(env.get(name, 0))
        case Const(name=name):
            return _constant(name)
        case Op(kind="pow", args=(base, exponent)):
            return power(_value(base, env), _value(exponent, env))
        case Op(kind=kind, args=args):
            return _operation(kind, [_value(arg, env) for arg in args])
        case Quantity(value=inner):
            return _value(inner, env)
        case Call(name=name, args=args):
            return _call(name, [_value(arg, env) for arg in args])
        case _:
            raise UnclearError(type(node).__name__)


def _unknown(name: str) -> complex:
    raise UnclearError(f"no value for {name}")


def _constant(name: str) -> Value:
    known = {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}
    if name not in known:
        raise UnclearError(name)
    return known[name], EPS


def _operation(kind: str, parts: list[Value]) -> Value:
    match kind:
        case "add":
            total = sum(part[0] for part in parts)
            return total, sum(part[1] for part in parts) + EPS * max(abs(part[0]) for part in parts)
        case "mul":
            result = parts[0]
            for part in parts[1:]:
                result = _times(result, part)
            return result
        case "neg":
            return -parts[0][0], parts[0][1]
        case "div":
            return _times(parts[0], _inverse(parts[1]))
        case "percent":
            return parts[0][0] / 100, parts[0][1] / 100
        case "deg":
            return parts[0][0] * math.pi / 180, parts[0][1] / 50
        case _:
            raise UnclearError(kind)


def _times(left: Value, right: Value) -> Value:
    product = left[0] * right[0]
    return product, abs(left[0]) * right[1] + abs(right[0]) * left[1] + EPS * abs(product)


def _inverse(part: Value) -> Value:
    size = abs(part[0])
    if size <= 8 * part[1] or size == 0:
        raise UnclearError("division by what may be zero")
    return 1 / part[0], 2 * part[1] / (size * size) + EPS / size


def power(base: Value, exponent: Value) -> Value:
    """Principal power, real where the base is a positive real."""
    size = abs(base[0])
    if size <= 8 * base[1]:
        if size == 0 and base[1] == 0 and exponent[0].real > 0:
            return 0j, 0.0
        raise UnclearError("power of what may be zero")
    if exponent[0].imag == 0 and base[0].imag == 0 and (base[0].real > 0 or exponent[0].real.is_integer()):
        result = complex(math.pow(base[0].real, exponent[0].real))
    else:
        result = base[0] ** exponent[0]
    log = abs(cmath.log(base[0]))
    spread = abs(exponent[0]) * base[1] / size + log * exponent[1] + EPS * (1 + log * abs(exponent[0]))
    return result, abs(result) * spread


def _call(name: str, args: list[Value]) -> Value:
    if name == "sqrt":
        return power(args[0], (0.5 + 0j, 0.0)) if args[0] != (0j, 0.0) else args[0]
    if name == "root" and len(args) == 2:
        return _root(args[0], args[1])
    if name == "log" and len(args) == 2:
        return _times(_smooth("ln", args[0]), _inverse(_smooth("ln", args[1])))
    if len(args) == 1 and (name in _SMOOTH or name in ("ln", "log")):
        return _smooth("ln" if name == "log" else name, args[0])
    if name in _REAL:
        return _REAL[name]([(_real(arg), arg[1]) for arg in args])
    if name in _UNREAD:
        raise UnclearError(name)
    # an unknown function: any fixed smooth one serves to tell arguments apart
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=2).digest(), "big") / 65536
    mixed = _operation("add", [_times(arg, (complex(1.1 + seed + k), 0.0)) for k, arg in enumerate(args)])
    return _smooth("sin", mixed)


def _root(base: Value, index: Value) -> Value:
    degree = index[0].real
    if index[0].imag == 0 and degree % 2 == 1 and base[0].imag == 0 and base[0].real < 0:
        result, error = power((-base[0], base[1]), _inverse(index))
        return -result, error
    return power(base, _inverse(index))


def _smooth(name: str, arg: Value) -> Value:
    function, slope = _SMOOTH[name]
    if name == "ln" and abs(arg[0]) <= 8 * arg[1]:
        raise UnclearError("logarithm of what may be zero")
    if abs(arg[0].imag) > 300 or (name not in ("ln",) and abs(arg[0]) > 1e8):
        raise UnclearError("argument too large")
    result = function(arg[0])
    return result, abs(slope(arg[0])) * arg[1] * 2 + EPS * (abs(result) + 1)


def _real(arg: Value) -> float:
    if abs(arg[0].imag) > 8 * arg[1]:
        raise UnclearError("not real")
    return arg[0].real


def _stepped(function: Callable[[float], float]) -> Callable[[list[tuple[float, float]]], Value]:
    def apply(args: list[tuple[float, float]]) -> Value:
        point, error = args[0]
        if error and abs(point - round(point)) <= 8 * error + EPS:
            raise UnclearError("on a step")
        return complex(function(point)), 0.0

    return apply


def _gamma(args: list[tuple[float, float]]) -> Value:
    point, error = args[0]
    if not -50 < point < 90:
        raise UnclearError("factorial out of range")
    result = math.gamma(point + 1)
    return complex(result), abs(result) * (5 * error + 10 * EPS)


def _binomial(args: list[tuple[float, float]]) -> Value:
    n, k = args
    top = _gamma([n])
    bottom = _times(_gamma([k]), _gamma([(n[0] - k[0], n[1] + k[1])]))
    return _times(top, _inverse(bottom))


def _modulo(args: list[tuple[float, float]]) -> Value:
    (left, e1), (right, e2) = args
    if right == 0 or (e1 + e2 > 0 and abs(left / right - round(left / right)) < 1e-9):
        raise UnclearError("on a step")
    return complex(left % right), e1 + e2 + EPS * abs(left)


def _extreme(pick: Callable[..., float]) -> Callable[[list[tuple[float, float]]], Value]:
    return lambda args: (complex(pick(arg[0] for arg in args)), max(arg[1] for arg in args))


_REAL: dict[str, Callable[[list[tuple[float, float]]], Value]] = {
    "floor": _stepped(math.floor),
    "ceil": _stepped(math.ceil),
    "sgn": lambda args: (complex((args[0][0] > 0) - (args[0][0] < 0)), 0.0),
    "factorial": _gamma,
    "binom": _binomial,
    "mod": _modulo,
    "max": _extreme(max),
    "min": _extreme(min),
}
_UNREAD = frozenset({"gcd", "lcm", "pmod", "det", "cartesian", "prime", "cases", "aligned", "tr"})
_SMOOTH: dict[str, tuple[Callable[[complex], complex], Callable[[complex], complex]]] = {
    "ln": (cmath.log, lambda z: 1 / z),
    "sin": (cmath.sin, cmath.cos),
    "cos": (cmath.cos, cmath.sin),
    "tan": (cmath.tan, lambda z: 1 / cmath.cos(z) ** 2),
    "cot": (lambda z: 1 / cmath.tan(z), lambda z: 1 / cmath.sin(z) ** 2),
    "sec": (lambda z: 1 / cmath.cos(z), lambda z: cmath.sin(z) / cmath.cos(z) ** 2),
    "csc": (lambda z: 1 / cmath.sin(z), lambda z: cmath.cos(z) / cmath.sin(z) ** 2),
    "sinh": (cmath.sinh, cmath.cosh),
    "cosh": (cmath.cosh, cmath.sinh),
    "tanh": (cmath.tanh, lambda z: 1 / cmath.cosh(z) ** 2),
    "asin": (cmath.asin, lambda z: 1 / cmath.sqrt(1 - z * z)),
    "acos": (cmath.acos, lambda z: 1 / cmath.sqrt(1 - z * z)),
    "atan": (cmath.atan, lambda z: 1 / (1 + z * z)),
    "acot": (lambda z: math.pi / 2 - cmath.atan(z), lambda z: 1 / (1 + z * z)),
    "asinh": (cmath.asinh, lambda z: 1 / cmath.sqrt(1 + z * z)),
    "acosh": (cmath.acosh, lambda z: 1 / cmath.sqrt(z * z - 1)),
    "atanh": (cmath.atanh, lambda z: 1 / (1 - z * z)),
    "abs": (lambda z: complex(abs(z)), lambda z: 1 + 0j),
}


def number(node: Node) -> float | None:
    """The value of a closed real tree to about twelve digits; None where it is not that."""
    try:
        result, error = value(node, {})
    except UnclearError:
        return None
    if abs(result.imag) > 8 * error + EPS or error > 1e-12 * abs(result) + 1e-300:
        return None
    return result.real


def refuted(left: Node, right: Node) -> bool:
    """True where a point shows the two scalar trees to differ; False says nothing."""
    names = sorted(symbols(left) | symbols(right))
    complex_allowed = Const("i") in (*walk(left), *walk(right)) or not names
    for index in range(POINTS if names else 1):
        env = {name: complex(float(coordinate(name, index))) for name in names}
        try:
            (a, error_a), (b, error_b) = value(left, env), value(right, env)
        except UnclearError:
            continue
        if not complex_allowed and (abs(a.imag) > 8 * error_a or abs(b.imag) > 8 * error_b):
            continue
        if abs(a - b) > 1e3 * (error_a + error_b) + 1e-9 * max(abs(a), abs(b)):
            return True
    return False
