"""Intervals over problems: known spreads, coverage, seeds."""

import numpy as np
import pytest

from rewards.intervals import bootstrap_bounds, bootstrap_interval, share_interval, wilson_interval


def test_bootstrap_interval_of_a_known_spread() -> None:
    # 100 problems of which 40 are solved: standard error sqrt(.4 * .6 / 100) = .049, so +-.096 at 95 %.
    interval = bootstrap_interval([1.0] * 40 + [0.0] * 60)
    assert interval.mean == pytest.approx(0.4)
    assert interval.low == pytest.approx(0.304, abs=0.02)
    assert interval.high == pytest.approx(0.496, abs=0.02)
    assert interval.problems == 100
    narrower = bootstrap_interval([1.0] * 40 + [0.0] * 60, level=0.5)
    assert interval.low < narrower.low < 0.4 < narrower.high < interval.high


def test_bootstrap_interval_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        values = generator.normal(0.3, 1.0, 60)
        interval = bootstrap_interval(values.tolist(), resamples=300, seed=trial)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_a_share_of_equal_problems_has_an_interval() -> None:
    low, high = wilson_interval(0.5, 10)
    assert (low, high) == pytest.approx((0.236593, 0.763407), abs=1e-6)  # worked by hand: z = 1.959964
    none = share_interval([0.0] * 8)
    assert (none.mean, none.low, none.problems) == (0.0, 0.0, 8)
    assert none.high == pytest.approx(0.324408, abs=1e-6)
    assert share_interval([0.0] * 8, level=0.5).high < none.high
    between = [0.4] * 8  # measured so for each problem: no eight answers of yes or no
    assert share_interval(between) == bootstrap_interval(between)
    mixed = [1.0] * 3 + [0.0] * 5
    assert share_interval(mixed) == bootstrap_interval(mixed)


def test_bootstrap_interval_is_seeded() -> None:
    values = np.random.default_rng(0).normal(size=50).tolist()
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
    assert bootstrap_interval(values, resamples=10) != bootstrap_interval(values)
    single = bootstrap_interval([0.25])
    assert (single.low, single.high) == (0.25, 0.25)


def test_bounds_of_a_mean_are_those_of_its_interval() -> None:
    values = np.random.default_rng(0).normal(size=50)
    known = bootstrap_interval(values.tolist(), resamples=200, seed=3)
    found = bootstrap_bounds(lambda places: {"mean": float(values[places].mean())}, 50, resamples=200, seed=3)
    assert found == {"mean": (known.low, known.high)}


def test_bounds_of_a_ratio_of_sums_cover_as_often_as_they_say() -> None:
    # Problems of 1 to 6 samples, whose share of right ones is correlated within a problem.
    covered = 0
    for trial in range(150):
        generator = np.random.default_rng(trial)
        sizes = generator.integers(1, 7, 60)
        right = generator.binomial(sizes, generator.beta(2, 2, 60))

        def share(
            places: np.ndarray, right: np.ndarray = right, sizes: np.ndarray = sizes
        ) -> dict[str, float]:
            return {"share": float(right[places].sum() / sizes[places].sum())}

        low, high = bootstrap_bounds(share, 60, resamples=200, seed=trial)["share"]
        covered += low <= 0.5 <= high
    assert 0.88 <= covered / 150 <= 0.99


def test_draws_without_a_figure_do_not_count() -> None:
    # Of two problems only the first has a figure: drawn in three of four draws, then always 1.
    def figure(places: np.ndarray) -> dict[str, float | None]:
        return {"figure": 1.0 if 0 in places else None, "never": None}

    assert bootstrap_bounds(figure, 2, resamples=50) == {"figure": (1.0, 1.0)}


def test_impossible_intervals_are_refused() -> None:
    for values in ([], [float("nan")]):
        with pytest.raises(ValueError, match="finite"):
            bootstrap_interval(values)
    with pytest.raises(ValueError, match="level=1"):
        bootstrap_interval([1.0], level=1.0)
    with pytest.raises(ValueError, match="resamples=0"):
        bootstrap_interval([1.0], resamples=0)
    with pytest.raises(ValueError, match="problems=0"):
        bootstrap_bounds(lambda places: {}, 0)
