"""Text to tree: relations, set operations, lists, quantities; the outer part of the grammar.

listing := chain ((','|';'|'and'|'or') chain)*      chain := operand (relation operand)*
operand := additive (':' additive)* [words] (('union'|'inter'|'minus') ...)*
"""

from __future__ import annotations

from dataclasses import replace

from rewards.number_words import leading_number
from rewards.verifiers.equivalence import lexicon as lx
from rewards.verifiers.equivalence.cursor import Cursor, ParseError
from rewards.verifiers.equivalence.expr import additive, term
from rewards.verifiers.equivalence.lex import Token, tokenize
from rewards.verifiers.equivalence.nodes import (
    UNNAMED,
    Const,
    Group,
    Node,
    Op,
    Quantity,
    Ratio,
    Rel,
    Seq,
    children,
    num,
)
from rewards.verifiers.equivalence.normalise import words_of
from rewards.verifiers.equivalence.settings import MAX_DEPTH, MAX_ITEMS, EquivalenceSettings
from rewards.verifiers.equivalence.words import resolve, unit_of

MAX_BARS = 8
"""Most bars of an answer that are tried in a second reading."""
_SETS = ("union", "inter", "minus")
_NEGATED = {"=": "!=", "in": "notin"}


def parse(
    text: str,
    settings: EquivalenceSettings,
    *,
    thousands: bool = True,
    words: bool = False,
    trusted: bool = False,
) -> Node:
    """The tree of a cleaned text; raises ParseError or LexError, never anything else.

    thousands reads 12,345 as one number, words reads "twelve" as 12; trusted (a gold) takes any words behind
    a value for its unit.
    """
    if text[:1].isalpha() or text.startswith("\\text"):
        plain = words_of(text)
        if phrase := lx.PHRASES.get(plain.casefold()):
            return Const(phrase)
        text = (_in_digits(plain, trusted=trusted) if words else None) or text
    tokens = resolve(tokenize(text, thousands=thousands, decimal_comma=settings.decimal_comma))
    if tokens and tokens[0].kind == "rel":  # the left side was left out
        if tokens[0].text in "=~":
            del tokens[0]
        elif tokens[0].text in ("<", ">", "<=", ">="):
            tokens.insert(0, Token("name", UNNAMED.name))
    if not tokens:
        raise ParseError("nothing to read")
    cur = Cursor(
        *(tokens, additive, term, listing),
        mixed_numbers=settings.mixed_numbers,
        common_log=settings.common_log,
        trusted=trusted,
    )
    try:
        return _whole(cur)
    except ParseError:
        bars = [at for at, token in enumerate(tokens) if token.kind == "bar"]
        if not 4 <= len(bars) <= MAX_BARS:
            raise
    for at in bars[1:]:  # ||x||y||: one of the bars that could close opens
        try:
            return _whole(replace(cur, tokens=list(tokens), at=0, depth=0, bars=0, opened=at))
        except ParseError:
            continue
    raise ParseError("unbalanced bars")


def _in_digits(words: str, *, trusted: bool) -> str | None:
    """A number in words, alone or before a unit, in digits; a gold's unit must be a known one."""
    found = leading_number(words)
    if found is None:
        return None
    value, end = found
    behind = words[end:].split()
    units = all(unit_of(word) or word.lower() in lx.WORDS for word in behind)
    if not units and (trusted or len(behind) > 1 or not behind[0].isalpha()):
        return None
    return " ".join((str(value), *behind))


def _whole(cur: Cursor) -> Node:
    node = listing(cur)
    if cur.at < len(cur.tokens):
        raise ParseError(f"unread rest from {cur.peek().text!r}")
    check_depth(node)
    single = not isinstance(node, Seq | Group | Quantity | Rel)
    return Quantity(node, cur.currency) if cur.currency and single else node


def check_depth(node: Node) -> None:
    """Raises ParseError for a tree too tall to be walked by recursion."""
    level: list[Node] = [node]
    for _ in range(2 * MAX_DEPTH):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return
    raise ParseError("nested too deeply")


