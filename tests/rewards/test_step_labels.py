"""Monte-Carlo step labels, with policies whose chances are known."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.completer import Continuation, Request
from rewards.errors import ConfigError, DataError, EngineError
from rewards.format import FormatSpec
from rewards.labelled import ProcessExample, example_from_record
from rewards.step_estimates import (
    Counts,
    Method,
    Repair,
    StepLabelSettings,
    count_violations,
    repair_labels,
    wilson_interval,
)
from rewards.step_labels import Spending, label_steps
from rewards.step_solutions import LabelledSolution, Solution, cut_solution
from rewards.types import Problem, Reason, Sample, Score
from rewards.verifiers.accuracy import AccuracyVerifier

PROBLEM = Problem("p", "37+45=", ("82",), "number")
VERIFIER = AccuracyVerifier(FormatSpec(mode="off"))
RIGHT, WRONG = r"so \boxed{82}", r"so \boxed{72}"


@dataclass
class KnownChances:
    """A policy that is right with a chance that the number of steps in the prefix decides."""

    chance: Callable[[int], float]
    rounds: list[list[Request]] = field(default_factory=list)

    def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
        self.rounds.append(list(requests))
        return [[self._draw(request, i) for i in range(request.number)] for request in requests]

    def _draw(self, request: Request, index: int) -> Continuation:
        steps = request.prefix.count("\n\n")
        lucky = random.Random(f"{request.key}/{index}").random() < self.chance(steps - 1)
        return Continuation(RIGHT if lucky else WRONG, tokens=5)

    def probed(self) -> list[int]:
        """The steps asked about, in order."""
        return [request.prefix.count("\n\n") - 1 for requests in self.rounds for request in requests]


def solution(steps: int, answer: str = WRONG, key: str = "s", truncated: bool = False) -> Solution:
    """`steps` steps and then the answer as the last one."""
    texts = (*(f"step {number}.\n\n" for number in range(steps)), answer)
    return Solution(Sample(PROBLEM, "".join(texts), truncated=truncated), texts, key)


def until(first_lost: int) -> KnownChances:
    """A policy that is always right before the step `first_lost`, and never from it on."""
    return KnownChances(lambda step: 1.0 if step < first_lost else 0.0)


def values(labelled: LabelledSolution) -> list[float | None]:
    return [estimate.value for estimate in labelled.estimates]


@pytest.mark.parametrize("method", ["soft", "hard", "first_error"])
def test_every_method_finds_the_step_from_which_nothing_is_right(method: Method) -> None:
    (labelled,) = label_steps([solution(4)], until(2), VERIFIER, StepLabelSettings(method=method))
    assert values(labelled) == [1, 1, 0, 0, 0]
    assert labelled.finished
    assert labelled.violations == 0


def test_the_last_step_and_copied_answers_cost_no_completion() -> None:
    texts = ("3+1+4=8.\n\n", RIGHT, " That is all.\n\n", "Done.")
    told = Solution(Sample(PROBLEM, "".join(texts)), texts, "s")
    policy = until(0)
    (labelled,) = label_steps([told], policy, VERIFIER, StepLabelSettings(completions=4))
    assert [estimate.basis for estimate in labelled.estimates] == [
        "completions",
        "answer",
        "answer",
        "answer",
    ]
    assert values(labelled) == [0, 1, 1, 1]
    assert set(policy.probed()) == {0}


def test_an_answer_that_is_changed_later_is_not_taken_for_the_last_word() -> None:
    texts = (WRONG + ".\n\n", "No, wait.\n\n", RIGHT)
    told = Solution(Sample(PROBLEM, "".join(texts)), texts, "s")
    (labelled,) = label_steps([told], until(9), VERIFIER, StepLabelSettings())
    assert [estimate.basis for estimate in labelled.estimates] == ["completions", "completions", "answer"]


def test_a_text_that_was_cut_off_has_no_label_for_its_torn_step() -> None:
    cut = solution(2, "and the", truncated=True)
    wanted_by: dict[Method, list[float | None]] = {"hard": [1, 0, None], "first_error": [1, 0, 0]}
    for method, wanted in wanted_by.items():
        (labelled,) = label_steps([cut], until(1), VERIFIER, StepLabelSettings(method=method))
        assert values(labelled) == wanted


def test_soft_labels_are_shares_with_their_interval() -> None:
    policy = KnownChances(lambda step: [0.75, 0.25][step])
    options = StepLabelSettings(method="soft", completions=400)
    (labelled,) = label_steps([solution(2)], policy, VERIFIER, options)
    first, second, last = labelled.estimates
    # three standard deviations of 400 draws are 0.065
    assert first.value == pytest.approx(0.75, abs=0.065)
    assert second.value == pytest.approx(0.25, abs=0.065)
    assert (first.low, first.high) == wilson_interval(first.successes, 400)
    assert (last.value, last.basis, last.trials, last.low, last.high) == (0.0, "answer", 0, 0.0, 1.0)
    assert labelled.completions == 800
    assert labelled.tokens == 4000


def test_hard_labels_stop_at_the_first_success_and_at_the_bound() -> None:
    policy = until(1)
    (labelled,) = label_steps([solution(2)], policy, VERIFIER, StepLabelSettings(completions=8, wave=3))
    # right at once: one wave; never right: 3 + 3 + 2
    assert [estimate.trials for estimate in labelled.estimates] == [3, 8, 0]
    assert [[request.number for request in requests] for requests in policy.rounds] == [[3, 3], [3], [2]]
    assert policy.rounds[0][0].prefix == "step 0.\n\n"


@pytest.mark.parametrize("first_lost", range(17))
def test_binary_search_asks_about_log2_of_the_steps(first_lost: int) -> None:
    policy = until(first_lost)
    options = StepLabelSettings(method="first_error", completions=2)
    (labelled,) = label_steps([solution(16)], policy, VERIFIER, options)
    assert values(labelled) == [1.0] * first_lost + [0.0] * (17 - first_lost)
    assert len(set(policy.probed())) <= math.ceil(math.log2(17))
    own = {step for step, estimate in enumerate(labelled.estimates) if estimate.basis == "completions"}
    assert own == set(policy.probed())


def test_binary_search_leaves_right_solutions_alone() -> None:
    policy = until(0)
    (labelled,) = label_steps([solution(5, RIGHT)], policy, VERIFIER, StepLabelSettings(method="first_error"))
    assert values(labelled) == [1.0] * 6
    assert policy.rounds == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 99), st.booleans())
@settings(max_examples=40, deadline=None)
def test_first_error_labels_never_rise_whatever_the_policy(
    chances: list[float], seed: int, is_right: bool
) -> None:
    told = solution(len(chances), RIGHT if is_right else WRONG)
    options = StepLabelSettings(method="first_error", completions=3, seed=seed)
    (labelled,) = label_steps([told], KnownChances(lambda step: chances[step]), VERIFIER, options)
    found = [value for value in values(labelled) if value is not None]
    assert found == sorted(found, reverse=True)
    assert len(found) == len(chances) + 1


def test_a_solution_is_labelled_alike_in_any_company_and_order() -> None:
    options = StepLabelSettings(method="soft", completions=4)
    together = [solution(3, key=f"s{number}") for number in range(4)]
    policy = KnownChances(lambda step: 0.5)
    batch = label_steps(together, policy, VERIFIER, options)
    assert len(policy.rounds) == 1  # one call for all steps of all solutions
    assert label_steps(together[::-1], policy, VERIFIER, options) == batch[::-1]
    assert [label_steps([one], policy, VERIFIER, options)[0] for one in together] == batch
    other_seed = label_steps(
        together, policy, VERIFIER, StepLabelSettings(method="soft", completions=4, seed=1)
    )
    assert [values(one) for one in other_seed] != [values(one) for one in batch]


def test_equal_keys_are_refused() -> None:
    with pytest.raises(DataError, match="different keys"):
        label_steps([solution(1), solution(2)], until(1), VERIFIER, StepLabelSettings())


def test_rises_are_counted_and_repaired_where_asked_for() -> None:
    def label(repair: Repair) -> LabelledSolution:
        policy = KnownChances(lambda step: [1.0, 0.0, 1.0, 0.0][step])
        options = StepLabelSettings(repair=repair)
        return label_steps([solution(4)], policy, VERIFIER, options)[0]

    wanted: dict[Repair, list[int]] = {
        "none": [1, 0, 1, 0, 0],
        "later_success": [1, 1, 1, 0, 0],
        "first_failure": [1, 0, 0, 0, 0],
    }
    for repair, labels in wanted.items():
        labelled = label(repair)
        assert values(labelled) == labels
        assert labelled.violations == 1
        changed = [e.basis for e in labelled.estimates if e.basis == "order"]
        assert len(changed) == (repair != "none")


@given(st.lists(st.sampled_from([0.0, 1.0, None]), max_size=12))
def test_repaired_labels_hold_no_violation(labels: list[float | None]) -> None:
    for repair in ("later_success", "first_failure"):
        repaired = repair_labels(labels, repair)
        assert count_violations(repaired) == 0
        assert [label is None for label in repaired] == [label is None for label in labels]
        kept = [label for label in repaired if label is not None]
        assert kept == sorted(kept, reverse=True)
    slow = sum(
        label == 0 and any((later or 0) > 0 for later in labels[place + 1 :])
        for place, label in enumerate(labels)
    )
    assert count_violations(labels) == slow


def test_a_budget_ends_before_a_batch_and_says_so() -> None:
    policy = until(1)
    told = [solution(4, key="a"), solution(4, key="b")]
    options = StepLabelSettings(method="first_error", completions=4, wave=4)
    # a wave costs 4 x 5 tokens; the search takes three of each solution
    labelled = label_steps(told, policy, VERIFIER, options, Spending(tokens=41))
    assert sum(one.tokens for one in labelled) == 60
    enough = label_steps(told, until(1), VERIFIER, options, Spending(tokens=10_000))
    assert enough == label_steps(told, until(1), VERIFIER, options)
    assert labelled[0] == enough[0]  # those before are finished first
    assert enough[1].finished is True
    assert labelled[1].finished is False
    assert values(labelled[1]) == [None, None, None, None, 0.0]
    nothing = label_steps(told, until(1), VERIFIER, options, Spending(tokens=0))
    assert [one.completions for one in nothing] == [0, 0]


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("tokens", [1, 40, 200, 700])
def test_no_more_than_one_wave_is_asked_for_beyond_the_budget(method: Method, tokens: int) -> None:
    told = [solution(9, key=f"s{number}") for number in range(8)]
    policy, options = KnownChances(lambda step: 0.3), StepLabelSettings(method=method, completions=8, wave=8)
    labelled = label_steps(told, policy, VERIFIER, options, Spending(tokens=tokens, at_once=32))
    # a wave of all K, of 5 tokens each
    assert tokens <= sum(one.tokens for one in labelled) < tokens + 8 * 5
    assert max(sum(request.number for request in requests) for requests in policy.rounds) <= 32


@pytest.mark.parametrize("method", get_args(Method))
def test_what_was_begun_goes_on_to_the_same_labels(method: Method) -> None:
    told = [solution(4, key=f"s{number}") for number in range(3)]
    options = StepLabelSettings(method=method, completions=6, wave=2)
    whole = label_steps(told, KnownChances(lambda step: 0.3), VERIFIER, options)
    kept: dict[str, Counts] = {}
    asked: list[tuple[str, int]] = []
    for tokens in range(0, 5 * 6 * 5 * 3, 25):
        policy = KnownChances(lambda step: 0.3)
        spending = Spending(tokens=tokens, begun=dict(kept), keep=kept.update)
        labelled = label_steps(told, policy, VERIFIER, options, spending)
        asked += [(request.key, request.number) for requests in policy.rounds for request in requests]
    assert labelled == whole
    assert len(asked) == len(set(asked))  # nothing is paid for twice
    assert sum(number for _, number in asked) == sum(one.completions for one in whole)


def test_soft_labels_stop_where_their_interval_is_narrow() -> None:
    policy = KnownChances(lambda step: [1.0, 0.5, 0.0][step])
    options = StepLabelSettings(method="soft", completions=64, wave=4, width=0.35, seed=1)
    (labelled,) = label_steps([solution(3)], policy, VERIFIER, options)
    first, second, third, _ = labelled.estimates
    # all or none of 7 leave 0.354, of 8 0.324; a half needs 28
    assert (first.trials, third.trials) == (8, 8)
    assert second.trials in (24, 28)
    assert all(one.high - one.low <= 0.35 for one in (first, second, third))
    bounded = label_steps([solution(3)], policy, VERIFIER, replace(options, completions=12))
    assert [one.trials for one in bounded[0].estimates] == [8, 12, 8, 0]
    whole = label_steps([solution(3)], policy, VERIFIER, replace(options, width=0.0, completions=12))
    assert [one.trials for one in whole[0].estimates] == [12, 12, 12, 0]


def test_a_hard_label_that_the_budget_left_undecided_is_none() -> None:
    options = StepLabelSettings(completions=8, wave=2)
    (labelled,) = label_steps([solution(2)], until(1), VERIFIER, options, Spending(tokens=11))
    assert values(labelled) == [1, None, 0]
    assert labelled.estimates[1].trials == 2  # what was paid for stays on record


def test_a_problem_nobody_can_judge_costs_nothing_and_has_no_labels() -> None:
    texts = ("a\n\n", "b")
    lost = Solution(Sample(Problem("p", "q", ()), "a\n\nb"), texts, "s")
    policy = until(1)
    for method in get_args(Method):
        (labelled,) = label_steps([lost], policy, VERIFIER, StepLabelSettings(method=method))
        assert values(labelled) == [None, None]
        assert labelled.finished
    assert policy.rounds == []


@dataclass
class FailsOnBoxes:
    """A scorer whose machinery breaks on every text with a box."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [
            Score.failed(Reason.WORKER_DIED)
            if "boxed" in sample.text
            else Score.scored(0.0, Reason.NO_ANSWER)
            for sample in samples
        ]


