"""Tree to exact normal form: which trees are polynomials, radicals, powers, and what else stays opaque.

Raises TooComplexError where limits are met, UndefinedError where there is no value, and NotScalarError for
lists and relations.
"""

from __future__ import annotations

from fractions import Fraction

from rewards.verifiers.equivalence import forms as fm
from rewards.verifiers.equivalence.forms import ONE, UNIT, Form, TooComplexError, UndefinedError
from rewards.verifiers.equivalence.functions import call
from rewards.verifiers.equivalence.nodes import Big, Call, Const, Node, Num, Op, Quantity, Sym
from rewards.verifiers.equivalence.settings import MAX_BITS


class NotScalarError(ValueError):
    """The tree is no single value."""


def canon(node: Node) -> Form:
    """The normal form of a scalar tree."""
    match node:
        case Num(value=value):
            return fm.constant(value)
        case Sym(name=name):
            return fm.generator("x" + name)
        case Const(name=name):
            return _constant(name)
        case Op(kind=kind, args=args):
            return _operation(kind, args)
        case Call(name=name, args=args):
            return _call(name, args)
        case Quantity(value=value):
            return canon(value)
        case Big():
            return _big(node)
        case _:
            raise NotScalarError(type(node).__name__)


def _constant(name: str) -> Form:
    if name == "i":
        return fm.generator(fm.IMAGINARY)
    if name in ("pi", "e"):
        return fm.generator("k" + name)
    raise NotScalarError(name)


def _operation(kind: str, args: tuple[Node, ...]) -> Form:
    parts = [canon(arg) for arg in args] if kind != "pow" else []
    match kind:
        case "add":
            total = parts[0]
            for part in parts[1:]:
                total = fm.add(total, part)
            return total
        case "mul":
            total = parts[0]
            for part in parts[1:]:
                total = fm.mul(total, part)
            return total
        case "neg":
            return fm.mul(fm.constant(-1), parts[0])
        case "div":
            return fm.mul(parts[0], fm.inverse(parts[1]))
        case "pow":
            return raise_to(canon(args[0]), canon(args[1]))
        case "percent":
            return fm.mul(parts[0], fm.constant(Fraction(1, 100)))
        case "deg":
            return fm.mul(parts[0], fm.mul(fm.constant(Fraction(1, 180)), fm.generator("kpi")))
        case _:
            raise NotScalarError(kind)


def _call(name: str, args: tuple[Node, ...]) -> Form:
    match name, args:
        case "sqrt", (inner,):
            return raise_to(canon(inner), fm.constant(Fraction(1, 2)))
        case "root", (inner, index):
            return _root(canon(inner), canon(index))
        case "log", (inner, base):
            return fm.mul(call("ln", [canon(inner)]), fm.inverse(call("ln", [canon(base)])))
        case _:
            return call(name, [canon(arg) for arg in args])


def _root(inner: Form, index: Form) -> Form:
    degree = index.rational()
    value = inner.rational()
    odd = degree is not None and degree.denominator == 1 and degree.numerator % 2 == 1
    if odd and value is not None and value < 0:  # the real root of a negative number, as schools write it
        return fm.mul(fm.constant(-1), _root(fm.constant(-value), index))
    return raise_to(inner, fm.inverse(index))


def _big(node: Big) -> Form:
    """An opaque generator: equal bodies, variables and limits give equal values."""
    parts = [fm.key_of(canon(node.body))]
    for part in (node.var, node.low, node.high):
        parts.append("" if part is None else repr(part) if node.kind == "lim" else fm.key_of(canon(part)))
    return fm.generator(f"@{node.kind}[{'|'.join(parts)}]")


def raise_to(base: Form, exponent: Form) -> Form:
    """base^exponent: whole powers expanded, rational ones as radicals, others split over their terms."""
    value = exponent.rational()
    if value is None:
        return _symbolic_power(base, exponent)
    if value.denominator == 1:
        return _whole_power(base, value.numerator)
    return _fractional_power(base, value)


def _whole_power(base: Form, exponent: int) -> Form:
    if exponent.bit_length() > MAX_BITS:
        raise TooComplexError("exponent too large")
    if base.den != UNIT and exponent > 0 and len(base.den) > 1:
        top = _whole_power(Form(base.num, UNIT), exponent)
        return fm.mul(top, fm.inverse(_whole_power(Form(base.den, UNIT), exponent)))
    try:
        return fm.power(base, exponent)
    except TooComplexError:
        if base.rational() is not None:
            raise
        content, rest = _primitive(base)
        return fm.mul(
            fm.power(fm.constant(content), exponent), fm.generator(f"@pow[{fm.key_of(rest)}]", exponent)
        )


