"""Step values -> one value, by hand-worked numbers."""

import math

import pytest

from rewards.aggregate import AGGREGATIONS, SOFT_MIN_TEMPERATURE, aggregate


@pytest.mark.parametrize(
    ("name", "expected"),
    [("min", 0.2), ("product", 0.9 * 0.2 * 0.5), ("mean", 1.6 / 3), ("last", 0.5)],
)
def test_worked_numbers(name: str, expected: float) -> None:
    assert aggregate([0.9, 0.2, 0.5], name) == pytest.approx(expected)  # type: ignore[arg-type]


def test_soft_min_is_the_weighted_mean_of_its_formula() -> None:
    values = [0.9, 0.2, 0.25]
    weights = [math.exp(-value / SOFT_MIN_TEMPERATURE) for value in values]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert aggregate(values, "soft_min") == pytest.approx(expected)
    assert min(values) < expected < sorted(values)[1]


def test_soft_min_of_far_apart_values_neither_overflows_nor_loses_the_lowest() -> None:
    assert aggregate([-900.0, 900.0], "soft_min") == pytest.approx(-900.0)


def test_product_does_not_underflow_before_its_end() -> None:
    assert aggregate([1e-5] * 60, "product") == pytest.approx(1e-300)
    assert aggregate([0.5, 0.0], "product") == 0.0


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_one_value_is_itself_and_none_is_refused(name: str) -> None:
    assert aggregate([0.25], name) == pytest.approx(0.25)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"aggregate {name}: expected one or more"):
        aggregate([], name)  # type: ignore[arg-type]


def test_a_product_of_what_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        aggregate([-0.5, -0.5], "product")
