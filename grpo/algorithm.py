# pyright: strict
"""What an algorithm is made of: orthogonal choices by name, and which of them fit together.

Knows names and bounds only, no tensors: it is importable without torch, so that a wrong setting is refused
before anything heavy loads. The functions behind the names: `grpo.advantage` (baseline, scale, combine),
`grpo.loss` and `grpo.objective` (ratio, objective), `grpo.kl` (kl_estimator), `grpo.batch` (aggregation),
`grpo.value` (baseline=value, scale=whiten, kl_target).
One yaml a published algorithm lies in conf/algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewards.errors import ConfigError
from rewards.options import option, suggest

GROUP_BASELINES = ("group_mean", "leave_one_out")
BASELINES = (*GROUP_BASELINES, "batch_mean", "none")
"""What completions are compared with; the value model, which judges tokens, is beside them."""
VALUE = "value"
GROUP_SCALES = ("group_std", "group_std_biased", "leave_one_out_std", "group_mean")
SCALES = (*GROUP_SCALES, "batch_std", "batch_centred_std", "none")
BATCH_WIDE = ("batch_mean", "batch_std", "batch_centred_std")
"""The baselines and scales that are taken over a whole step."""
VALUE_SCALES = ("whiten", "none")
COMBINES = ("sum_then_normalize", "normalize_then_sum")
RATIOS = ("token", "sequence")
OBJECTIVES = ("clip", "cispo", "sapo")
AGGREGATIONS = ("sequence_mean", "token_mean", "constant", "prompt_mean", "sequence_sum")
KL_ESTIMATORS = ("k1", "k2", "k3", "k3_corrected")
KL_PLACES = ("loss", "reward")
SILENT_GROUPS = ("drop", "keep")
DEAD_BOUND = 0.2
"""Of clip_low and clip_high where no bound is active: what the files of such algorithms hold."""


@dataclass
class ValueConfig:
    """PPO's value model and what is made of its values."""

    gamma: float = option(at_least=0, at_most=1)
    gae_lambda: float = option(at_least=0, at_most=1)
    clip: float | None = option(above=0)
    learning_rate_ratio: float = option(above=0)


@dataclass
class AlgorithmConfig:
    """The schema of conf/algorithm/*.yaml; every key is explained there and has its value there."""

    baseline: str = option(*BASELINES, VALUE)
    scale: str = option(*SCALES, VALUE_SCALES[0])
    combine: str = option(*COMBINES)
    ratio: str = option(*RATIOS)
    objective: str = option(*OBJECTIVES)
    clip_low: float | None = option(above=0, at_most=1)
    clip_high: float | None = option(above=0)
    dual_clip: float | None = option(above=1)
    aggregation: str = option(*AGGREGATIONS)
    kl_coefficient: float = option(at_least=0)
    kl_estimator: str = option(*KL_ESTIMATORS)
    kl_in: str = option(*KL_PLACES)
    kl_target: float | None = option(above=0)
    entropy_coefficient: float = option(at_least=0)
    importance_cap: float | None = option(above=0)
    updates_per_rollout: int = option(at_least=1)
    mask_truncated: bool = option()
    silent_groups: str = option(*SILENT_GROUPS)
    dynamic_sampling_rounds: int = option(at_least=0)
    value: ValueConfig | None = option()  # noqa: RUF009 a field, as the others


