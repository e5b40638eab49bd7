"""conf/algorithm: every file is read, complete and accepted; contradictions and dead options are refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import conf
from grpo.advantage import advantage_settings
from grpo.algorithm import AlgorithmConfig, ValueConfig, check_algorithm
from grpo.loss import loss_settings
from rewards.errors import ConfigError
from rewards.options import problems_of

FILES = sorted((Path(conf.__file__).parent / "algorithm").glob("*.yaml"))
GRPO = next(path for path in FILES if path.stem == "grpo")
PPO = next(path for path in FILES if path.stem == "ppo")
NAMES = [field.name for field in fields(AlgorithmConfig)]


def load(path: Path) -> AlgorithmConfig:
    merged = OmegaConf.merge(OmegaConf.structured(AlgorithmConfig), OmegaConf.load(path))
    algorithm = OmegaConf.to_object(merged)
    assert isinstance(algorithm, AlgorithmConfig)
    return algorithm


def named(name: str) -> AlgorithmConfig:
    return load(next(path for path in FILES if path.stem == name))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_file_has_every_key_once_explained_and_is_accepted(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    keys = [i for i, line in enumerate(lines) if line and not line.startswith(("#", " "))]
    assert [lines[i].split(":")[0] for i in keys] == NAMES
    assert all(lines[i - 1].startswith("# ") for i in keys)
    algorithm = load(path)
    check_algorithm(algorithm, components=2)
    if algorithm.value is None:
        advantage_settings(algorithm)
    loss_settings(algorithm)


def test_the_named_algorithms_are_there_and_differ() -> None:
    stems = {path.stem for path in FILES}
    assert stems >= {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_pp", "ppo", "ppo_penalty"}
    loaded = [load(path) for path in FILES]
    assert all(a != b for i, a in enumerate(loaded) for b in loaded[:i])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "groupmean"}, "algorithm.baseline=groupmean: .* did you mean 'group_mean'"),
        ({"scale": "std"}, "scale=std"),
        ({"combine": "sum"}, "combine=sum"),
        ({"objective": "clipped"}, "did you mean 'clip'"),
        ({"baseline": "none"}, "zero spread"),
        ({"baseline": "batch_mean"}, "zero spread"),
        ({"clip_low": None}, "needs both"),
        ({"clip_low": 1.5}, "0 < clip_low <= 1"),
        ({"clip_high": 0.0}, "clip_high=0.0"),
        ({"dual_clip": 1.1}, "expected > 1 [+] clip_high = 1.2"),
        ({"objective": "cispo", "dual_clip": 3.0}, "has no effect on objective=cispo"),
        ({"objective": "sapo"}, "set clip_low=null"),
        ({"objective": "sapo", "clip_low": None, "clip_high": None, "dual_clip": 3.0}, "set dual_clip=null"),
        ({"kl_coefficient": -0.1}, "kl_coefficient=-0.1"),
        ({"kl_estimator": "k4"}, "kl_estimator=k4"),
        ({"kl_in": "value"}, "kl_in=value"),
        ({"kl_coefficient": 0.1, "kl_estimator": "k1"}, "expected gradient is zero"),
        ({"kl_coefficient": 0.1, "kl_estimator": "k3_corrected", "kl_in": "reward"}, "a reward has none"),
        ({"baseline": "batch_mean", "scale": "batch_std", "dynamic_sampling_rounds": 2}, "carry signal"),
        ({"silent_groups": "keep"}, "no gradient"),
        (
            {"silent_groups": "keep", "kl_coefficient": 0.1, "kl_in": "reward", "kl_estimator": "k1"},
            "no gradient",
        ),
        ({"combine": "normalize_then_sum"}, "only one reward"),
        ({"kl_target": 1.0}, "kl_target=1.0: there is no KL in the reward"),
        ({"kl_target": 1.0, "kl_coefficient": 0.1}, "kl_target=1.0: there is no KL in the reward"),
        ({"baseline": "value"}, "value=null: baseline=value is made from it; use algorithm=ppo"),
        ({"scale": "whiten"}, "scale=whiten: expected one of"),
        ({"value": ValueConfig(1.0, 0.95, None, 10.0)}, "value: baseline=group_mean has no value model"),
        (
            {"dual_clip": 3.0},
            "dual_clip=3.0: with updates_per_rollout=1 .* set dual_clip=null or updates_per",
        ),
        ({"objective": "cispo"}, "objective=cispo: with updates_per_rollout=1 .* set objective=clip"),
        ({"objective": "sapo", "clip_low": None, "clip_high": None}, "objective=sapo: with updates_per_"),
        ({"clip_low": 0.1}, "clip_low=0.1: with updates_per_rollout=1 .* set clip_low=0.2 or updates_per"),
        ({"clip_high": 0.28}, "clip_high=0.28: with updates_per_rollout=1 .* set clip_high=0.2 or updates"),
        ({"ratio": "sequence"}, "ratio=sequence: with updates_per_rollout=1 .* set ratio=token or updates"),
        ({"ratio": "sequence", "kl_coefficient": 0.1}, "ratio=sequence: with updates_per_rollout=1"),
        ({"kl_in": "reward"}, "kl_in=reward: with kl_coefficient=0 .* set kl_coefficient above 0, or kl_in"),
        ({"kl_in": "reward", "kl_estimator": "k1"}, "kl_in=reward: with kl_coefficient=0"),
        (
            {"kl_estimator": "k2"},
            "kl_estimator=k2: with kl_coefficient=0 no KL is charged; set kl_coefficient",
        ),
        (
            {"kl_in": "reward", "kl_coefficient": 0.1, "scale": "group_mean"},
            "scale=group_mean with kl_in=rew",
        ),
    ],
)
def test_contradictions_and_options_without_effect_are_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_algorithm(replace(load(GRPO), **change), components=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rloo", "reinforce_pp", "grpo"])
def test_a_charge_and_rewards_normalised_apart_are_refused(name: str) -> None:
    in_reward = {"kl_in": "reward", "kl_estimator": "k1", "kl_coefficient": 0.05}
    algorithm = replace(named(name), combine="normalize_then_sum", **in_reward)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"combine=normalize_then_sum with kl_in=reward: .* set kl_in=loss"):
        check_algorithm(algorithm, components=2)
    check_algorithm(replace(algorithm, kl_in="loss", kl_estimator="k3"), components=2)


@pytest.mark.parametrize("name", ["gspo", "cispo", "sapo", "dapo"])
def test_what_acts_through_the_ratio_is_refused_at_one_update(name: str) -> None:
    with pytest.raises(ConfigError, match="with updates_per_rollout=1 the ratio is 1"):
        check_algorithm(replace(named(name), updates_per_rollout=1), components=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "leave_one_out"}, "baseline=leave_one_out: .* set baseline=group_mean or credit=both"),
        ({"scale": "none"}, "scale=none: .* set scale=group_std or credit=both"),
        ({"combine": "normalize_then_sum"}, "combine=normalize_then_sum: .* credit=both"),
        ({"kl_in": "reward", "kl_estimator": "k1", "kl_coefficient": 0.1}, "kl_in=reward: .* credit=both"),
        ({"dynamic_sampling_rounds": 3}, "dynamic_sampling_rounds=3: .* carry signal in their steps"),
    ],
)
def test_what_acts_on_whole_completions_is_refused_where_steps_are_paid(
    change: dict[str, object], message: str
) -> None:
    algorithm = replace(load(GRPO), **change)  # type: ignore[arg-type]
    check_algorithm(algorithm, components=2, credit="both")
    with pytest.raises(ConfigError, match=message):
        check_algorithm(algorithm, components=2, credit="process")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": None}, "use algorithm=ppo"),
        ({"baseline": "group_mean"}, "value: baseline=group_mean has no value model; set value=null"),
        ({"scale": "group_std"}, "scale=group_std with baseline=value"),
        ({"scale": "batch_std"}, "scale=batch_std with baseline=value"),
        ({"combine": "normalize_then_sum"}, "the value model expects one reward"),
        ({"silent_groups": "keep", "entropy_coefficient": 0.1}, "no group is silent"),
        ({"dynamic_sampling_rounds": 2}, "carry signal"),
        ({"updates_per_rollout": 1}, "value.clip=0.2: .* no bound is active"),
    ],
)
def test_what_has_no_effect_beside_a_value_model_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_algorithm(replace(load(PPO), **change), components=2)  # type: ignore[arg-type]


def test_bounds_of_the_value_model_are_named() -> None:
    ppo = load(PPO)
    assert ppo.value is not None
    value = replace(ppo.value, gamma=1.5, clip=0.0)
    problems = problems_of(replace(ppo, value=value), "algorithm.")
    assert [p.split(":")[0] for p in problems] == ["algorithm.value.gamma=1.5", "algorithm.value.clip=0.0"]


@pytest.mark.parametrize(
    "change",
    [
        {"dual_clip": 3.0, "updates_per_rollout": 2},
        {"objective": "cispo", "updates_per_rollout": 2},
        {"ratio": "sequence", "updates_per_rollout": 2},
        {"ratio": "sequence", "importance_cap": 2.0},
        {"ratio": "sequence", "kl_coefficient": 0.1, "kl_estimator": "k3_corrected"},
        {"silent_groups": "keep", "kl_coefficient": 0.1},
        {"silent_groups": "keep", "entropy_coefficient": 0.1},
        {"kl_estimator": "k1", "kl_in": "reward", "kl_coefficient": 0.1},
        {"baseline": "none", "scale": "batch_std"},
        {"kl_in": "reward", "kl_coefficient": 0.1, "kl_target": 3.0},
    ],
)
def test_useful_mixes_are_accepted(change: dict[str, object]) -> None:
    check_algorithm(replace(load(GRPO), **change), components=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("credit", ["process", "both"])
def test_a_sequence_ratio_is_taken_where_tokens_have_credit_of_their_own(credit: str) -> None:
    check_algorithm(replace(load(GRPO), ratio="sequence"), components=1, credit=credit)
    value = load(PPO).value
    assert value is not None
    ppo = replace(load(PPO), ratio="sequence", updates_per_rollout=1, value=replace(value, clip=None))
    check_algorithm(ppo, components=1)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("ratio", "tokens", "did you mean 'token'"),
        ("aggregation", "mean", "expected one of sequence_mean"),
        ("silent_groups", "resample", "expected one of drop, keep"),
        ("entropy_coefficient", -1.0, "expected a finite number >= 0"),
        ("importance_cap", 0.0, "expected a finite number > 0"),
        ("updates_per_rollout", 0, "expected a finite number >= 1"),
        ("dynamic_sampling_rounds", -1, "expected a finite number >= 0"),
    ],
)
def test_values_out_of_range_are_named(option: str, value: object, message: str) -> None:
    (problem,) = problems_of(replace(load(GRPO), **{option: value}), "algorithm.")
    assert problem.startswith(f"algorithm.{option}={value}: ")
    assert message in problem


def test_the_check_needs_no_torch() -> None:
    code = "import grpo.algorithm, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
