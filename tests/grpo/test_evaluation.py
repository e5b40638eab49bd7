"""The figures of a held-out measurement, worked by hand."""

import pytest

from grpo.evaluation import Outcome, summarise


def outcome(*right: bool | None) -> Outcome:
    return Outcome(right, right[0], right, (5,) * len(right), (False,) * len(right))


def test_the_interval_of_mixed_problems_is_the_normal_one() -> None:
    found = summarise([outcome(True, True), outcome(True, False), outcome(False, False)])
    assert found["eval/heldout/accuracy"] == 0.5
    half = 1.96 * 0.5 / 3**0.5
    assert found["eval/heldout/accuracy_low"] == pytest.approx(max(0.0, 0.5 - half))
    assert found["eval/heldout/accuracy_high"] == pytest.approx(min(1.0, 0.5 + half))


@pytest.mark.parametrize(
    ("right", "problems", "low", "high"),
    [(False, 8, 0.0, 0.32441), (True, 8, 0.67559, 1.0), (False, 1, 0.0, 0.79345)],
)
def test_problems_that_are_all_alike_leave_a_doubt(
    right: bool, problems: int, low: float, high: float
) -> None:
    found = summarise([outcome(right)] * problems)
    assert found["eval/heldout/accuracy"] == float(right)
    assert found["eval/heldout/accuracy_low"] == pytest.approx(low, abs=1e-5)
    assert found["eval/heldout/accuracy_high"] == pytest.approx(high, abs=1e-5)


def test_what_was_not_judged_is_left_out() -> None:
    found = summarise([outcome(None)])
    assert "eval/heldout/accuracy" not in found
    assert "eval/heldout/accuracy_low" not in found
    assert found["eval/heldout/unscored"] == 1.0
