"""Weights, gates and verdicts of a mix, with numbers worked by hand."""

import itertools
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from rewards.composite import Component, Composite
from rewards.errors import ConfigError, EngineError
from rewards.types import Problem, Reason, Sample, Score, StepScore, Verdict

SAMPLE = Sample(Problem("p", "1+1=", ("2",)), "2")


@dataclass(frozen=True)
class Fixed:
    """A scorer that gives every sample the same score."""

    result: Score

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [self.result for _ in samples]


@dataclass(frozen=True)
class Short:
    """A broken scorer: one score too few."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [Score.scored(1.0, Reason.MATCH_STRING) for _ in samples[1:]]


@dataclass(frozen=True)
class TextLength:
    """Scores the length of the text, to see that rows are not mixed up."""

    factor: float = 1.0

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [Score.scored(self.factor * len(sample.text), Reason.LENGTH) for sample in samples]


def scored(value: float) -> Fixed:
    return Fixed(Score.scored(value, Reason.MODEL, version="fixed/1"))


ABSTAINS = Fixed(Score.abstained(Reason.NO_GOLD))
FAILS = Fixed(Score.failed(Reason.WORKER_DIED))


def score_of(**components: Component) -> Score:
    return Composite(components).score([SAMPLE])[0]


def assert_sum_of_parts(score: Score) -> None:
    total = math.fsum(part.weight * part.score.value for part in score.parts if part.score.value is not None)
    assert score.value == total


def test_value_is_the_weighted_sum_and_parts_keep_raw_values() -> None:
    # 1.0 * 0.5 + 0.2 * 1.0 = 0.7
    score = score_of(accuracy=Component(1.0, scored(0.5)), format=Component(0.2, scored(1.0)))
    assert score.value == pytest.approx(0.7)
    assert score.reason is Reason.COMBINED
    assert [(part.name, part.weight, part.score.value) for part in score.parts] == [
        ("accuracy", 1.0, 0.5),
        ("format", 0.2, 1.0),
    ]
    assert_sum_of_parts(score)


def test_the_order_of_components_changes_no_bit() -> None:
    # Plain addition of these depends on the order: (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3).
    components = {
        "a": Component(0.1, scored(1.0)),
        "b": Component(0.2, scored(1.0)),
        "c": Component(0.3, scored(1.0)),
    }
    values = {
        Composite(dict(order)).score([SAMPLE])[0].value
        for order in itertools.permutations(components.items())
    }
    assert values == {0.6}


def test_one_component_alone_keeps_its_reason() -> None:
    score = score_of(accuracy=Component(1.0, Fixed(Score.scored(0.0, Reason.NO_ANSWER))))
    assert (score.value, score.reason) == (0.0, Reason.NO_ANSWER)


@pytest.mark.parametrize(("gate_value", "paid"), [(1.0, 1.5), (0.0, 0.0), (-1.0, -1.0)])
def test_a_gate_pays_only_where_the_named_part_passed(gate_value: float, paid: float) -> None:
    # accuracy 1 * g, length 0.5 * 1 only where g > 0: 1 + 0.5, 0, -1
    score = score_of(
        accuracy=Component(1.0, scored(gate_value)), length=Component(0.5, scored(1.0), gate="accuracy")
    )
    assert score.value == paid
    assert score.parts[1].score.value == 1.0
    assert score.parts[1].weight == (0.5 if gate_value > 0 else 0.0)
    assert score.reason is (Reason.COMBINED if gate_value > 0 else Reason.GATED)
    assert score.notes == ({} if gate_value > 0 else {"gated": "length"})
    assert_sum_of_parts(score)


def test_an_unpaid_component_can_be_a_gate() -> None:
    score = score_of(
        accuracy=Component(0.0, scored(1.0)), length=Component(0.5, scored(1.0), gate="accuracy")
    )
    assert score.value == 0.5


def test_an_abstaining_part_is_left_out() -> None:
    score = score_of(accuracy=Component(1.0, ABSTAINS), format=Component(0.2, scored(1.0)))
    assert (score.verdict, score.value) == (Verdict.SCORED, 0.2)
    assert (score.reason, score.notes) == (Reason.PART_ABSTAINED, {"abstained": "accuracy"})


def test_a_part_behind_an_abstaining_gate_is_left_out_too() -> None:
    with_gate = Component(0.5, scored(1.0), gate="accuracy")
    score = score_of(accuracy=Component(1.0, ABSTAINS), length=with_gate, format=Component(0.2, scored(1.0)))
    assert (score.value, score.notes) == (0.2, {"abstained": "accuracy,length"})
    assert score_of(accuracy=Component(1.0, ABSTAINS), length=with_gate).verdict is Verdict.ABSTAINED


def test_the_whole_abstains_when_no_paid_part_is_left() -> None:
    score = score_of(accuracy=Component(1.0, ABSTAINS), seen=Component(0.0, scored(1.0)))
    assert (score.verdict, score.value, score.reason) == (Verdict.ABSTAINED, None, Reason.PART_ABSTAINED)
    assert [part.name for part in score.parts] == ["accuracy", "seen"]


@pytest.mark.parametrize("other", [scored(0.0), scored(1.0), ABSTAINS])
def test_whether_a_sample_is_judged_never_depends_on_another_parts_value(other: Fixed) -> None:
    first = score_of(a=Component(1.0, ABSTAINS), b=Component(0.2, scored(0.0)), c=Component(0.2, other))
    assert first.verdict is Verdict.SCORED


def test_a_failed_part_fails_the_whole() -> None:
    score = score_of(
        accuracy=Component(1.0, scored(1.0)), model=Component(0.5, FAILS), none=Component(1.0, ABSTAINS)
    )
    assert (score.verdict, score.value, score.reason) == (Verdict.FAILED, None, Reason.PART_FAILED)
    assert score.notes["failed"] == "model"
    assert len(score.parts) == 3


def test_a_failed_gate_of_a_paid_part_fails_the_whole() -> None:
    score = score_of(model=Component(0.0, FAILS), length=Component(1.0, scored(1.0), gate="model"))
    assert score.verdict is Verdict.FAILED


def test_a_failed_part_that_only_the_logs_see_changes_nothing() -> None:
    score = score_of(accuracy=Component(1.0, scored(1.0)), seen=Component(0.0, FAILS))
    assert (score.verdict, score.value) == (Verdict.SCORED, 1.0)
    assert score.parts[1].score.verdict is Verdict.FAILED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_our_failure(value: float) -> None:
    score = score_of(model=Component(1.0, scored(value)))
    assert (score.verdict, score.parts[0].score.reason) == (Verdict.FAILED, Reason.INTERNAL)


def test_steps_come_from_the_only_part_that_has_them() -> None:
    steps = (StepScore(0, 1, 1.0),)
    stepped = Fixed(Score(Verdict.SCORED, 1.0, Reason.STEPS, steps=steps))
    assert score_of(a=Component(1.0, scored(1.0)), b=Component(1.0, stepped)).steps == steps
    assert score_of(a=Component(1.0, stepped), b=Component(1.0, stepped)).steps == ()


@pytest.mark.parametrize(
    ("gate", "paid"), [(scored(1.0), (1.0, 0.5)), (scored(0.0), (0.0, 0.0)), (scored(-1.0), (0.0, 0.0))]
)
def test_a_closed_gate_pays_no_step(gate: Fixed, paid: tuple[float, ...]) -> None:
    steps = (StepScore(0, 1, 1.0), StepScore(1, 1, 0.5))
    stepped = Fixed(Score(Verdict.SCORED, 0.75, Reason.STEPS, steps=steps))
    score = score_of(accuracy=Component(1.0, gate), prm=Component(0.0, stepped, gate="accuracy"))
    assert tuple(step.value for step in score.steps) == paid
    assert [(step.start, step.end) for step in score.steps] == [(0, 1), (1, 1)]
    assert score.parts[1].score.steps == steps  # raw, as its value is


@pytest.mark.parametrize("gate", [ABSTAINS, FAILS])
def test_steps_behind_a_gate_that_did_not_judge_are_left_out(gate: Fixed) -> None:
    stepped = Fixed(Score(Verdict.SCORED, 1.0, Reason.STEPS, steps=(StepScore(0, 1, 1.0),)))
    unpaid = Component(0.0, stepped, gate="accuracy")
    score = score_of(accuracy=Component(0.0, gate), prm=unpaid, format=Component(1.0, scored(1.0)))
    assert (score.verdict, score.steps) == (Verdict.SCORED, ())


def test_versions_of_the_parts_are_kept() -> None:
    assert score_of(a=Component(1.0, scored(1.0)), b=Component(1.0, scored(1.0))).version == "fixed/1,fixed/1"


def test_rows_keep_their_order_and_empty_gives_empty() -> None:
    composite = Composite({"a": Component(1.0, TextLength()), "b": Component(0.5, TextLength(2.0))})
    samples = [Sample(SAMPLE.problem, "x" * n) for n in (3, 0, 7)]
    assert [score.value for score in composite.score(samples)] == [6.0, 0.0, 14.0]
    assert composite.score([]) == []


def test_survives_pickle() -> None:
    composite = Composite({"a": Component(1.0, TextLength()), "b": Component(0.5, scored(1.0), gate="a")})
    copy = pickle.loads(pickle.dumps(composite))
    assert copy == composite
    assert copy.score([SAMPLE]) == composite.score([SAMPLE])


def test_a_scorer_that_loses_rows_stops_the_run() -> None:
    with pytest.raises(EngineError, match="'short': 1 scores for 2 samples"):
        Composite({"short": Component(1.0, Short())}).score([SAMPLE, SAMPLE])


def test_everything_wrong_with_a_mix_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Composite(
            {
                "accuracy": Component(math.nan, scored(1.0)),
                "format": Component(1.0, scored(1.0), gate="acuracy"),
                "length": Component(1.0, scored(1.0), gate="length"),
            }
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "accuracy.weight=nan" in lines[0]
    assert "format.gate=acuracy" in lines[1]
    assert "did you mean 'accuracy'?" in lines[1]
    assert "length.gate=length: expected the name of another component" in lines[2]
    assert "did you mean" not in lines[2]


@pytest.mark.parametrize("components", [{}, {"a": Component(0.0, scored(1.0))}])
def test_a_mix_that_pays_nothing_is_refused(components: dict[str, Component]) -> None:
    with pytest.raises(ConfigError, match=r"reward: (no component|every weight is 0)"):
        Composite(components)
