"""Properties of the equivalence engine over generated answers: values kept, verdicts symmetric, no crash."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.types import Reason
from rewards.verifiers.equivalence import (
    AlgebraTask,
    Decision,
    EquivalenceSettings,
    Gold,
    decide,
    prepare_gold,
)
from rewards.verifiers.equivalence.nodes import Num
from rewards.verifiers.equivalence.normalise import clean, squeeze
from rewards.verifiers.equivalence.parse import parse
from rewards.verifiers.equivalence.scalars import form_of, same_value

DEFAULT = EquivalenceSettings()
FRACTIONS = st.fractions(max_denominator=5000)
WRAPPERS = st.sampled_from(
    [
        "{}",
        "${}$",
        "\\({}\\)",
        "\\[{}\\]",
        " {} ",
        "{}.",
        "**{}**",
        "\\text{{{}}}",
        "{{{}}}",
        "$ {} $.",
        "({})",
    ]
)


def written(value: Fraction, style: int) -> str:
    """One of several notations of a rational, all exact."""
    top, bottom, sign = abs(value.numerator), value.denominator, "-" if value < 0 else ""
    whole, rest = divmod(top, bottom)
    styles = [
        f"{value.numerator}/{bottom}" if bottom > 1 else str(value.numerator),
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"\\dfrac{{{value.numerator}}}{{{bottom}}}",
        f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}"
        if whole and rest
        else f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"{sign}{whole} {rest}/{bottom}" if whole and rest else f"{value.numerator}/{bottom}",
        f"{sign}{top} \\div {bottom}",
        f"\u2212{top}/{bottom}" if value < 0 else f"{top}\u2215{bottom}",
        f"{sign}{7 * top}/{7 * bottom}",
    ]
    return styles[style % len(styles)]


def equal(gold: str, answer: str) -> bool | None:
    """True, False, or None where the worker would decide."""
    prepared = prepare_gold((gold,), "auto", DEFAULT)
    assert isinstance(prepared, Gold), (gold, prepared)
    found = decide(prepared, answer, DEFAULT)
    return found.equal if isinstance(found, Decision) else None


@given(FRACTIONS, st.integers(0, 7), st.integers(0, 7), WRAPPERS)
def test_every_notation_of_a_rational_is_that_rational(a: Fraction, one: int, two: int, wrap: str) -> None:
    assert equal(written(a, one), wrap.format(written(a, two))) is True


@given(FRACTIONS, FRACTIONS, st.integers(0, 7), st.integers(0, 7))
def test_different_rationals_are_never_equal(a: Fraction, b: Fraction, one: int, two: int) -> None:
    assert equal(written(a, one), written(b, two)) is (a == b)


@given(st.integers(-(10**40), 10**40), st.sampled_from([",", "{,}", "\\,", ",\\!", " "]))
def test_thousands_marks_keep_the_value(value: int, mark: str) -> None:
    assert equal(str(value), f"{value:,}".replace(",", mark)) is True


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=8))
def test_decimals_are_exact(value: object) -> None:
    text = f"{value:f}"
    node = parse(clean(text), DEFAULT)
    form = form_of(node)
    assert not isinstance(form, str)
    assert form.rational() == Fraction(text)


@given(st.text(max_size=40))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = clean(text)
    if once and not once.lower().startswith(
        ("answer", "value", "result", "solution", "final", "the", "correct")
    ):
        assert squeeze(clean(once)) == squeeze(once)


ATOMS = st.sampled_from(
    ["x", "y", "2", "3", "\\frac12", "0.5", "\\pi", "\\sqrt{2}", "(x+1)", "a_1", "n!", "e^{x}"]
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """A small expression in mixed notation."""
    parts = draw(
        st.lists(st.tuples(ATOMS, st.sampled_from(["+", "-", "\\cdot ", "/", "*"])), min_size=1, max_size=4)
    )
    return draw(ATOMS) + "".join(op + atom for atom, op in parts)


@given(expressions(), expressions())
@settings(max_examples=200)
def test_verdicts_are_symmetric(one: str, two: str) -> None:
    assert equal(one, two) == equal(two, one)


COLLECTIONS = st.lists(st.integers(-9, 9), min_size=2, max_size=5)


@given(COLLECTIONS, st.randoms(use_true_random=False), st.sampled_from(["\\{{{}\\}}", "{}"]))
def test_sets_and_lists_ignore_order(values: list[int], random: object, shape: str) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    joined, mixed = (shape.format(", ".join(map(str, v))) for v in (values, shuffled))
    assert equal(joined, mixed) is True
    assert equal(mixed, joined) is True


@given(COLLECTIONS, COLLECTIONS)
def test_tuples_are_equal_only_member_by_member(one: list[int], two: list[int]) -> None:
    texts = [f"({', '.join(map(str, values))})" for values in (one, two)]
    assert equal(texts[0], texts[1]) is (one == two)


@given(COLLECTIONS, COLLECTIONS)
def test_sets_are_equal_only_as_sets(one: list[int], two: list[int]) -> None:
    texts = [f"\\{{{', '.join(map(str, values))}\\}}" for values in (one, two)]
    assert equal(texts[0], texts[1]) is (set(one) == set(two))


BITS = st.sampled_from(
    [
        "\\frac",
        "{",
        "}",
        "^",
        "_",
        "(",
        ")",
        "[",
        "]",
        "|",
        "\\{",
        "\\}",
        ",",
        ";",
        "=",
        "<",
        "\\le",
        "\\cup",
        "!",
        "1",
        "23",
        "0.5",
        "x",
        "\\pi",
        "\\sqrt",
        "\\sin",
        "\\log",
        "or",
        "\\text{cm}",
        "%",
        "\\pm",
        "\\infty",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "\\int",
        "\\sum",
        "\\lim",
        "d",
        ":",
        "/",
        "-",
        "'",
    ]
)


@given(st.lists(BITS, max_size=25).map("".join), st.lists(BITS, max_size=25).map("".join))
@settings(max_examples=400)
def test_any_notation_is_decided_and_every_gold_verifies_itself(gold: str, answer: str) -> None:
    prepared = prepare_gold((gold,), "auto", DEFAULT)
    if isinstance(prepared, Reason):
        assert prepared in (Reason.NO_GOLD, Reason.INVALID_GOLD)
        return
    assert isinstance(decide(prepared, answer, DEFAULT), Decision | AlgebraTask)
    itself = decide(prepared, gold, DEFAULT)
    assert isinstance(itself, Decision)
    assert itself.equal


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_decided(gold: str, answer: str) -> None:
    prepared = prepare_gold((gold,), "auto", DEFAULT)
    if isinstance(prepared, Gold):
        assert isinstance(decide(prepared, answer, DEFAULT), Decision | AlgebraTask)


@given(FRACTIONS.filter(lambda v: v != 0), st.integers(7, 15))
def test_a_rounded_decimal_needs_enough_right_digits(value: Fraction, digits: int) -> None:
    text = f"{float(value):.{digits}e}"
    rounded = Num(Fraction(text), digits + 1, int(text.partition("e")[2]) - digits)
    exact = Fraction(text) == value
    settled = same_value(Num(value), rounded, DEFAULT)
    bottom = value.denominator
    while bottom % 2 == 0:
        bottom //= 2
    while bottom % 5 == 0:
        bottom //= 5
    assert settled is (exact or bottom > 1)
    off = Num(rounded.value + Fraction(10) ** (rounded.scale + 1), rounded.digits, rounded.scale)
    assert same_value(Num(value), off, DEFAULT) is False or digits + 1 > 15


@pytest.mark.parametrize("step", [1, -1])
def test_the_last_of_seven_digits_counts(step: int) -> None:
    good = Fraction(3333333, 10**7)
    assert same_value(Num(Fraction(1, 3)), Num(good, 7, -7), DEFAULT) is True
    assert same_value(Num(Fraction(1, 3)), Num(good + Fraction(step, 10**7), 7, -7), DEFAULT) is False
