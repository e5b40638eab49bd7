"""The control: reproducible, uniform, blind to whether an answer is right."""

import subprocess
import sys
from dataclasses import replace

import pytest

import rewards
from rewards.types import Problem, Sample, Verdict
from rewards.verifiers.random_control import RandomControl, draw

PROBLEM = Problem("sum-1", "6*7=", ("42",))
SAMPLE = Sample(PROBLEM, "<think>x</think>\\boxed{42}")


@pytest.mark.parametrize(
    "other",
    [
        replace(SAMPLE, text="<think>x</think>\\boxed{43}"),
        replace(SAMPLE, index=1),
        replace(SAMPLE, policy_version=1),
        replace(SAMPLE, problem=replace(PROBLEM, id="sum-2")),
    ],
)
def test_any_difference_gives_another_number(other: Sample) -> None:
    assert draw(other) != draw(SAMPLE)


def test_neighbouring_parts_of_the_key_are_kept_apart() -> None:
    one = Sample(Problem("a", ""), "text", index=11, policy_version=1)
    two = Sample(Problem("a", ""), "text", index=1, policy_version=11)
    assert draw(one) != draw(two)


def test_the_number_is_the_same_in_another_process() -> None:
    code = (
        "from rewards.types import Problem, Sample; from rewards.verifiers.random_control import draw;"
        "print(repr(draw(Sample(Problem('sum-1', '6*7='), '<think>x</think>\\\\boxed{42}'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == draw(SAMPLE)


def test_it_is_uniform_and_does_not_see_what_is_right() -> None:
    right = [draw(replace(SAMPLE, policy_version=n)) for n in range(4000)]
    wrong = [draw(replace(SAMPLE, text="\\boxed{0}", policy_version=n)) for n in range(4000)]
    # the mean of 4000 uniform numbers has a standard deviation of sqrt(1/12/4000) = 0.0046: five of them
    assert sum(right) / 4000 == pytest.approx(0.5, abs=0.023)
    assert sum(wrong) / 4000 == pytest.approx(0.5, abs=0.023)
    assert min(right) >= 0
    assert max(right) < 1
    tenths = [sum(n / 10 <= x < (n + 1) / 10 for x in right) for n in range(10)]
    assert all(300 < count < 500 for count in tenths)  # 400 expected, standard deviation 19


def test_it_never_abstains() -> None:
    samples = [SAMPLE, Sample(Problem("without gold", "?"), "")]
    assert [score.verdict for score in RandomControl().score(samples)] == [Verdict.SCORED] * 2


def test_it_loads_by_name() -> None:
    (score,) = rewards.load_scorer("random").score([SAMPLE])
    assert score.value == draw(SAMPLE)
    assert score.parts[0].score.reason == "random"
