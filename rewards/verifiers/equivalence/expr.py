"""Sums, products, powers and postfix signs: the operator part of the grammar.

additive := ['+'|'-'|pm] term (('+'|'-'|pm) term)*      term := factor (('*'|'/'|mod) factor | factor)*
factor := atom ('^' exponent | '!' | '%' | degree)*      juxtaposition multiplies, except number by number
"""

from __future__ import annotations

from rewards.verifiers.equivalence.atoms import atom, subscript
from rewards.verifiers.equivalence.cursor import Cursor
from rewards.verifiers.equivalence.lex import Token
from rewards.verifiers.equivalence.nodes import Call, Const, Group, Node, Num, Op, Quantity, Sym, neg
from rewards.verifiers.equivalence.numerals import literal

_STARTS = frozenset({"name", "const", "func", "open", "cmd", "begin"})
_SIGNS = ("+", "-", "pm", "mp")


def additive(cur: Cursor) -> Node:
    """A sum; the loosest operator level."""
    cur.deeper()
    terms: list[Node] = []
    node = _signed_term(cur)
    while cur.is_op(*_SIGNS):
        sign = cur.take().text
        right = term(cur)
        if sign in ("pm", "mp"):
            node = Op(sign, (_sum([*terms, node]), right))
            terms = []
            continue
        terms.append(node)
        node = right if sign == "+" else neg(right)
    cur.depth -= 1
    return _sum([*terms, node])


def _sum(terms: list[Node]) -> Node:
    return terms[0] if len(terms) == 1 else Op("add", tuple(terms))


def _signed_term(cur: Cursor) -> Node:
    cur.skip_currency()
    if not cur.is_op(*_SIGNS):
        return term(cur)
    sign = cur.take().text
    if cur.is_op(*_SIGNS):
        cur.deeper()
        inner = _signed_term(cur)
        cur.depth -= 1
    else:
        inner = term(cur)
    if sign == "+":
        return inner
    return neg(inner) if sign == "-" else Op(sign, (inner,))


def term(cur: Cursor) -> Node:
    """A product or quotient, left to right; implicit and explicit multiplication bind alike."""
    factors: list[Node] = [factor(cur)]
    while True:
        if cur.is_op("*", "/", "mod"):
            sign = cur.take().text
            right = _operand(cur)
            if sign == "*":
                factors.append(right)
                continue
            kind = "div" if sign == "/" else "mod"
            left = _product(factors)
            factors = [Op("div", (left, right)) if kind == "div" else Call("mod", (left, right))]
        elif cur.is_op("choose"):
            cur.take()
            factors = [Call("binom", (_product(factors), _operand(cur)))]
        elif cur.is_op("over"):
            cur.take()
            return Op("div", (_product(factors), term(cur)))
        elif begins_factor(cur, factors[-1]):
            factors.append(factor(cur))
        else:
            return _product(factors)


def _product(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Op("mul", tuple(map(_bare, factors)))


def _bare(node: Node) -> Node:
    """A single member in written braces is grouped, not a set, where it is multiplied."""
    return node.items[0] if isinstance(node, Group) and len(node.items) == 1 else node


def begins_factor(cur: Cursor, last: Node) -> bool:
    """True where the next token multiplies what stands before it without a sign."""
    token = cur.peek()
    if token.kind in _STARTS:
        return token.text not in ("pmod", "not")
    if token.kind == "num":
        return not isinstance(last, Num) and cur.tokens[cur.at - 1].kind != "num"
    return token.kind == "bar" and (cur.bars == 0 or cur.at == cur.opened)


def _operand(cur: Cursor) -> Node:
    """A factor that may carry its own sign: 2*-3, 1/-x."""
    if cur.is_op("-", "+"):
        cur.deeper()
        sign = cur.take().text
        node = _operand(cur)
        cur.depth -= 1
        return neg(node) if sign == "-" else node
    return factor(cur)


def factor(cur: Cursor) -> Node:
    """An atom with its powers and postfix signs."""
    node = atom(cur)
    while True:
        if cur.is_op("^"):
            cur.take()
            node = _raise(cur, node)
            if cur.is_op("_") and isinstance(node, Op) and isinstance(node.args[0], Sym):
                cur.take()
                node = Op("pow", (Sym(f"{node.args[0].name}_{subscript(cur)}"), node.args[1]))
        elif cur.skip_op("!"):
            node = Call("factorial", (node,))
        elif cur.skip_op("%"):
            node = Op("percent", (node,))
        elif cur.skip_op("deg"):
            node = Op("deg", (node,))
        elif isinstance(node, Op) and node.kind == "deg" and cur.peek().text in ("C", "F"):
            return Quantity(node.args[0], "deg" + cur.take().text)
        elif cur.peek().kind == "cmd" and cur.peek().text == "pmod":
            cur.take()
            node = Call("pmod", (node, atom(cur)))
        else:
            return node


def _raise(cur: Cursor, base: Node) -> Node:
    if _degree_mark(cur):
        return Op("deg", (base,))
    primes = _primes(cur)
    if primes:
        return Sym(base.name + primes) if isinstance(base, Sym) else Call("prime", (base,))
    if isinstance(base, Num) and _ordinal(cur):
        return base
    exponent = power_argument(cur)
    if isinstance(base, Const) and base.name in "RNZQC":
        return Call("cartesian", (base, exponent))
    return Op("pow", (base, exponent))


def _degree_mark(cur: Cursor) -> bool:
    """^\\circ, ^{\\circ} or ^o."""
    if cur.skip_op("circ") or cur.skip_op("deg"):
        return True
    braced = cur.peek().text == "{" and cur.ahead(1).text in ("circ", "deg") and cur.ahead(2).text == "}"
    if braced:
        cur.at += 3
    return braced


def _ordinal(cur: Cursor) -> bool:
    """12^{th}: the raised letters only say that the number counts places."""
    at = 1 if cur.peek().text == "{" else 0
    letters = cur.ahead(at).text
    if cur.ahead(at).kind == "name":  # two letters, read one by one
        letters += cur.ahead(at + 1).text
    if letters not in ("st", "nd", "rd", "th"):
        return False
    cur.at += 2 * at + (1 if cur.ahead(at).kind == "word" else 2)
    return True


def _primes(cur: Cursor) -> str:
    """^\\prime or ^{\\prime\\prime}: the marks, or nothing."""
    if cur.skip_op("'"):
        return "'"
    count = 1
    while cur.peek().text == "{" and cur.ahead(count) == Token("op", "'", cur.ahead(count).spaced):
        count += 1
    if count == 1 or cur.ahead(count).text != "}":
        return ""
    cur.at += count + 1
    return "'" * (count - 1)


def power_argument(cur: Cursor) -> Node:
    """What stands behind ^: signs, one atom, and a further power to its right."""
    cur.deeper()
    if cur.is_op("-", "+"):
        sign = cur.take().text
        node = power_argument(cur)
        cur.depth -= 1
        return neg(node) if sign == "-" else node
    plain = cur.peek().kind == "num" and cur.ahead(1) == Token("op", "_", cur.ahead(1).spaced)
    node = literal(cur.take().text) if plain else atom(cur)
    if cur.is_op("^"):
        cur.take()
        node = _raise(cur, node)
    elif cur.is_op("!") and not isinstance(node, Op):
        cur.take()
        node = Call("factorial", (node,))
    cur.depth -= 1
    return node