def check_name(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raises ConfigError, naming the nearest valid value, unless `value` is one of `known`."""
    if value in known:
        return
    raise ConfigError(f"{name}={value}: expected one of {', '.join(known)}{suggest(value, known)}")


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


def check_algorithm(
    algorithm: AlgorithmConfig, components: int | None = None, credit: str = "outcome"
) -> None:
    """Refuses settings that contradict each other or would have no effect.

    Args:
        algorithm: the settings of one conf/algorithm/*.yaml with the overrides applied.
        components: number of named rewards that are paid, None when it is not known.
        credit: who is credited, `credit.source`: outcome, process or both.

    Raises:
        ConfigError: naming the option, what was expected and the remedy.
    """
    a = algorithm
    try:
        if a.baseline == VALUE:
            _check_value(a)
        else:
            require(a.value is None, f"value: baseline={a.baseline} has no value model; set value=null")
            check_advantage(a.baseline, a.scale, a.combine)
        check_objective(a.objective, a.clip_low, a.clip_high, a.dual_clip)
        check_kl(a.kl_coefficient, a.kl_estimator, a.kl_in)
        require(
            a.kl_target is None or (a.kl_coefficient > 0 and a.kl_in == "reward"),
            f"kl_target={a.kl_target}: there is no KL in the reward whose coefficient could adapt; "
            "set kl_coefficient above 0 and kl_in=reward, or kl_target=null",
        )
        _check_charge(a)
        if a.updates_per_rollout == 1:
            _check_ratio_of_one(a, uneven=credit != "outcome")
        if credit == "process":
            _check_process(a)
        _check_sampling(a)
        require(
            components != 1 or a.combine != "normalize_then_sum",
            "combine=normalize_then_sum: there is only one reward to normalise; "
            "use combine=sum_then_normalize or add a reward, e.g. reward=verifiable+format",
        )
    except ConfigError as error:
        raise ConfigError(f"algorithm.{error}") from error


def _check_value(a: AlgorithmConfig) -> None:
    """Refuses what has no meaning where tokens are compared with a value model."""
    if a.value is None:
        raise ConfigError(f"value=null: baseline={VALUE} is made from it; use algorithm=ppo")
    require(
        a.scale in VALUE_SCALES,
        f"scale={a.scale} with baseline={VALUE}: no completions are compared; "
        f"expected one of {', '.join(VALUE_SCALES)}",
    )
    require(
        a.combine == "sum_then_normalize",
        f"combine={a.combine} with baseline={VALUE}: the value model expects one reward; "
        "set combine=sum_then_normalize",
    )
    require(
        a.silent_groups == "drop",
        f"silent_groups={a.silent_groups} with baseline={VALUE}: no group is silent; set silent_groups=drop",
    )
    require(
        a.value.clip is None or a.updates_per_rollout > 1,
        f"value.clip={a.value.clip}: with updates_per_rollout=1 the values are those at sampling and no "
        "bound is active; set value.clip=null or updates_per_rollout above 1",
    )


def _check_charge(a: AlgorithmConfig) -> None:
    """Refuses a KL that is described and not charged, and advantages that a charge does not fit."""
    if a.kl_coefficient == 0:
        require(
            a.kl_in == "loss",
            f"kl_in={a.kl_in}: with kl_coefficient=0 no KL is charged; set kl_coefficient above 0, or "
            "kl_in=loss and kl_estimator=k3",
        )
        require(
            a.kl_estimator == "k3",
            f"kl_estimator={a.kl_estimator}: with kl_coefficient=0 no KL is charged; "
            "set kl_coefficient above 0, or kl_estimator=k3",
        )
        return
    instead = "set kl_in=loss and kl_estimator=k3, or"
    require(
        not (a.kl_in == "reward" and a.combine == "normalize_then_sum"),
        "combine=normalize_then_sum with kl_in=reward: each reward is normalised apart and the KL is charged "
        f"to their sum; {instead} combine=sum_then_normalize",
    )
    require(
        not (a.kl_in == "reward" and a.scale == "group_mean"),
        "scale=group_mean with kl_in=reward: a charge makes rewards negative, and they cannot be divided by "
        f"their mean; {instead} scale=group_std",
    )


def _check_ratio_of_one(a: AlgorithmConfig, *, uneven: bool) -> None:
    """Refuses what acts through the ratio alone where it is exactly 1: in the only update of a rollout.

    The old policy is then the policy itself, whichever engine sampled. A sequence ratio still spreads the
    gradient of a token over its row, which matters where the tokens of a row weigh differently.

    Args:
        a: with one update a rollout.
        uneven: whether the tokens of a completion get credit of their own.
    """
    one, more = "with updates_per_rollout=1 the ratio is 1 and", "or updates_per_rollout above 1"
    spread = a.kl_coefficient > 0 and a.kl_in == "loss" and a.kl_estimator == "k3_corrected"
    require(
        a.dual_clip is None,
        f"dual_clip={a.dual_clip}: {one} no bound is active; set dual_clip=null {more}",
    )
    require(
        a.objective == "clip",
        f"objective={a.objective}: {one} its gradient is that of clip; set objective=clip, "
        f"clip_low={DEAD_BOUND} and clip_high={DEAD_BOUND}, {more}",
    )
    for name, value in {"clip_low": a.clip_low, "clip_high": a.clip_high}.items():
        require(
            value == DEAD_BOUND,
            f"{name}={value}: {one} no bound is active; set {name}={DEAD_BOUND} {more}",
        )
    require(
        a.ratio == "token" or uneven or spread or a.baseline == VALUE or a.importance_cap is not None,
        f"ratio={a.ratio}: {one} the tokens of a completion weigh the same; set ratio=token {more}",
    )


def _check_process(a: AlgorithmConfig) -> None:
    """Refuses what acts on the advantage of a completion alone where only its steps are paid."""
    plain_settings = (
        ("baseline", a.baseline, "group_mean"),
        ("scale", a.scale, "group_std"),
        ("combine", a.combine, "sum_then_normalize"),
    )
    for name, value, plain in plain_settings:
        require(
            value == plain,
            f"{name}={value}: credit=process compares steps, not rewards; set {name}={plain} or credit=both",
        )
    require(
        a.kl_in == "loss",
        f"kl_in={a.kl_in}: credit=process pays the steps, and the KL is charged to the reward; "
        "set kl_in=loss and kl_estimator=k3, or credit=both",
    )
    require(
        a.dynamic_sampling_rounds == 0,
        f"dynamic_sampling_rounds={a.dynamic_sampling_rounds}: with credit=process groups of equal rewards "
        "carry signal in their steps and must not be resampled; set dynamic_sampling_rounds=0",
    )


def _check_sampling(a: AlgorithmConfig) -> None:
    """Refuses treatments of groups without signal that do not fit the rest."""
    require(
        a.dynamic_sampling_rounds == 0 or a.baseline in GROUP_BASELINES,
        f"dynamic_sampling_rounds={a.dynamic_sampling_rounds} with baseline={a.baseline}: groups of equal "
        "rewards carry signal here and must not be resampled; "
        "set dynamic_sampling_rounds=0 or baseline=group_mean",
    )
    pulled = (a.kl_coefficient > 0 and a.kl_in == "loss") or a.entropy_coefficient > 0
    require(
        a.silent_groups == "drop" or pulled,
        "silent_groups=keep: without a KL or entropy term in the loss such groups have no gradient; "
        "set silent_groups=drop",
    )
