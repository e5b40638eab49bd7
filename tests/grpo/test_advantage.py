"""Advantages: golden numbers, plain loops, and traps 1 to 8 and 10 of group normalisation."""

from __future__ import annotations

import itertools
import random

import pytest
import reference
import torch

from grpo.advantage import AdvantageSettings, advantage_settings, constant_groups, outcome_advantages
from grpo.algorithm import BASELINES, GROUP_BASELINES, GROUP_SCALES, SCALES, AlgorithmConfig
from rewards.errors import ConfigError

NAN = float("nan")
PAIRS = [(b, s) for b in BASELINES for s in SCALES if s not in GROUP_SCALES or b in GROUP_BASELINES]
TWO_REWARDS = [[[1, 0.2], [0, 0.4], [0, 0.2], [1, 0.8]], [[1, 0.5], [1, 0.5], [0, 0.1], [1, 0.9]]]
WITH_NONE = [[[1, NAN], [0, 0.4], [NAN, NAN], [1, 0.8]]]


def values(rewards: list, weights: list[float] | None = None, **settings: object) -> torch.Tensor:
    chosen = AdvantageSettings(**settings)  # type: ignore[arg-type]
    return outcome_advantages(torch.tensor(rewards, dtype=torch.float32), chosen, weights=weights).values


def close(actual: torch.Tensor, expected: list, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(
        actual.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance
    )


# --- golden numbers for r = [1, 0, 0, 0] ---


@pytest.mark.parametrize(
    ("baseline", "scale", "eps", "first", "rest"),
    [
        ("group_mean", "group_std", 1e-4, 1.49970006, -0.49990002),
        ("group_mean", "group_std", 1e-6, 1.499997, -0.499999),
        ("group_mean", "group_std", 1e-9, 1.5, -0.5),
        ("group_mean", "group_std_biased", 1e-8, 1.73205077, -0.57735026),
        ("group_mean", "group_std_biased", 1e-4, 1.7316509, -0.5772170),
        ("group_mean", "none", 1e-4, 0.75, -0.25),
        ("leave_one_out", "none", 1e-4, 1.0, -1 / 3),
        ("group_mean", "group_mean", 0.0, 3.0, -1.0),  # MaxRL: (1 - 1/4) / (1/4)
        ("leave_one_out", "leave_one_out_std", 1e-6, 1.0, -0.57734927),
    ],
)
def test_golden_one_of_four(baseline: str, scale: str, eps: float, first: float, rest: float) -> None:
    close(values([[1, 0, 0, 0]], baseline=baseline, scale=scale, eps=eps), [[first, rest, rest, rest]])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.6171181, -0.7713977, -0.9256772, 1.0799568, 0.3903734, 0.3903734, -1.4834189, 0.7026722]),
        (
            {"scale": "batch_std"},
            [0.6475645, -0.8094557, -0.9713467, 1.1332377, 0.4047278, 0.4047278, -1.5379657, 0.7285101],
        ),
        (
            {"combine": "normalize_then_sum"},
            [0.4056524, -0.6854259, -0.9651994, 1.2449729, 0.3957202, 0.3957202, -1.6717656, 0.8803252],
        ),
    ],
)
def test_golden_two_rewards(settings: dict[str, str], expected: list[float]) -> None:
    close(values(TWO_REWARDS, weights=[1.0, 0.5], **settings).reshape(-1), expected)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.2181823, -1.0909108, 0, 0.8727288]),
        ({"scale": "none"}, [0.1333334, -0.6666666, 0, 0.5333333]),
        ({"combine": "normalize_then_sum"}, [0.4380053, -1.1441847, 0, 0.7061794]),
    ],
)
def test_golden_two_rewards_with_none(settings: dict[str, str], expected: list[float]) -> None:
    close(values(WITH_NONE, weights=[1.0, 0.5], **settings).reshape(-1), expected)


# --- against plain loops ---


@pytest.mark.parametrize(("baseline", "scale"), PAIRS)
def test_equals_plain_loops(baseline: str, scale: str) -> None:
    rng = random.Random(f"{baseline} {scale}")
    for _ in range(20):
        size = rng.randint(2, 6)
        groups = [
            [rng.choice([None, 0.0, 1.0, rng.random()]) for _ in range(size)]
            for _ in range(rng.randint(1, 4))
        ]
        if all(r is None for group in groups for r in group):
            continue
        expected = reference.advantages(groups, baseline, scale, 1e-4)
        rewards = [[NAN if r is None else r for r in group] for group in groups]
        actual = outcome_advantages(
            torch.tensor(rewards, dtype=torch.float64), AdvantageSettings(baseline=baseline, scale=scale)
        )
        close(actual.values, expected, 2e-6 * max(1.0, max(abs(a) for row in expected for a in row)))


# --- traps ---