def _primitive(base: Form) -> tuple[Fraction, Form]:
    """The positive rational content of a polynomial and what remains of it."""
    values = list(base.num.values())
    content = Fraction(0)
    for value in values:
        content = _gcd(content, abs(value))
    return content, Form({mono: coef / content for mono, coef in base.num.items()}, base.den)


def _gcd(left: Fraction, right: Fraction) -> Fraction:
    while right:
        left, right = right, left % right
    return left


def _fractional_power(base: Form, exponent: Fraction) -> Form:
    if not base.num:
        if exponent < 0:
            raise UndefinedError("0 to a negative power")
        return fm.constant(0)
    if base.den != UNIT and len(base.den) > 1:
        top = _fractional_power(Form(base.num, UNIT), exponent)
        return fm.mul(top, fm.inverse(_fractional_power(Form(base.den, UNIT), exponent)))
    content, rest = _primitive(base)
    head = fm.root_of_rational(content, exponent)
    if head is None:
        head = fm.generator(f"@pow[{content}]", exponent)
    if len(rest.num) == 1:
        return fm.mul(head, _mono_root(rest, exponent))
    whole = exponent.numerator // exponent.denominator
    tail = fm.generator(f"@pow[{fm.key_of(rest)}]", exponent - whole)
    out = fm.mul(head, tail)
    if whole > 0:
        return fm.mul(out, _whole_power(rest, whole))
    return fm.mul(out, fm.inverse(_whole_power(rest, -whole))) if whole < 0 else out


def _mono_root(rest: Form, exponent: Fraction) -> Form:
    """A fractional power of one term: positive constants split off, a lone symbol keeps its root."""
    ((mono, coef),) = rest.num.items()
    positive: Form = fm.constant(1)
    others: list[tuple[str, fm.Exponent]] = []
    for key, old in mono:
        if key[0] == "p":
            root = fm.root_of_rational(Fraction(int(key[1:])), old * exponent)
            if root is None:
                raise TooComplexError("radicand too large")
            positive = fm.mul(positive, root)
        elif key[0] == "k":
            positive = fm.mul(positive, fm.generator(key, old * exponent))
        else:
            others.append((key, old))
    if coef == -1:
        if exponent.denominator == 2 and not others:
            return fm.mul(positive, fm.power(fm.generator(fm.IMAGINARY), exponent.numerator % 4))
        others.append(("-", 1))
    if len(others) == 1 and others[0][1] == 1 and others[0][0][0] in "x@":
        return fm.mul(positive, fm.generator(others[0][0], exponent))
    if not others:
        return positive
    inner = Form({tuple(pair for pair in others if pair[0] != "-"): coef}, UNIT)
    whole = exponent.numerator // exponent.denominator
    root = fm.generator(f"@pow[{fm.key_of(inner)}]", exponent - whole)
    return fm.mul(positive, fm.mul(root, fm.power(inner, whole)))


def _symbolic_power(base: Form, exponent: Form) -> Form:
    """base^(sum of terms) as a product over the terms; the rational factor of a term becomes an exponent."""
    if any(key == fm.IMAGINARY for mono in exponent.num for key, _ in mono) or exponent.den != UNIT:
        turn = exponent.num.get(((fm.IMAGINARY, 1), ("kpi", 1)))
        if turn is not None and len(exponent.num) == 1 and base == fm.generator("ke"):  # Euler
            angle = Form({(("kpi", 1),): turn}, UNIT)
            return fm.add(call("cos", [angle]), fm.mul(fm.generator(fm.IMAGINARY), call("sin", [angle])))
        return fm.generator(f"@pow[{fm.key_of(base)}|{fm.key_of(exponent)}]")
    if not base.num:
        raise UndefinedError("0 to a symbolic power")
    value = base.rational()
    parts: list[tuple[str, Fraction]] = [(fm.key_of(base), Fraction(1))]
    if value is not None and value > 0:
        top, bottom = fm.factorize(value.numerator), fm.factorize(value.denominator)
        if top is not None and bottom is not None:
            parts = [(str(prime), Fraction(count)) for prime, count in top.items()]
            parts += [(str(prime), Fraction(-count)) for prime, count in bottom.items()]
    out = fm.constant(1)
    for mono, coef in exponent.num.items():
        if mono == ONE:
            out = fm.mul(out, raise_to(base, fm.constant(coef)))
            continue
        unit = fm.key_of(Form({mono: Fraction(1)}, UNIT))
        for name, count in parts:
            out = fm.mul(out, fm.generator(f"@pow[{name}|{unit}]", coef * count))
    return out
