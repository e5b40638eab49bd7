"""Bounds of settings, nearest names, and plain values against annotations."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from rewards.options import fits, in_words, option, problems_of, suggest


@dataclass
class Inner:
    size: int = option(at_least=2, at_most=4)
    rate: float | None = option(above=0)


@dataclass
class Outer:
    mode: str = option("constant", "cosine")
    free: str = option()
    inner: Inner = field(default_factory=Inner)


def test_settings_within_bounds_have_no_problem() -> None:
    assert problems_of(Outer("cosine", "anything", Inner(2, None))) == []


def test_every_setting_out_of_bounds_is_told_with_its_path() -> None:
    assert problems_of(Outer("cosin", "", Inner(5, 0.0))) == [
        "mode=cosin: expected one of constant, cosine; did you mean 'cosine'?",
        "inner.size=5: expected a finite number >= 2 and <= 4",
        "inner.rate=0.0: expected a finite number > 0",
    ]


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_bounded_number_must_be_finite(rate: float) -> None:
    assert len(problems_of(Outer("cosine", "", Inner(2, rate)))) == 1


def test_no_name_is_suggested_when_none_is_near() -> None:
    assert suggest("banana", ["verifiable", "format"]) == ""


@pytest.mark.parametrize(
    ("value", "hint", "fitting"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1, float, True),
        (False, float, False),
        ("1", float, False),
        (True, bool, True),
        (1, bool, False),
        ("a", str, True),
        (None, str, False),
        (None, int | None, True),
        ("a", int | None, False),
        ("b", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        ([1, 2], tuple[int, ...], True),  # not plain: the constructor decides
        (object(), Any, True),
    ],
)
def test_fits(value: object, hint: Any, fitting: bool) -> None:
    assert fits(value, hint) is fitting


@pytest.mark.parametrize(
    ("hint", "words"),
    [(int, "int"), (float | None, "float or null"), (Literal["a", "b"], "one of a, b")],
)
def test_in_words(hint: Any, words: str) -> None:
    assert in_words(hint) == words
