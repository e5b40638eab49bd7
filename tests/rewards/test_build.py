"""From a `reward` node to a scorer: what is built, and how everything wrong with it is told at once."""

from typing import Any

import pytest
from fakes_config import Constant

import rewards
from rewards.build import build, build_scorer, check_reward, locate
from rewards.composite import Composite
from rewards.config import ComponentConfig, RewardConfig
from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample, Verdict

CONSTANT = "fakes_config.Constant"
FORMAT = {"_target_": "rewards.format.FormatSpec", "think_open": "<t>", "think_close": "</t>"}


def reward_of(**scorers: dict[str, Any]) -> RewardConfig:
    return RewardConfig({name: ComponentConfig(0.5, None, scorer) for name, scorer in scorers.items()})


def refusal(reward: RewardConfig) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_reward(reward)
    return str(caught.value).splitlines()


def test_a_scorer_is_built_with_its_nested_format() -> None:
    composite = build_scorer(reward_of(a={"_target_": CONSTANT, "value": 1, "limit": 3, "format": FORMAT}))
    expected = Constant(1, FormatSpec(think_open="<t>", think_close="</t>"), limit=3)
    assert composite.components["a"].scorer == expected
    assert composite.score([Sample(Problem("p", ""), "")])[0].value == 0.5


def test_every_fault_is_told_at_once_before_anything_is_built() -> None:
    lines = refusal(
        reward_of(
            a={"_target_": CONSTANT, "valeu": 2.0},
            b={"_target_": CONSTANT, "value": "high", "mode": "fancier", "limit": 1.5},
            c={"_target_": "fakes_config.Constnt"},
            d={"_target_": "no.such.module.Class"},
            e={},
            f={"_target_": CONSTANT, "value": 0.0, "format": {**FORMAT, "think_opn": "x"}},
        )
    )
    assert lines == [
        "reward.components.a.scorer.valeu: fakes_config.Constant has no such setting; "
        "it has value, format, mode, limit; did you mean 'value'?",
        "reward.components.a.scorer.value: fakes_config.Constant needs this setting",
        "reward.components.b.scorer.value=high: expected float",
        "reward.components.b.scorer.mode=fancier: expected one of plain, fancy",
        "reward.components.b.scorer.limit=1.5: expected int or null",
        "reward.components.c.scorer._target_=fakes_config.Constnt: no 'Constnt' in fakes_config; "
        "did you mean 'Constant'?",
        "reward.components.d.scorer._target_=no.such.module.Class: cannot import 'no.such.module': "
        "No module named 'no'",
        "reward.components.e.scorer._target_: expected the path of a class, such as package.module.Class",
        "reward.components.f.scorer.format.think_opn: rewards.format.FormatSpec has no such setting; "
        "it has think_open, think_close, mode, answer_style, answer_open, answer_close, instruction; "
        "did you mean 'think_open'?",
    ]


def test_faults_of_the_mix_are_told_beside_those_of_the_scorers() -> None:
    reward = reward_of(a={"_target_": CONSTANT, "value": 1.0}, b={"_target_": CONSTANT})
    reward.components["a"].gate = "c"
    assert [line.split(":")[0] for line in refusal(reward)] == [
        "reward.components.a.gate=c",
        "reward.components.b.scorer.value",
    ]


def test_what_a_constructor_refuses_is_a_config_error_too() -> None:
    with pytest.raises(ConfigError, match="value=2"):
        build_scorer(reward_of(a={"_target_": CONSTANT, "value": 2.0}))


def test_building_does_not_change_the_node() -> None:
    node = {"_target_": CONSTANT, "value": 1.0, "format": dict(FORMAT)}
    build(node)
    assert node == {"_target_": CONSTANT, "value": 1.0, "format": FORMAT}


@pytest.mark.parametrize("path", ["Constant", "", "fakes_config."])
def test_a_path_without_module_or_name_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        locate(path)


def test_load_scorer_pays_the_named_mix() -> None:
    scorer = rewards.load_scorer("format+verifiable", "reward.components.format.weight=0.25")
    assert isinstance(scorer, Composite)
    assert {name: part.weight for name, part in scorer.components.items()} == {
        "format": 0.25,
        "accuracy": 1.0,
    }
    problem = Problem("p", "1+1=", ("2",))
    right, wrong = scorer.score(
        [Sample(problem, r"<think>1+1=2</think>\boxed{2}"), Sample(problem, r"<think>1+1=3</think>\boxed{3}")]
    )
    assert (right.value, wrong.value) == (1.25, 0.25)


def test_load_scorer_refuses_an_unknown_name_with_the_valid_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"verifable: no such reward; expected one of .*did you mean 'verifiable'"
    ):
        rewards.load_scorer("verifable+format")


@pytest.mark.parametrize("reward", [5, None])
def test_load_scorer_refuses_what_is_no_name(reward: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a name, one of arithmetic_steps|no such reward"):
        rewards.load_scorer(reward)


@pytest.mark.parametrize(
    ("gold", "prediction", "value"),
    [
        ("1/2", r"so the answer is \boxed{0.5}", 1.0),
        ("42", "42", 1.0),
        ("42", "41", 0.0),
        (42, "42", 1.0),
        (42.0, "42", 1.0),
        ([1, "2"], r"\boxed{1}, \boxed{2}", 1.0),
        (None, "42", None),
        ([], "42", None),
        ("42", r"<think>it is 42</think>\boxed{41}", 0.0),
    ],
)
def test_verify(gold: Any, prediction: str, value: float | None) -> None:
    assert rewards.verify(gold=gold, prediction=prediction).value == value


@pytest.mark.parametrize("gold", [True, b"42", [None], [["42"]], {"42": 1}, float("nan")])
def test_verify_names_a_gold_of_another_type(gold: Any) -> None:
    with pytest.raises(TypeError, match=r"verify: gold=.*: expected a string, a number, a list of these"):
        rewards.verify(gold=gold, prediction="42")


@pytest.mark.parametrize("prediction", [None, 42, b"42", ["42"]])
def test_verify_names_a_prediction_that_is_no_text(prediction: Any) -> None:
    with pytest.raises(TypeError, match=r"verify: prediction=.*: expected a string"):
        rewards.verify(gold="42", prediction=prediction)


@pytest.mark.parametrize("gold", ["42", (42,), (None,)])
def test_a_problem_refuses_a_gold_that_is_no_tuple_of_strings(gold: Any) -> None:
    with pytest.raises(TypeError, match="Problem 'q': gold must be a tuple of strings"):
        Problem("q", "", gold)


def test_verify_abstains_without_a_gold_and_asks_for_all_of_several() -> None:
    abstained = rewards.verify(gold="", prediction="42")
    assert (abstained.verdict, abstained.reason) == (Verdict.ABSTAINED, Reason.NO_GOLD)
    assert rewards.verify(gold=["1", "2"], prediction=r"\boxed{1}").value == 0.0