def listing(cur: Cursor) -> Node:
    """Chains joined by commas, then by semicolons; a single chain is returned as it is."""
    groups: list[Node] = [_commas(cur)]
    while cur.peek().kind == "semi":
        cur.take()
        groups.append(_commas(cur))
    return groups[0] if len(groups) == 1 else Seq(tuple(groups), ";")


def _commas(cur: Cursor) -> Node:
    items: list[Node] = [chain(cur)]
    joiner = ","
    while cur.peek().kind in ("comma", "join") and cur.ahead(1).kind != "amp":
        token = cur.take()
        if token.kind == "join":
            joiner = token.text
        elif cur.peek().kind == "join":
            joiner = cur.take().text
        items.append(chain(cur))
        if len(items) > MAX_ITEMS:
            raise ParseError("too many members")
    return items[0] if len(items) == 1 else Seq(tuple(items), joiner)


def chain(cur: Cursor) -> Node:
    """Operands with relations between them."""
    terms: list[Node] = [operand(cur)]
    ops: list[str] = []
    while cur.peek().kind == "rel" or (cur.peek().kind == "cmd" and cur.peek().text == "not"):
        negated = cur.peek().kind == "cmd" and bool(cur.take())
        sign = cur.take()
        if sign.kind != "rel" or (negated and sign.text not in _NEGATED):
            raise ParseError(f"relation expected, found {sign.text!r}")
        ops.append(_NEGATED[sign.text] if negated else sign.text)
        terms.append(operand(cur))
    return terms[0] if not ops else Rel(tuple(ops), tuple(terms))


def operand(cur: Cursor) -> Node:
    """One side of a relation: an expression, a ratio, a quantity with its unit, or sets joined."""
    cur.deeper()
    node = _ratio(cur)
    while cur.is_op(*_SETS):
        kind = cur.take().text
        node = Op(kind, (node, _ratio(cur)))
    cur.depth -= 1
    return node


def _ratio(cur: Cursor) -> Node:
    items: list[Node] = [additive(cur)]
    while cur.is_op(":"):
        cur.take()
        items.append(additive(cur))
    node = items[0] if len(items) == 1 else Ratio(tuple(items))
    return _with_words(cur, node) if cur.peek().kind == "word" else node


def _with_words(cur: Cursor, node: Node) -> Node:
    """The words behind a value: a multiple, a unit, or a noun that is taken for one."""
    words: list[str] = []
    if cur.peek().text.lower() in lx.MULTIPLES:
        factor = lx.MULTIPLES[cur.take().text.lower()]
        node = Op("mul", (node, num(factor)))
    while cur.peek().kind == "word" or (words and cur.is_op("^", "/", "deg", "*")):
        token = cur.take()
        if token.kind == "word":
            if token.text.lower() in lx.STOP_WORDS and not cur.trusted:
                raise ParseError(f"{token.text!r} behind a value")
            words.append(token.text)
        elif token.text == "^":
            words.append("^" + _power_of_unit(cur))
        elif token.text == "/":
            words.append("/")
    return Quantity(node, unit_name(words)) if words else node


def _power_of_unit(cur: Cursor) -> str:
    braced = cur.peek().text == "{"
    cur.at += braced
    sign = "-" if cur.skip_op("-") else ""
    token = cur.take()
    if token.kind != "num" or token.text not in ("1", "2", "3", "4"):
        raise ParseError("power of a unit expected")
    if braced:
        cur.expect("close", "}")
    return sign + token.text


def unit_name(words: list[str]) -> str:
    """One name for the words of a unit: "square centimeters", "cm^2" -> "cm^2"; unknown words as they are."""
    lowered = [word.lower() for word in words]
    power = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3", "squared": "^2"}
    names: list[str] = []
    raised = ""
    for word in lowered if not any(unit_of(w) for w in words) else words:
        known = unit_of(word)
        if known is not None:
            names.append(known[1] + raised)
            raised = ""
        elif word.lower() in power:
            raised = power[word.lower()]
        elif word.startswith("^") and names:
            names[-1] = names[-1] + word
        elif word.lower() in ("/", "per"):
            names.append("/")
        elif word.lower() not in lx.GENERIC_UNITS:
            names.append(word.lower().removesuffix("s"))
    return " ".join(names).replace(" / ", "/") or "unit"
