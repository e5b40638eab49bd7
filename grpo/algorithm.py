# pyright: strict
"""What an algorithm is made of: orthogonal choices by name, and which of them fit together.

Knows names and bounds only, no tensors: it is importable without torch, so that a wrong setting is refused
before anything heavy loads. The functions behind the names: `grpo.advantage` (baseline, scale, combine),
`grpo.loss` and `grpo.objective` (ratio, objective), `grpo.kl` (kl_estimator), `grpo.batch` (aggregation).
One yaml a published algorithm lies in conf/algorithm.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from rewards.errors import ConfigError

GROUP_BASELINES = ("group_mean", "leave_one_out")
BASELINES = (*GROUP_BASELINES, "batch_mean", "none")
GROUP_SCALES = ("group_std", "group_std_biased", "leave_one_out_std", "group_mean")
SCALES = (*GROUP_SCALES, "batch_std", "batch_centred_std", "none")
COMBINES = ("sum_then_normalize", "normalize_then_sum")
RATIOS = ("token", "sequence")
OBJECTIVES = ("clip", "cispo", "sapo")
AGGREGATIONS = ("sequence_mean", "token_mean", "constant", "prompt_mean", "sequence_sum")
KL_ESTIMATORS = ("k1", "k2", "k3", "k3_corrected")
KL_PLACES = ("loss", "reward")
SILENT_GROUPS = ("drop", "keep")


@dataclass
class AlgorithmConfig:
    """The schema of conf/algorithm/*.yaml; every key is explained there."""

    baseline: str = "group_mean"
    scale: str = "group_std"
    combine: str = "sum_then_normalize"
    ratio: str = "token"
    objective: str = "clip"
    clip_low: float | None = 0.2
    clip_high: float | None = 0.2
    dual_clip: float | None = None
    aggregation: str = "sequence_mean"
    kl_coefficient: float = 0.0
    kl_estimator: str = "k3"
    kl_in: str = "loss"
    entropy_coefficient: float = 0.0
    importance_cap: float | None = None
    updates_per_rollout: int = 1
    mask_truncated: bool = False
    silent_groups: str = "drop"
    dynamic_sampling_rounds: int = 0


def check_name(option: str, value: str, known: tuple[str, ...]) -> None:
    """Raises ConfigError, naming the nearest valid value, unless `value` is one of `known`."""
    if value in known:
        return
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{option}={value!r}: expected one of {', '.join(known)}{hint}")


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the condition holds."""
    if not holds:
        raise ConfigError(message)


def check_objective(
    objective: str, clip_low: float | None, clip_high: float | None, dual_clip: float | None
) -> None:
    """Refuses clip bounds that are missing, out of range, or without effect on the objective."""
    check_name("objective", objective, OBJECTIVES)
    if objective == "sapo":
        unused = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": dual_clip}
        for name, value in unused.items():
            require(value is None, f"{name}={value}: sapo gates softly and has no bounds; set {name}=null")
        return
    if clip_low is None or clip_high is None:
        raise ConfigError(
            f"clip_low={clip_low} clip_high={clip_high}: objective={objective} needs both; "
            "clip_low=1 means no lower bound"
        )
    require(
        0 < clip_low <= 1,
        f"clip_low={clip_low}: expected 0 < clip_low <= 1, the ratio is kept above 1 - clip_low",
    )
    require(clip_high > 0, f"clip_high={clip_high}: expected > 0, the ratio is kept below 1 + clip_high")
    if dual_clip is not None:
        require(
            objective == "clip",
            f"dual_clip={dual_clip}: has no effect on objective={objective}; "
            "set dual_clip=null or objective=clip",
        )
        require(
            dual_clip > 1 + clip_high,
            f"dual_clip={dual_clip}: expected > 1 + clip_high = {1 + clip_high:g}, the usual value is 3",
        )


def check_kl(coefficient: float, estimator: str, place: str) -> None:
    """Refuses KL settings that would not penalise the divergence."""
    check_name("kl_estimator", estimator, KL_ESTIMATORS)
    check_name("kl_in", place, KL_PLACES)
    require(coefficient >= 0, f"kl_coefficient={coefficient}: expected >= 0")
    if coefficient == 0:
        return
    require(
        not (place == "loss" and estimator == "k1"),
        "kl_estimator=k1 with kl_in=loss: its expected gradient is zero, the KL would not be penalised; "
        "use k2, k3 or k3_corrected, or kl_in=reward",
    )
    require(
        not (place == "reward" and estimator == "k3_corrected"),
        "kl_estimator=k3_corrected with kl_in=reward: the correction only changes a gradient, "
        "and a reward has none; use k1 or k3",
    )


def check_advantage(baseline: str, scale: str, combine: str) -> None:
    """Refuses a baseline and a scale that blow up or contradict each other."""
    check_name("baseline", baseline, BASELINES)
    check_name("scale", scale, SCALES)
    check_name("combine", combine, COMBINES)
    require(
        scale not in GROUP_SCALES or baseline in GROUP_BASELINES,
        f"scale={scale} with baseline={baseline}: equal rewards would be divided by a zero spread; "
        f"use baseline={GROUP_BASELINES[0]} or {GROUP_BASELINES[1]}, or scale=batch_std",
    )


def check_algorithm(algorithm: AlgorithmConfig, components: int | None = None) -> None:
    """Refuses settings that are unknown, out of range, contradict each other or would have no effect.

    Args:
        algorithm: the settings of one conf/algorithm/*.yaml with the overrides applied.
        components: number of named rewards in the mix, None when it is not known.

    Raises:
        ConfigError: naming the option, what was expected and the remedy.
    """
    a = algorithm
    check_advantage(a.baseline, a.scale, a.combine)
    check_name("ratio", a.ratio, RATIOS)
    check_objective(a.objective, a.clip_low, a.clip_high, a.dual_clip)
    check_name("aggregation", a.aggregation, AGGREGATIONS)
    check_kl(a.kl_coefficient, a.kl_estimator, a.kl_in)
    require(a.entropy_coefficient >= 0, f"entropy_coefficient={a.entropy_coefficient}: expected >= 0")
    require(
        a.importance_cap is None or a.importance_cap > 0,
        f"importance_cap={a.importance_cap}: expected > 0 (2 is usual), or null for no correction",
    )
    require(a.updates_per_rollout >= 1, f"updates_per_rollout={a.updates_per_rollout}: expected >= 1")
    require(
        a.dynamic_sampling_rounds >= 0, f"dynamic_sampling_rounds={a.dynamic_sampling_rounds}: expected >= 0"
    )
    require(
        a.dynamic_sampling_rounds == 0 or a.baseline in GROUP_BASELINES,
        f"dynamic_sampling_rounds={a.dynamic_sampling_rounds} with baseline={a.baseline}: groups of equal "
        "rewards carry signal here and must not be resampled; "
        "set dynamic_sampling_rounds=0 or baseline=group_mean",
    )
    check_name("silent_groups", a.silent_groups, SILENT_GROUPS)
    pulled = (a.kl_coefficient > 0 and a.kl_in == "loss") or a.entropy_coefficient > 0
    require(
        a.silent_groups == "drop" or pulled,
        "silent_groups=keep: without a KL or entropy term in the loss such groups have no gradient; "
        "set silent_groups=drop",
    )
    require(
        components != 1 or a.combine != "normalize_then_sum",
        "combine=normalize_then_sum: there is only one reward to normalise; "
        "use combine=sum_then_normalize or add a reward, e.g. reward=verifiable+format",
    )
