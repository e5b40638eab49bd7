"""Alarms: raised by histories that show what they warn of, and by no healthy one."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from grpo.alarms import (
    GOLD,
    LENGTH,
    PROXY,
    REFIT_TAKEN,
    SILENT,
    WITHIN,
    Alarm,
    AlarmSettings,
    alarm_metric,
    raised,
)
from grpo.probes import HONEST, SHORTCUT, probe_metric

SETTINGS = AlarmSettings(window=10, length_ratio=1.5, silent_share=0.8)
Curve = Callable[[int], float]


def history(
    steps: int,
    gold: Curve,
    proxy: Curve,
    *,
    length: Curve = lambda _: 20.0,
    silent: Curve = lambda _: 0.1,
    noise: float = 0.03,
) -> list[dict[str, float]]:
    """A run of given means; the noise is that of a share over a few hundred completions."""
    rng = random.Random(0)
    return [
        {
            "step": float(step),
            GOLD: gold(step) + rng.gauss(0, noise),
            PROXY: proxy(step) + rng.gauss(0, noise),
            LENGTH: length(step) + rng.gauss(0, 10 * noise),
            SILENT: silent(step),
        }
        for step in range(1, steps + 1)
    ]


def run(lines: Sequence[dict[str, float]], settings: AlarmSettings = SETTINGS) -> list[tuple[int, Alarm]]:
    """The alarms of a run as it goes on, with their steps; marks them as a run does."""
    found: list[tuple[int, Alarm]] = []
    for place, line in enumerate(lines):
        for alarm in raised(lines[: place + 1], settings):
            line[alarm_metric(alarm.kind)] = 1.0
            found.append((int(line["step"]), alarm))
    return found


def up_then_down(step: int) -> float:
    """Gold rises from 0.4 to 0.9 in 50 steps and then loses 0.01 a step."""
    return 0.4 + 0.01 * min(step, 50) - 0.01 * max(0, step - 50)


def test_a_reward_that_rises_while_gold_falls_is_told_before_a_third_of_the_gain_is_lost() -> None:
    alarms = run(history(90, up_then_down, lambda step: 0.02 * step))
    step, alarm = alarms[0]
    assert alarm.kind == "gap"
    assert up_then_down(50) - up_then_down(step) < (up_then_down(50) - up_then_down(1)) / 3
    assert "the reward rose from" in alarm.text
    assert f"up to step {step})" in alarm.text


def test_what_goes_on_is_said_again_after_four_windows() -> None:
    steps = [step for step, _ in run(history(150, up_then_down, lambda step: 0.02 * step))]
    assert len(steps) > 1
    assert {later - earlier for earlier, later in pairwise(steps)} == {40}


@pytest.mark.parametrize(
    ("gold", "proxy"),
    [
        (lambda step: min(0.95, 0.4 + 0.01 * step), lambda step: min(0.95, 0.4 + 0.01 * step)),
        (lambda step: 0.5, lambda step: 0.5),
        (lambda step: 0.5, lambda step: 0.01 * step),
        (up_then_down, up_then_down),
        (lambda step: 0.5 - 0.002 * step, lambda step: 0.5),
        (lambda step: 0.4 + 0.01 * min(step, 50), lambda step: 0.02 * step),
    ],
    ids=["both rise", "both flat", "only reward rises", "both fall", "only gold falls", "gold stays up"],
)
def test_a_run_without_a_gap_is_silent(gold: Curve, proxy: Curve) -> None:
    assert run(history(150, gold, proxy)) == []


def test_rewards_of_two_reward_models_are_not_compared() -> None:
    # The second model pays more for everything, and gold begins to fall where it takes over.
    lines = history(70, up_then_down, lambda step: 0.5 if step <= 50 else 2.5)
    assert run([dict(line) for line in lines])[0][1].kind == "gap"
    lines[49][REFIT_TAKEN] = 1.0
    assert run(lines) == []


def test_steps_without_a_gold_are_passed_over() -> None:
    lines = history(90, up_then_down, lambda step: 0.02 * step)
    for line in lines[::3]:
        del line[GOLD]
    assert run(lines)[0][1].kind == "gap"
    for line in lines:
        line.pop(GOLD, None)
    assert raised(lines, SETTINGS) == []
    assert raised(lines[:1], SETTINGS) == []


@pytest.mark.parametrize(
    ("length", "word"),
    [
        (lambda step: 20.0 + max(0, step - 20), "grew"),
        (lambda step: 20.0 - 0.5 * max(0, step - 20), "shrank"),
    ],
)
def test_length_that_buys_nothing_runs_away(length: Curve, word: str) -> None:
    lines = history(50, lambda _: 0.5, lambda _: 0.5, length=length, noise=0.01)
    (step, alarm) = run(lines)[0]
    assert (alarm.kind, word in alarm.text, step > 20) == ("length", True, True)


def test_a_reward_that_no_longer_tells_right_from_wrong() -> None:
    lines = history(40, lambda _: 0.5, lambda _: 0.5)
    rng = random.Random(1)
    for line in lines:
        line[WITHIN] = max(0.3, 0.9 - 0.03 * max(0, line["step"] - 10)) + rng.gauss(0, 0.05)
    (step, alarm) = run(lines)[0]
    # Half of the lead is lost at 0.7, after step 16; the mean over ten steps comes there five later.
    assert (alarm.kind, 20 <= step <= 23) == ("blind", True)
    assert "the right one was paid more in 89 % of all pairs, and now is in 69 %" in alarm.text


def test_a_reward_that_never_knew_is_no_news() -> None:
    lines = history(150, lambda _: 0.5, lambda _: 0.5)
    rng = random.Random(1)
    for line in lines:
        line[WITHIN] = 0.48 + rng.gauss(0, 0.1)
    assert run(lines) == []


def test_length_that_comes_with_gold_is_no_alarm() -> None:
    lines = history(80, lambda step: 0.1 + 0.01 * step, lambda _: 0.5, length=lambda step: 20.0 + 2 * step)
    assert run(lines) == []


def test_groups_that_lose_their_signal() -> None:
    lines = history(30, lambda _: 0.1, lambda _: 0.1, silent=lambda step: 0.5 if step < 15 else 0.95)
    (step, alarm) = run(lines)[0]
    assert (alarm.kind, step) == ("signal", 21)  # 7 steps at 0.95 and 3 at 0.5 have a mean of 0.815
    assert "82 %" in alarm.text


def probed(**means: float) -> dict[str, float]:
    return {probe_metric(kind): mean for kind, mean in means.items()}


def test_a_probe_is_told_when_it_catches_up_with_honest_work() -> None:
    lines = history(4, lambda _: 0.5, lambda _: 0.5)
    lines[0] |= probed(**{HONEST: 1.0, "empty": 0.2, "repetition": 1.5, SHORTCUT: 1.0})
    lines[3] |= probed(**{HONEST: 1.0, "empty": 1.0, "repetition": 1.5, SHORTCUT: 2.0})
    ((step, alarm),) = run(lines)
    assert (step, alarm.kind) == (4, "probe")
    assert alarm.text == "the reward now pays 1.000 for nothing at all and 1.000 for right work"


def test_the_same_history_raises_the_same_alarms() -> None:
    lines = history(90, up_then_down, lambda step: 0.02 * step)
    assert run([dict(line) for line in lines]) == run([dict(line) for line in lines])
