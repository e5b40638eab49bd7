"""The settings of the loop around the steps: what is settled by itself, and what is refused."""

from pathlib import Path

import pytest

from grpo.config import TRAIN
from grpo.learned import FITTED, learned_parts, with_weights
from rewards.build import build_scorer
from rewards.errors import ConfigError

ORM = ("reward=orm", "iterate=deepseekmath")


def test_the_sizes_follow_the_model() -> None:
    tiny = TRAIN.load(ORM)
    hub = TRAIN.load([*ORM, "model=hub", "model.name=some/model", "data=gsm8k"])
    assert tiny.iterate is not None
    assert hub.iterate is not None
    assert (hub.rollout.group_size, hub.algorithm.kl_coefficient) == (64, 0.04)
    assert (hub.iterate.reward_model.learning_rate, hub.iterate.reward_model.history_share) == (2e-5, 0.1)
    assert tiny.rollout.group_size < hub.rollout.group_size
    assert tiny.algorithm.kl_coefficient == 0.04
    assert tiny.iterate.reference == hub.iterate.reference
    assert TRAIN.load([*ORM, "rollout.group_size=5"]).rollout.group_size == 5
    assert TRAIN.load(["reward=verifiable"]).iterate is None


def test_a_reward_model_without_a_path_is_fitted_only_in_a_run_that_iterates() -> None:
    (part,) = learned_parts(TRAIN.load(ORM).reward)
    assert (part.name, part.kind, part.is_fitted_here) == ("orm", "outcome", True)
    (part,) = learned_parts(TRAIN.load(["reward=verifiable+prm", "iterate=deepseekmath"]).reward)
    assert (part.name, part.kind, part.is_fitted_here) == ("prm", "process", True)
    (part,) = learned_parts(TRAIN.load([*ORM, "reward.components.orm.scorer.model.path=some/model"]).reward)
    assert part.settings["path"] == "some/model"
    with pytest.raises(ConfigError, match=r"orm\.scorer\.model\.path: a value is needed"):
        TRAIN.load(["reward=orm"])
    with pytest.raises(ConfigError, match="only a run with an outer loop fits"):
        TRAIN.load(["reward=orm", f"reward.components.orm.scorer.model.path={FITTED}"])


def test_other_weights_bring_their_own_convention() -> None:
    path = "reward.components.orm.scorer.model"
    reward = TRAIN.load([*ORM, f"{path}.path=some/model", f"{path}.convention=skywork-reward"]).reward
    other = with_weights(reward, "orm", Path("there"))
    (part,) = learned_parts(other)
    assert (part.settings["path"], part.settings["convention"]) == ("there", None)
    assert learned_parts(reward)[0].settings["path"] == "some/model"
    build_scorer(other)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["reward=verifiable"], "no reward model pays here"),
        (["reward=orm+prm"], "orm, prm are all learned"),
        (["reward=orm", "algorithm.kl_coefficient=0"], "compares with no reference"),
        (["reward=orm", "iterate.reference.follow=steps"], "iterate.reference.every=None"),
        (["reward=orm", "iterate.reference.every=3"], "iterate.reference.every=3"),
        (["reward=orm", "iterate.reference.follow=ema"], "iterate.reference.decay=None"),
        (["reward=orm", "iterate.reference.follow=ema", "iterate.reference.decay=1.0"], "below 1"),
        (["reward=orm", "iterate.reward_model.refit=gap"], "iterate.reward_model.gap=None"),
        (["reward=orm", "iterate.reward_model.gap=0.1"], "exactly with refit=gap"),
        (["reward=orm", "iterate.steps=500"], "no round would end"),
        (["reward=orm", "iterate.replay.eviction=any"], "expected one of age, reservoir"),
    ],
)
def test_what_would_have_no_effect_is_refused(overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TRAIN.load(["iterate=deepseekmath", *overrides])


def test_an_alarm_can_ask_for_a_refit_where_there_is_a_reward_model() -> None:
    static = [*ORM, "iterate.reward_model.refit=off"]
    assert TRAIN.load([*static, "watch.on_alarm=refit"]).watch.on_alarm == "refit"
    with pytest.raises(ConfigError, match=r"watch\.on_alarm=refit"):
        TRAIN.load(["reward=verifiable", "watch.on_alarm=refit"])