@pytest.mark.parametrize("method", ["soft", "hard", "first_error"])
def test_completions_that_could_not_be_judged_are_in_no_label(method: Method) -> None:
    options = StepLabelSettings(method=method, completions=4)
    (labelled,) = label_steps([solution(2, "none")], until(1), FailsOnBoxes(), options)
    assert labelled.finished
    assert labelled.failed == labelled.completions > 0
    assert labelled.estimates[-1].value == 0
    assert None in values(labelled)


def test_a_completer_that_miscounts_is_told_so() -> None:
    class Short:
        def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
            return [[] for _ in requests]

    with pytest.raises(EngineError, match="another number"):
        label_steps([solution(1)], Short(), VERIFIER, StepLabelSettings())


def test_labels_become_a_line_that_reads_back_as_an_example() -> None:
    (labelled,) = label_steps([solution(2)], until(1), VERIFIER, StepLabelSettings())
    steps = ("step 0.\n\n", "step 1.\n\n", WRONG)
    assert labelled.example("mc") == ProcessExample("37+45=", steps, (1.0, 0.0, 0.0), "mc", "s")
    record = labelled.record("mc")
    assert example_from_record(record, "x") == labelled.example("mc")
    assert record["estimates"][1]["trials"] == 8
    assert record["scorer"] == "accuracy/1"


def test_a_sample_is_cut_by_the_step_rules() -> None:
    sample = Sample(PROBLEM, "<think>First.\n\nSecond.</think>82", prefill="")
    assert cut_solution(sample, "k").steps == ("<think>First.\n\n", "Second.</think>", "82")
    with pytest.raises(DataError, match="join to its text"):
        Solution(sample, ("other",), "k")


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # worked by the formula, z = 1.95996: 4 of 8 is (0.5 + z^2/16 -+ ...) / (1 + z^2/8)
    [(4, 8, 0.2152, 0.7848), (8, 8, 0.6756, 1.0), (1, 10, 0.0179, 0.4042), (0, 0, 0.0, 1.0)],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "easy"}, "method='easy': expected one of soft, hard, first_error"),
        ({"repair": "yes"}, "repair='yes'"),
        ({"completions": 0}, "completions=0"),
        ({"wave": 0}, "wave=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"method": "soft", "repair": "later_success"}, "is for method=hard"),
        ({"method": "soft", "width": 1.0}, "width=1.0: expected 0"),
        ({"method": "hard", "width": 0.3}, "width=0.3: is for method=soft; hard stops at the first right"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepLabelSettings(**options)  # pyright: ignore
