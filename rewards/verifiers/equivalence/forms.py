"""Exact normal forms in plain Python: quotients of polynomials over the rationals in named generators.

Generators: symbols (x), pi and e, fractional powers of primes (2^(1/2) reduces, so radicals are a basis), the
imaginary unit (i^2 = -1), and opaque ones (names that begin with @) for every other function or power.
Two forms whose cross product is zero are equal, which is a proof. Two forms that differ and hold no opaque
generator are different: symbols are free, fractional prime powers are linearly independent over Q
(Besicovitch 1940), pi is transcendental. Differing forms with opaque generators prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from rewards.verifiers.equivalence.settings import MAX_BITS, MAX_EXPAND, MAX_TERMS

Exponent = int | Fraction
Mono = tuple[tuple[str, Exponent], ...]
Poly = dict[Mono, Fraction]
ONE: Mono = ()
IMAGINARY = "i"


class TooComplexError(ValueError):
    """The form would grow past the limits; nothing is known about the value."""


class UndefinedError(ValueError):
    """The expression has no value: division by zero and the like."""


@dataclass(frozen=True, slots=True)
class Form:
    """num / den, both as monomial -> coefficient; den is never zero and usually 1. Not to be mutated."""

    num: Poly
    den: Poly

    @property
    def opaque(self) -> bool:
        """True where a generator is not understood, so that a difference proves nothing."""
        return any(key[0] == "@" for poly in (self.num, self.den) for mono in poly for key, _ in mono)

    def rational(self) -> Fraction | None:
        """The value where the form is a rational number."""
        if not self.num:
            return Fraction(0)
        if len(self.num) == 1 == len(self.den) and ONE in self.num and ONE in self.den:
            return self.num[ONE] / self.den[ONE]
        return None


UNIT: Poly = {ONE: Fraction(1)}


def constant(value: Fraction | int) -> Form:
    """The form of a rational number; raises TooComplexError past the size limit."""
    value = Fraction(value)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooComplexError("number too large")
    return Form({ONE: value} if value else {}, UNIT)


def generator(key: str, exponent: Exponent = 1) -> Form:
    """The form of one generator to a power."""
    return Form({((key, exponent),): Fraction(1)}, UNIT) if exponent else Form(dict(UNIT), UNIT)


def _times(left: Mono, right: Mono) -> tuple[Mono, Fraction]:
    """Product of two monomials and the rational factor that falls out of radicals and i^2."""
    if not left:
        return right, Fraction(1)
    if not right:
        return left, Fraction(1)
    merged = dict(left)
    factor = Fraction(1)
    for key, exponent in right:
        total = merged.get(key, 0) + exponent
        if key[0] == "p" and not 0 < total < 1:
            whole = total.numerator // total.denominator
            total -= whole
            factor *= Fraction(int(key[1:])) ** whole
        elif key == IMAGINARY:
            factor *= -1 if total % 4 >= 2 else 1
            total %= 2
        if total:
            merged[key] = total
        else:
            merged.pop(key, None)
    return tuple(sorted(merged.items())), factor


def poly_mul(left: Poly, right: Poly) -> Poly:
    """Product of two polynomials."""
    if left == UNIT:
        return right
    if right == UNIT:
        return left
    if len(left) * len(right) > 20 * MAX_TERMS:
        raise TooComplexError("product too long")
    out: Poly = {}
    for mono_l, coef_l in left.items():
        for mono_r, coef_r in right.items():
            mono, factor = _times(mono_l, mono_r)
            out[mono] = out.get(mono, Fraction(0)) + coef_l * coef_r * factor
    return _tidy(out)


def _tidy(poly: Poly) -> Poly:
    out = {mono: coef for mono, coef in poly.items() if coef}
    if len(out) > MAX_TERMS:
        raise TooComplexError("too many terms")
    for coef in out.values():
        if max(coef.numerator.bit_length(), coef.denominator.bit_length()) > MAX_BITS:
            raise TooComplexError("number too large")
    return out


def poly_add(left: Poly, right: Poly, sign: int = 1) -> Poly:
    """left + sign * right."""
    out = dict(left)
    for mono, coef in right.items():
        out[mono] = out.get(mono, Fraction(0)) + sign * coef
    return _tidy(out)


def add(left: Form, right: Form, sign: int = 1) -> Form:
    """left + sign * right."""
    if left.den == right.den:
        return Form(poly_add(left.num, right.num, sign), left.den)
    num = poly_add(poly_mul(left.num, right.den), poly_mul(right.num, left.den), sign)
    return Form(num, poly_mul(left.den, right.den))


def mul(left: Form, right: Form) -> Form:
    """left * right."""
    return Form(poly_mul(left.num, right.num), poly_mul(left.den, right.den))


def inverse(form: Form) -> Form:
    """1 / form; a single term is folded into negative exponents. Raises UndefinedError on zero."""
    num = reduce_trig(form.num) if form.opaque else form.num
    if not num:
        raise UndefinedError("division by zero")
    if len(num) > 1:
        return Form(form.den, num)
    ((mono, coef),) = num.items()
    flipped = tuple((key, -exponent) for key, exponent in mono if key[0] != "p" and key != IMAGINARY)
    term: Poly = {flipped: 1 / coef}
    for key, exponent in mono:
        if key[0] == "p":
            term = poly_mul(term, {((key, 1 - exponent),): Fraction(1, int(key[1:]))})
        elif key == IMAGINARY:
            term = poly_mul(term, {((key, 1),): Fraction(-1)})
    return Form(poly_mul(form.den, term), UNIT)


def power(base: Form, exponent: int) -> Form:
    """base to a whole power, expanded within limits; raises TooComplexError past them."""
    if exponent < 0:
        return power(inverse(base), -exponent)
    if not base.num and exponent == 0:
        raise UndefinedError("0^0")
    if len(base.num) == 1 and len(base.den) == 1 and ONE in base.den:
        return _mono_power(base, exponent)
    if exponent > MAX_EXPAND:
        raise TooComplexError("power of a sum too large")
    out = constant(1)
    for _ in range(exponent):
        out = mul(out, base)
    return out


def _mono_power(base: Form, exponent: int) -> Form:
    ((mono, coef),) = base.num.items()
    coef /= base.den[ONE]
    bits = max(coef.numerator.bit_length(), coef.denominator.bit_length())
    if coef not in (1, -1) and bits * exponent > MAX_BITS:
        raise TooComplexError("power too large")
    scale = coef**exponent if coef != -1 else Fraction(-1 if exponent % 2 else 1)
    raised: Mono = ()
    for key, old in mono:
        total = old * exponent
        if key[0] == "p" and abs(total) * int(key[1:]).bit_length() > MAX_BITS:
            raise TooComplexError("power too large")
        raised, factor = _times(raised, _single(key, total))
        scale *= factor
        if key[0] == "p":
            whole = total.numerator // total.denominator
            scale *= Fraction(int(key[1:])) ** whole
        elif key == IMAGINARY:
            scale *= -1 if total % 4 >= 2 else 1
    return Form({raised: scale}, UNIT)


def _single(key: str, total: Exponent) -> Mono:
    if key[0] == "p":
        total -= total.numerator // total.denominator
    elif key == IMAGINARY:
        total %= 2
    return ((key, total),) if total else ()


def factorize(value: int) -> dict[int, int] | None:
    """Prime factors of a positive integer, or None where that would take long."""
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= value:
        if divisor > 2000:
            root = isqrt(value)
            if root * root == value and root < 4_000_000:
                found[root] = found.get(root, 0) + 2
                return found
            if value < 4_000_000:
                break
            return None
        while value % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            value //= divisor
        divisor += 1 if divisor == 2 else 2
    if value > 1:
        found[value] = found.get(value, 0) + 1
    return found


def root_of_rational(value: Fraction, exponent: Fraction) -> Form | None:
    """value^exponent for a positive rational, as prime radicals; None where it cannot be factored."""
    top, bottom = factorize(value.numerator), factorize(value.denominator)
    if top is None or bottom is None:
        return None
    out = constant(1)
    for factors, sign in ((top, 1), (bottom, -1)):
        for prime, count in factors.items():
            total = exponent * count * sign
            whole = total.numerator // total.denominator
            if abs(whole) * prime.bit_length() > MAX_BITS:
                raise TooComplexError("power too large")
            part = constant(Fraction(prime) ** whole)
            rest = total - whole
            out = mul(out, mul(part, generator(f"p{prime}", rest)) if rest else part)
    return out


def reduce_trig(poly: Poly) -> Poly:
    """cos(u)^2 -> 1 - sin(u)^2 after negative exponents are cleared; for tests against zero only."""
    lowest: dict[str, Exponent] = {}
    for mono in poly:
        for key, exponent in mono:
            if key.startswith("@cos[") and exponent < lowest.get(key, 0):
                lowest[key] = exponent
    if lowest:
        clear = tuple(sorted((key, -exponent) for key, exponent in lowest.items()))
        poly = poly_mul(poly, {clear: Fraction(1)})
    while True:
        out: Poly = {}
        changed = False
        for mono, coef in poly.items():
            key = next((k for k, e in mono if k.startswith("@cos[") and e >= 2), None)
            if key is None:
                out[mono] = out.get(mono, Fraction(0)) + coef
                continue
            changed = True
            rest, _ = _times(mono, ((key, -2),))
            sine, _ = _times(rest, (("@sin[" + key[5:], 2),))
            out[rest] = out.get(rest, Fraction(0)) + coef
            out[sine] = out.get(sine, Fraction(0)) - coef
        poly = _tidy(out)
        if not changed:
            return poly


def is_zero(form: Form) -> bool:
    """True where the form is proven zero."""
    return not form.num or (form.opaque and not reduce_trig(form.num))


def key_of(form: Form) -> str:
    """A string that two equal polynomials share; quotients may have several."""
    num, den = _key(form.num), _key(form.den)
    return num if den == "1" else f"({num})/({den})"


def _key(poly: Poly) -> str:
    terms = [
        str(coef) + "".join(f"*{k}^{e}" for k, e in mono) for mono, coef in sorted(poly.items(), key=repr)
    ]
    return "+".join(terms) or "0"
