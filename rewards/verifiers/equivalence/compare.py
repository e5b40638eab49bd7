"""Typed answer against typed gold, in three-valued logic: True, False, or None where algebra must decide.

The scalar comparison is passed in: the cheap one here in the calling process, the full one in a worker. Every
rule about kinds (what a tuple may equal, when a name may be dropped) stands in this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rewards.verifiers.equivalence.answers import (
    Answer,
    Equation,
    Inequality,
    Items,
    Named,
    Ordered,
    Piece,
    Reals,
    Scalar,
    Table,
)
from rewards.verifiers.equivalence.equations import same_inequality
from rewards.verifiers.equivalence.forms import Form
from rewards.verifiers.equivalence.nodes import Call, Group, Node, Op, Sym, symbols
from rewards.verifiers.equivalence.quantities import same_quantity
from rewards.verifiers.equivalence.reals import as_reals
from rewards.verifiers.equivalence.rules import SLOW, Rules, Verdict3, both
from rewards.verifiers.equivalence.scalars import as_decimal, form_of, is_unevaluated


def equal(gold: Answer, answer: Answer, rules: Rules, *, top: bool = True) -> Verdict3:
    """Whether answer says what gold says; raises nothing. top: neither is a member of a collection.

    A list against one value can be that value in several forms: 3/2 or 1.5.
    """
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer, rules)
    if top:
        gold, answer = _lone_member(gold, answer), _lone_member(answer, gold)
    match gold, answer:
        case Scalar(), Scalar():
            return same_quantity(gold, answer, rules)
        case Equation(difference=left), Equation(difference=right):
            return rules.proportional(left, right)
        case Inequality(), Inequality():
            return same_inequality(gold, answer, rules)
        case Ordered(), Ordered():
            return _ordered(gold, answer, rules)
        case (Table(), _) | (_, Table()):
            return _tables(gold, answer, rules)
        case (Reals(), _) | (_, Reals()):
            return _ranges(gold, answer, rules)
        case Items(), Items():
            return _items(gold, answer, rules)
        case Scalar(), Items(shape="bare" | "either", members=forms) if len(set(forms)) == len(forms):
            return both([equal(gold, form, rules, top=False) for form in forms])
        case Items(shape="bare" | "either", members=forms), Scalar() if len(set(forms)) == len(forms):
            return both([equal(form, answer, rules, top=False) for form in forms])
        case _:
            return False


def _lone_member(answer: Answer, other: Answer) -> Answer:
    """The one member of a set of one, where the other side is no collection: {5} is 5."""
    if isinstance(answer, Items) and answer.shape == "set" and len(answer.members) == 1:
        return answer if isinstance(other, Items | Reals) else answer.members[0]
    return answer


def _named(gold: Answer, answer: Answer, rules: Rules) -> Verdict3:
    """x = 5 against 5, against x = 5, and against 2x = 10."""
    if isinstance(gold, Named) and isinstance(answer, Named):
        if _same_subject(gold, answer, rules):
            return equal(gold.value, answer.value, rules)
        if gold.equation is not None and answer.equation is not None:
            return rules.proportional(gold.equation, answer.equation)
        return False
    named, other = (gold, answer) if isinstance(gold, Named) else (answer, gold)
    assert isinstance(named, Named)
    if isinstance(other, Equation):
        return False if named.equation is None else rules.proportional(named.equation, other.difference)
    if isinstance(other, Inequality) or (isinstance(other, Items) and _all_named(other)):
        pairs = _spelled_out(named)
        return equal(pairs, other, rules) if pairs is not None else False
    return equal(named.value, other, rules) if named is gold else equal(other, named.value, rules)


def _all_named(items: Items) -> bool:
    return all(isinstance(member, Named) for member in items.members)


def _spelled_out(named: Named) -> Items | None:
    """(p, q) = (3, 2) as p = 3, q = 2."""
    subject, value = named.subject, named.value
    if not isinstance(subject, Group) or not isinstance(value, Items):
        return None
    if len(value.members) != len(subject.items):
        return None
    return Items("bare", tuple(Named(s, v) for s, v in zip(subject.items, value.members, strict=True)))


def _same_subject(gold: Named, answer: Named, rules: Rules) -> bool:
    one, two = gold.subject, answer.subject
    if one == two:
        return True
    if isinstance(two, Sym) and not isinstance(one, Sym):
        one, two = two, one
    if isinstance(one, Sym):
        return isinstance(two, Call) and _stands_for(one, two, gold.value, answer.value)
    return rules.same(one, two) is True


def _stands_for(plain: Sym, applied: Call, *values: Answer) -> bool:
    """y = 2x + 3 for y(x) = or f(x) = 2x + 3: y is the usual name of the value, unless used otherwise."""
    if applied.name not in (("f", "g", "h", "y") if plain.name == "y" else (plain.name,)):
        return False
    used = [symbols(value.node) for value in values if isinstance(value, Scalar)]
    return len(used) == len(values) and not any(plain.name in names for names in used)


def _ordered(gold: Ordered, answer: Ordered, rules: Rules) -> Verdict3:
    if gold.label != answer.label or len(gold.parts) != len(answer.parts):
        return False
    if gold.symmetric:
        return matching(gold.parts, answer.parts, rules)
    if gold.label == "ratio" and rules.settings.ratios_reduced:
        return _proportions(gold, answer, rules)
    return both(
        [equal(one, two, rules, top=False) for one, two in zip(gold.parts, answer.parts, strict=True)]
    )


def _proportions(gold: Ordered, answer: Ordered, rules: Rules) -> Verdict3:
    left = [part.node for part in gold.parts if isinstance(part, Scalar)]
    right = [part.node for part in answer.parts if isinstance(part, Scalar)]
    crossed = [
        rules.same(Op("mul", (left[0], right[at])), Op("mul", (left[at], right[0])))
        for at in range(len(left))
    ]
    return both(crossed)


def _tables(gold: Answer, answer: Answer, rules: Rules) -> Verdict3:
    left, right = _as_rows(gold, rules), _as_rows(answer, rules)
    if left is None or right is None:
        return False
    if len(left) != len(right) or len(left[0]) != len(right[0]):
        flexible = not (isinstance(gold, Table) and isinstance(answer, Table))
        if not flexible or 1 not in (len(left), len(left[0])) or 1 not in (len(right), len(right[0])):
            return False
        left, right = [[c for row in left for c in row]], [[c for row in right for c in row]]
        if len(left[0]) != len(right[0]):
            return False
    pairs = [(a, b) for one, two in zip(left, right, strict=True) for a, b in zip(one, two, strict=True)]
    return both([rules.same(a, b) for a, b in pairs])


def _as_rows(answer: Answer, rules: Rules) -> list[list[Node]] | None:
    match answer:
        case Table(rows=rows):
            return [list(row) for row in rows]
        case Items(shape="square" | "round", members=members) if rules.settings.list_as_vector:
            nodes = [member.node for member in members if isinstance(member, Scalar)]
            return [nodes] if len(nodes) == len(members) else None
        case _:
            return None


def _ranges(gold: Answer, answer: Answer, rules: Rules) -> Verdict3:
    left, right = as_reals(gold), as_reals(answer)
    if left is None or right is None or len(left.pieces) != len(right.pieces):
        return False
    if left.inequality != right.inequality and not rules.settings.interval_notation:
        return False
    return both([_pieces(one, two, rules) for one, two in zip(left.pieces, right.pieces, strict=True)])


def _pieces(gold: Piece, answer: Piece, rules: Rules) -> Verdict3:
    if (gold.low_closed, gold.high_closed) != (answer.low_closed, answer.high_closed):
        return False
    return both([rules.same(gold.low, answer.low), rules.same(gold.high, answer.high)])


_FIXED = frozenset({"round", "square"})


def _items(gold: Items, answer: Items, rules: Rules) -> Verdict3:
    shapes = {gold.shape, answer.shape}
    if len(shapes) == 2 and not _compatible(gold, answer):
        return False
    if _keeps_order(gold, answer, rules):
        if len(gold.members) != len(answer.members):
            return False
        pairs = zip(gold.members, answer.members, strict=True)
        return both([equal(one, two, rules, top=False) for one, two in pairs])
    return matching(gold.members, answer.members, rules, repeats="set" in shapes or _no_doubles(gold, rules))


def _no_doubles(gold: Items, rules: Rules) -> bool:
    """True where a bare gold names every value once: then an answer may name one twice, as in a set."""
    known = _rationals(gold.members)
    if known is not None:
        return len(set(known)) == len(known)
    if len(gold.members) ** 2 > SLOW and not rules.patient:
        return False
    return len(_distinct(gold.members, rules)) == len(gold.members)


def _compatible(gold: Items, answer: Items) -> bool:
    """Whether two different shapes may stand for one another: a bare list for a tuple or a set."""
    shapes = {gold.shape, answer.shape}
    if _all_named(gold) != _all_named(answer) and shapes & {"set", "either"}:
        return False  # which value belongs to which name is not said
    if "either" in shapes:
        return bool(shapes & {"bare", "set"})
    if "square" in shapes and len(gold.members) == 2:
        return False  # two in square brackets are an interval
    return "bare" in shapes


def _keeps_order(gold: Items, answer: Items, rules: Rules) -> bool:
    if gold.shape in _FIXED or answer.shape in _FIXED:
        return not (_all_named(gold) and _all_named(answer))
    if {"set", "either"} & {gold.shape, answer.shape}:
        return False
    names = [_all_named(gold), _all_named(answer)]
    return rules.settings.ordered_lists or (names[0] != names[1])


def matching(
    gold: Sequence[Answer], answer: Sequence[Answer], rules: Rules, *, repeats: bool = False
) -> Verdict3:
    """Whether members pair off one to one in some order; repeats lets equal members merge, as in a set."""
    known = _rationals(gold), _rationals(answer)
    if known[0] is not None and known[1] is not None:
        return set(known[0]) == set(known[1]) if repeats else sorted(known[0]) == sorted(known[1])
    if len(gold) * len(answer) > SLOW and not rules.patient:
        return None
    if repeats:
        gold, answer = _distinct(gold, rules), _distinct(answer, rules)
    if len(gold) != len(answer):
        return False
    table = [[equal(one, two, rules, top=False) for two in answer] for one in gold]
    if _pairs_off([[cell is True for cell in row] for row in table]):
        return True
    return None if _pairs_off([[cell is not False for cell in row] for row in table]) else False


def _rationals(members: Sequence[Answer]) -> list[Fraction] | None:
    """The exact values of members that are bare rationals, all of them, or None."""
    values: list[Fraction] = []
    for member in members:
        if not isinstance(member, Scalar) or member.unit or as_decimal(member.node):
            return None
        form = form_of(member.node)
        value = form.rational() if isinstance(form, Form) else None
        if value is None or is_unevaluated(member.node):
            return None
        values.append(value)
    return values


def _distinct(members: Sequence[Answer], rules: Rules) -> list[Answer]:
    kept: list[Answer] = []
    for member in members:
        if not any(member == other or equal(other, member, rules, top=False) is True for other in kept):
            kept.append(member)
    return kept


def _pairs_off(allowed: list[list[bool]]) -> bool:
    """Perfect matching of rows to columns by augmenting paths."""
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, fits in enumerate(allowed[row]):
            if fits and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(allowed)))
