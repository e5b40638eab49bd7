"""Health notes: each said once when first true, silent on a healthy run, counted at the end."""

import math

import pytest

from grpo.health import RULES, WINDOW, HealthWatch

HEALTHY = {
    "loss": 0.02,
    "reward": 0.9,
    "reward_std": 0.4,
    "reward/accuracy/mean": 0.6,
    "reward/format/mean": 0.98,
    "frac_reward_zero_std": 0.3,
    "groups/frac_silent": 0.3,
    "groups/duplicates": 0.2,
    "completions/clipped_ratio": 0.02,
    "verdict/accuracy/failed": 0.0,
    "verdict/total/abstained": 0.0,
    "reason/accuracy/mismatch": 0.4,
    "grad_norm": 1.0,
    "update/skipped": 0.0,
}


def test_a_healthy_run_is_silent() -> None:
    watch = HealthWatch()
    for _ in range(3 * WINDOW):
        assert watch.notice(HEALTHY) == []
    assert watch.notice({}) == []
    assert watch.summary() == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"loss": -1e-8}, "a loss near 0 is normal"),
        ({"groups/frac_silent": 0.6}, "60 % of the groups carry no signal (all paid alike); try a larger"),
        ({"groups/frac_silent": 0.6, "groups/frac_all_good": 0.5}, "try harder problems"),
        ({"groups/frac_silent": 0.6, "groups/frac_all_bad": 0.5}, "try easier problems"),
        ({"completions/clipped_ratio": 0.51}, "51 % of the completions were cut off"),
        ({"reason/accuracy/timeout": 0.03}, "3 % of the answers took too long"),
        ({"verdict/accuracy/failed": 0.004}, "0.4 % of the scores failed through our own fault"),
        (
            {"verdict/total/abstained": 0.25},
            "25 % of the completions belong to problems that cannot",
        ),
        (
            {
                "probe/honest/mean": 0.5,
                "probe/echo/mean": 0.5,
                "probe/empty/mean": 0.7,
                "probe/box/mean": 0.4,
            },
            "pays as much for nothing at all and for the question given back as for right work (0.500)",
        ),
        ({"groups/duplicates": 0.75}, "75 % of the completions repeat another"),
        ({"update/skipped": 1.0, "grad_norm": math.nan}, "an update was left out"),
    ],
)
def test_each_note_is_said_once(change: dict[str, float], expected: str) -> None:
    watch = HealthWatch()
    (text,) = watch.notice(HEALTHY | change)
    assert expected in text
    assert watch.notice(HEALTHY | change) == []
    assert watch.notice(HEALTHY) == []
    assert watch.summary() == [f"{text} [2 steps]"]


def test_equal_rewards_are_no_silence_where_tokens_are_told_apart() -> None:
    assert HealthWatch().notice(HEALTHY | {"frac_reward_zero_std": 1.0}) == []


def test_groups_of_one_have_no_spread_to_lack() -> None:
    alone = {name: value for name, value in HEALTHY.items() if name != "reward_std"}
    assert HealthWatch().notice(alone | {"groups/frac_silent": 1.0}) == []


def test_every_rule_is_tried_above() -> None:
    everything = {
        "loss": 0.0,
        "reward_std": 0.0,
        "groups/frac_silent": 1.0,
        "completions/clipped_ratio": 1.0,
        "reason/accuracy/timeout": 1.0,
        "verdict/accuracy/failed": 1.0,
        "verdict/total/abstained": 1.0,
        "groups/duplicates": 1.0,
        "probe/honest/mean": 0.5,
        "probe/empty/mean": 0.5,
        "update/skipped": 1.0,
        "grad_norm": math.inf,
    }
    assert len(HealthWatch().notice(everything)) == len(RULES) == 9


def test_a_step_without_any_advantage_is_no_broken_gradient() -> None:
    assert HealthWatch().notice(HEALTHY | {"update/skipped": 1.0, "grad_norm": 0.0}) == []


def test_repeats_of_a_policy_that_is_right_are_fine() -> None:
    assert HealthWatch().notice(HEALTHY | {"groups/duplicates": 0.9, "reward/accuracy/mean": 0.97}) == []


@pytest.mark.parametrize(
    ("layout", "rise", "start", "said"),
    [
        (1.0, 0.0, 0.5, True),  # saturated and flat
        (1.0, 0.01, 0.5, False),  # rises by 0.01 a step: 0.1 between the halves
        (0.9, 0.0, 0.5, False),  # the layout is still learned
        (1.0, 0.0, 0.95, False),  # flat because it is at the top
    ],
)
def test_a_saturated_layout_beside_flat_accuracy(
    layout: float, rise: float, start: float, said: bool
) -> None:
    watch = HealthWatch()
    notes = [
        watch.notice(HEALTHY | {"reward/format/mean": layout, "reward/accuracy/mean": start + rise * step})
        for step in range(WINDOW)
    ]
    assert all(note == [] for note in notes[:-1])
    assert bool(notes[-1]) is said
