"""Estimators: known numbers, brute force over all subsets, order and ties."""

from itertools import combinations
from math import comb
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo.estimators import best_of_n, majority_at_k, pass_at_k


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.4642857), (4, 0.7857143), (8, 1.0)])
def test_pass_at_k_of_two_right_in_eight(k: int, expected: float) -> None:
    assert pass_at_k(8, 2, k) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_pass_at_k_equals_the_binomials(n: int) -> None:
    for c in range(n + 1):
        for k in range(1, n + 1):
            assert pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


def test_pass_at_k_of_very_many_samples() -> None:
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)
    assert pass_at_k(100_000, 0, 10) == 0.0
    assert pass_at_k(100_000, 100_000, 1) == 1.0


SAMPLES = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9])), st.booleans()), min_size=1, max_size=7
)


@settings(max_examples=150, deadline=None)
@given(SAMPLES, st.data())
def test_best_of_n_equals_all_subsets(samples: list[tuple[float | None, bool]], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(samples)))
    outcomes: list[float] = []
    for subset in combinations(samples, n):
        scored = [(score, right) for score, right in subset if score is not None]
        best = max((score for score, _ in scored), default=None)
        tied = [right for score, right in scored if score == best]
        outcomes.append(fmean(tied) if tied else 0.0)
    scores = [score for score, _ in samples]
    correct = [right for _, right in samples]
    assert best_of_n(scores, correct, n) == pytest.approx(fmean(outcomes), abs=1e-12)
    assert best_of_n(scores[::-1], correct[::-1], n) == pytest.approx(fmean(outcomes), abs=1e-12)


def test_best_of_one_is_the_accuracy_and_a_perfect_scorer_is_pass_at_n() -> None:
    correct = [True, False, False, True, False]
    assert best_of_n([3.0, 1.0, 2.0, 5.0, 4.0], correct, 1) == pytest.approx(0.4)
    for n in range(1, 6):
        assert best_of_n([float(right) for right in correct], correct, n) == pytest.approx(pass_at_k(5, 2, n))


def test_majority_of_all_samples() -> None:
    correct = [True, True, False, False, False]
    assert majority_at_k(["a", "a", "b", "c", "d"], correct, 5) == 1.0
    assert majority_at_k(["a", "a", "b", "b", "b"], correct, 5) == 0.0
    # Two classes tie with two votes each, one of them right.
    assert majority_at_k(["a", "a", "b", "b", "c"], correct, 5) == 0.5
    # No answer has no vote, however frequent.
    assert majority_at_k(["a", "b", None, None, None], [True, False, False, False, False], 5) == 0.5
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_weighted_majority() -> None:
    classes, correct = ["a", "b", "b"], [True, False, False]
    assert majority_at_k(classes, correct, 3) == 0.0
    assert majority_at_k(classes, correct, 3, weights=[0.9, 0.2, 0.3]) == 1.0
    assert majority_at_k(classes, correct, 3, weights=[0.5, 0.25, 0.25]) == 0.5
    with pytest.raises(ValueError, match="logits"):
        majority_at_k(classes, correct, 3, weights=[-1.0, 0.2, 0.3])


def test_majority_of_fewer_samples_tends_to_the_mean_over_subsets() -> None:
    classes = ["a", "a", "a", "b", "b", "c"]
    correct = [True, True, True, False, False, False]
    exact = fmean(
        majority_at_k([classes[i] for i in s], [correct[i] for i in s], 3) for s in combinations(range(6), 3)
    )
    assert majority_at_k(classes, correct, 3, trials=4000) == pytest.approx(exact, abs=0.03)
    assert majority_at_k(classes, correct, 1, trials=4000) == pytest.approx(0.5, abs=0.03)
    assert majority_at_k(classes, correct, 3) == majority_at_k(classes, correct, 3)
    assert majority_at_k(classes, correct, 3, seed=1) != majority_at_k(classes, correct, 3, seed=2)
    assert majority_at_k(classes, correct, 3, trials=1) in (0.0, 1 / 3, 0.5, 1.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.booleans(), st.floats(0, 1)), min_size=1))
def test_majority_does_not_depend_on_the_order(samples: list[tuple[str | None, bool, float]]) -> None:
    def vote(rows: list[tuple[str | None, bool, float]]) -> float:
        columns = list(zip(*rows, strict=True))
        return majority_at_k(columns[0], columns[1], len(rows), weights=columns[2])

    assert vote(samples) == pytest.approx(vote(samples[::-1]), abs=1e-12)


def test_impossible_input_is_refused() -> None:
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"k={k}: expected 1 to 3"):
            pass_at_k(3, 1, k)
        with pytest.raises(ValueError, match=f"k={k}: expected 1 to 3"):
            majority_at_k(["a"] * 3, [True] * 3, k)
        with pytest.raises(ValueError, match=f"k={k}: expected 1 to 3"):
            best_of_n([1.0] * 3, [True] * 3, k)
    with pytest.raises(ValueError, match="correct=4"):
        pass_at_k(3, 4, 1)
    with pytest.raises(ValueError, match="NaN"):
        best_of_n([float("nan")], [True], 1)
    with pytest.raises(ValueError, match="expected as many"):
        best_of_n([1.0], [True, False], 1)
    with pytest.raises(ValueError, match="expected as many"):
        majority_at_k(["a"], [True, False], 1)