@pytest.mark.parametrize("combine", ["sum_then_normalize", "normalize_then_sum"])
@pytest.mark.parametrize(("baseline", "scale"), [p for p in PAIRS if p[0] != "none"])
def test_trap_01_identical_rewards_give_exactly_zero(baseline: str, scale: str, combine: str) -> None:
    settings = AdvantageSettings(baseline=baseline, scale=scale, combine=combine, eps=1e-9)
    for value, size in itertools.product((0.1, 0.3, 0.7, 0.9, 1.1, 1e4 + 0.1), range(2, 17)):
        for dtype in (torch.float32, torch.float64):
            rewards = torch.full((1, size), value, dtype=dtype)
            result = outcome_advantages(rewards, settings)
            assert result.values.count_nonzero() == 0
            assert bool(result.zero_signal.all())
            assert bool(constant_groups(rewards, torch.ones(1, size, dtype=torch.bool)).all())


def test_trap_01_weighted_sums_that_differ_in_rounding_are_equal() -> None:
    # 0.1 + 0.2 and 0.3 + 0.0 differ by one unit in the last place of a double.
    assert 0.1 + 0.2 != 0.3
    parts = torch.tensor([[[0.1, 0.2], [0.3, 0.0]]], dtype=torch.float64)
    result = outcome_advantages(parts, AdvantageSettings(eps=0.0))
    assert result.values.count_nonzero() == 0


def test_trap_01_a_silent_group_stays_silent_when_the_batch_is_whitened() -> None:
    parts = [[[0.7, 0.1]] * 3, [[1.0, NAN], [0.0, 0.4], [0.0, 0.8]]]
    result = values(parts, combine="normalize_then_sum")
    assert result[0].count_nonzero() == 0
    assert result[1].count_nonzero() > 0


def test_trap_02_every_mode_differs_from_every_other() -> None:
    rewards = [[1.0, 0.0, 0.25, 0.5], [3.0, 0.0, 0.0, 0.5]]
    seen = {pair: values(rewards, baseline=pair[0], scale=pair[1]) for pair in PAIRS}
    for (name_a, a), (name_b, b) in itertools.combinations(seen.items(), 2):
        # Taking one number off all rewards leaves the batch's spread as it was.
        same = name_a[0] == name_b[0] in ("batch_mean", "none") and "none" not in (name_a[1], name_b[1])
        assert torch.allclose(a, b) == same, (name_a, name_b)


def test_trap_03_none_is_not_zero() -> None:
    with_none = outcome_advantages(torch.tensor([[1.0, NAN, 0.0, 1.0]]), AdvantageSettings())
    alone = values([[1.0, 0.0, 1.0]])
    close(with_none.values[:, [0, 2, 3]], alone.tolist(), 1e-9)
    assert with_none.values[0, 1] == 0
    assert with_none.valid.tolist() == [[True, False, True, True]]
    flagged = outcome_advantages(
        torch.tensor([[1.0, 55.0, 0.0, 1.0]]),
        AdvantageSettings(),
        valid=torch.tensor([[True, False, True, True]]),
    )
    assert torch.equal(flagged.values, with_none.values)


def test_trap_03_one_scored_row_or_none_has_no_signal() -> None:
    result = outcome_advantages(torch.tensor([[1.0, NAN, NAN], [NAN, NAN, NAN]]), AdvantageSettings())
    assert result.values.count_nonzero() == 0
    assert result.zero_signal.tolist() == [True, True]


def test_trap_04_groups_are_rows_of_the_tensor_and_order_within_them_is_free() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.25, NAN], [1.0, 1.0, 0.0, 0.5]])
    whole = outcome_advantages(rewards, AdvantageSettings()).values
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(outcome_advantages(rewards[:, order], AdvantageSettings()).values, whole[:, order])
    # Groups do not see each other, and a flat list is refused instead of being grouped by guess.
    alone = outcome_advantages(rewards[:1], AdvantageSettings()).values
    assert torch.equal(alone, whole[:1])
    with pytest.raises(ValueError, match=r"expected \(P, G\)"):
        outcome_advantages(rewards.reshape(-1), AdvantageSettings())
    with pytest.raises(ValueError, match="valid"):
        outcome_advantages(rewards, AdvantageSettings(), valid=torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("scale", ["group_std", "group_std_biased", "leave_one_out_std", "batch_std", "none"])
def test_trap_06_a_common_offset_changes_nothing(scale: str) -> None:
    # One-pass variance in float32 loses all digits here: 1e8 + 0.25 has no quarter in float32.
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0]])
    settings = AdvantageSettings(baseline="leave_one_out", scale=scale)
    plain = outcome_advantages(rewards, settings).values
    close(outcome_advantages(rewards + 1e4, settings).values, plain.tolist(), 1e-3)


def test_trap_07_silence_is_judged_on_the_reward_that_is_passed() -> None:
    correct = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    length_penalty = torch.tensor([[0.0, -0.1, -0.2], [0.0, 0.0, 0.0]])
    valid = torch.ones_like(correct, dtype=torch.bool)
    assert constant_groups(correct, valid).tolist() == [True, False]
    assert constant_groups(correct + length_penalty, valid).tolist() == [False, False]
    # One wrong row that was not scored leaves equal rows.
    valid[1, 1] = False
    assert constant_groups(correct, valid).tolist() == [True, True]


def test_trap_08_a_score_of_zero_is_a_score() -> None:
    result = outcome_advantages(torch.tensor([[0.0, 1.0]]), AdvantageSettings(scale="none"))
    assert result.values.tolist() == [[-0.5, 0.5]]
    assert result.valid.all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("baseline", "leave_one_out"),
        ("scale", "none"),
        ("scale", "batch_std"),
        ("combine", "normalize_then_sum"),
        ("eps", 0.1),
        ("tolerance", 2.0),
    ],
)
def test_trap_08_every_option_changes_the_result(name: str, value: object) -> None:
    assert not torch.allclose(values(TWO_REWARDS), values(TWO_REWARDS, **{name: value}))


def test_trap_08_weights_arrive() -> None:
    assert not torch.allclose(values(TWO_REWARDS, weights=[1, 1]), values(TWO_REWARDS, weights=[1, 0.5]))
    with pytest.raises(ValueError, match="weights: expected 2"):
        values(TWO_REWARDS, weights=[1.0])


@pytest.mark.parametrize("rewards", [[[0.7, 0.7, 0.7]], [[1.0, 0.0, 0.0]]])
def test_trap_10_advantages_own_their_memory(rewards: list) -> None:
    source = torch.tensor(rewards, dtype=torch.float32)
    result = outcome_advantages(source, AdvantageSettings(baseline="none", scale="none")).values
    before = result.clone()
    result[0, 0] = 99.0
    assert torch.equal(result[0, 1:], before[0, 1:])
    assert source[0, 0] == rewards[0][0]


# --- what the modes are for ---


def test_gdpo_keeps_apart_what_a_sum_makes_equal() -> None:
    # Correct without format, and format without correctness: the sums are equal, the advantages are not.
    parts = [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    summed = values(parts)
    apart = values(parts, combine="normalize_then_sum")
    assert summed[0, 0] == summed[0, 1]
    assert apart[0, 0] > apart[0, 1] + 0.1


def test_rewards_shifted_by_a_constant_give_the_same_advantages() -> None:
    rewards = torch.tensor([[0.2, 0.9, 0.4], [0.0, 0.5, 0.1]])
    for baseline, scale in PAIRS:
        if baseline == "none" or scale == "group_mean":
            continue
        settings = AdvantageSettings(baseline=baseline, scale=scale)
        shifted = outcome_advantages(rewards + 3, settings).values
        close(shifted, outcome_advantages(rewards, settings).values.tolist(), 1e-5)


def test_leave_one_out_with_its_own_spread_does_not_explode() -> None:
    # Rows that are equal but for rounding are no spread: dividing by it would give thousands.
    rewards = torch.tensor([[1.0, 0.1 + 0.2, 0.3, 0.3]], dtype=torch.float64)
    settings = AdvantageSettings(baseline="leave_one_out", scale="leave_one_out_std")
    assert outcome_advantages(rewards, settings).values.abs().max() < 2


@pytest.mark.parametrize("scale", ["batch_std", "batch_centred_std"])
def test_equal_rewards_without_a_baseline_are_not_divided_by_their_rounding(scale: str) -> None:
    # A KL of 1e-7 is charged to rewards of .2: divided by its spread they would be 2000.
    rewards = torch.tensor([[0.2, 0.2 - 1e-7], [0.2 - 2e-7, 0.2]], dtype=torch.float64)
    settings = AdvantageSettings(baseline="none", scale=scale)
    close(outcome_advantages(rewards, settings).values, [[0.2, 0.2], [0.2, 0.2]], 1e-5)


def test_infinite_rewards_are_refused_unless_the_row_is_invalid() -> None:
    rewards = torch.tensor([[1.0, float("inf"), 0.0]])
    with pytest.raises(ValueError, match="infinite"):
        outcome_advantages(rewards, AdvantageSettings())
    result = outcome_advantages(rewards, AdvantageSettings(), valid=torch.tensor([[True, False, True]]))
    close(result.values, [[0.7070068, 0.0, -0.7070068]])  # +-0.5 / (0.70710678 + 1e-4)


def test_maxrl_refuses_rewards_with_a_sign() -> None:
    with pytest.raises(ConfigError, match=r"rewards >= 0, got -0\.5; set algorithm\.scale=group_std"):
        values([[1.0, -0.5]], scale="group_mean")


def test_settings_come_from_the_algorithm_and_bad_ones_are_refused() -> None:
    algorithm = AlgorithmConfig(baseline="leave_one_out", scale="none", combine="normalize_then_sum")
    assert advantage_settings(algorithm) == AdvantageSettings("leave_one_out", "none", "normalize_then_sum")
    with pytest.raises(ConfigError, match="did you mean 'group_mean'"):
        AdvantageSettings(baseline="groupmean")
    with pytest.raises(ConfigError, match="eps"):
        AdvantageSettings(eps=-1.0)
