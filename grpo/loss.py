"""The policy loss of some rows of a step: surrogate objective, importance correction, KL and entropy terms.

    loss = sum_i row_weight_i * sum_t mask_it * (w_it * objective_it + beta * KL_it - alpha * entropy_it)

The aggregation (mean over tokens, over sequences, ...) is in the row weights (`grpo.batch.row_weights`),
which were computed over the whole step: micro-batches and ranks only ever add up, and no result depends on
how rows were split. Masked positions may hold anything, NaN too: they are replaced before the first
operation. The KL term is added last, so neither clipping nor the importance weight acts on it.

Knows nothing of models, sampling or devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpo.algorithm import RATIOS, AlgorithmConfig, check_kl, check_name, check_objective, require
from grpo.kl import bounded, k1, k2, k3, token_kl
from grpo.objective import OBJECTIVES, Bounds
from grpo.types import LossInputs, LossOutput


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Which loss. Names as in `grpo.algorithm`; every default is DeepSeekMath's GRPO without the KL term.

    clip_low, clip_high: the ratio is kept in [1 - clip_low, 1 + clip_high]; None for objective=sapo only.
    kl_coefficient: of the KL term in the *loss*; 0 when there is none or when it is in the reward.
    importance_cap: upper bound C of the weight min(pi_old / pi_sampling, C); None for no correction.
    """

    ratio: str = "token"
    objective: str = "clip"
    clip_low: float | None = 0.2
    clip_high: float | None = 0.2
    dual_clip: float | None = None
    kl_coefficient: float = 0.0
    kl_estimator: str = "k3"
    entropy_coefficient: float = 0.0
    importance_cap: float | None = None

    def __post_init__(self) -> None:
        check_name("ratio", self.ratio, RATIOS)
        check_objective(self.objective, self.clip_low, self.clip_high, self.dual_clip)
        check_kl(self.kl_coefficient, self.kl_estimator, "loss")
        cap = self.importance_cap
        require(cap is None or cap > 0, f"importance_cap={cap}: expected > 0, or null for no correction")
        alpha = self.entropy_coefficient
        require(alpha >= 0, f"entropy_coefficient={alpha}: expected >= 0")


def loss_settings(algorithm: AlgorithmConfig) -> LossSettings:
    """The loss part of an algorithm; a KL that is in the reward is no part of it."""
    in_loss = algorithm.kl_in == "loss"
    return LossSettings(
        ratio=algorithm.ratio,
        objective=algorithm.objective,
        clip_low=algorithm.clip_low,
        clip_high=algorithm.clip_high,
        dual_clip=algorithm.dual_clip,
        kl_coefficient=algorithm.kl_coefficient if in_loss else 0.0,
        kl_estimator=algorithm.kl_estimator if in_loss else "k3",
        entropy_coefficient=algorithm.entropy_coefficient,
        importance_cap=algorithm.importance_cap,
    )


def policy_loss(inputs: LossInputs, settings: LossSettings) -> LossOutput:
    """The loss of these rows, to be added up over micro-batches and ranks, and token sums for the metrics.

    Backward once per micro-batch adds the gradients up; where ranks *average* gradients (DDP), multiply the
    loss by the number of ranks. Sums (add them up, then divide by `tokens`): tokens, ratio, approx_kl (old
    to new policy, the k3 form), clip_low, clip_high, and where given kl, k1, k2 (policy to reference),
    entropy, importance, sampling_gap (|log pi_old - log pi_sampling|). Names that begin with `max/` or `min/`
    are extremes: take the largest or the smallest. Rows of weight 0 are in none of them: a rank that has
    nothing to learn runs one only to keep step with the others.

    Raises:
        ValueError: when a setting needs an input that was not given.
    """
    _require_inputs(inputs, settings)
    x = _blanked(inputs)
    mask, weights = x.mask, x.row_weights.to(x.logprobs.dtype)[:, None]
    old = x.logprobs.detach() if x.old_logprobs is None else x.old_logprobs.detach()
    log_ratio = _LOG_RATIOS[settings.ratio](x.logprobs - old, mask)

    bounds = Bounds(settings.clip_low or 0.0, settings.clip_high or 0.0, settings.dual_clip)
    objective = OBJECTIVES[settings.objective](x.logprobs, log_ratio, x.advantages, bounds)
    per_token = objective.values
    if settings.importance_cap is not None and x.sampling_logprobs is not None:
        per_token = per_token * importance_weight(old, x.sampling_logprobs, settings.importance_cap)
    if settings.kl_coefficient and x.ref_logprobs is not None:
        kl = token_kl(x.logprobs, x.ref_logprobs, log_ratio.exp(), settings.kl_estimator)
        per_token = per_token + settings.kl_coefficient * kl
    if settings.entropy_coefficient and x.entropy is not None:
        per_token = per_token - settings.entropy_coefficient * x.entropy
    loss = (torch.where(mask, per_token, 0.0) * weights).sum()

    with torch.no_grad():
        counted = mask & (weights != 0)
        sums = _sums(replace(x, mask=counted), log_ratio, old, settings)
        sums["clip_low"] = (objective.low & counted).sum()
        high = (objective.high & counted).sum(1)
        sums["clip_high"] = high.sum()
        share = high / counted.sum(1).clamp(min=1)
        sums["max/clip_high"] = share.max() if len(share) else share.sum()
    return LossOutput(loss, sums)


def token_log_ratio(difference: Tensor, mask: Tensor) -> Tensor:
    """(B, T) log(pi / pi_old) of each token, clamped to +-20: PPO, GRPO."""
    return bounded(difference)


def sequence_log_ratio(difference: Tensor, mask: Tensor) -> Tensor:
    """(B, T) the row's mean of log(pi / pi_old), on every token: GSPO (arXiv 2507.18071, eq. 7).

    The gradient flows through the mean, so each token gets 1/n of it.
    """
    length = mask.sum(1, keepdim=True).clamp(min=1)
    mean = torch.where(mask, difference, 0.0).sum(1, keepdim=True) / length
    return bounded(mean).expand_as(difference)


_LOG_RATIOS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": token_log_ratio,
    "sequence": sequence_log_ratio,
}


def importance_weight(old_logprobs: Tensor, sampling_logprobs: Tensor, cap: float) -> Tensor:
    """(B, T) min(pi_old / pi_sampling, cap), no gradient: truncated importance sampling.

    Corrects for an engine whose probabilities differ from the trainer's (Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training"; Ionides 2008). A sampling log-prob that is NaN
    weighs 1.
    """
    gap = bounded(old_logprobs - sampling_logprobs).nan_to_num(nan=0.0)
    return gap.exp().clamp(max=cap).detach()


def _require_inputs(inputs: LossInputs, settings: LossSettings) -> None:
    """Refuses a setting that would silently have no effect."""
    needs = (
        ("kl_coefficient", settings.kl_coefficient, "ref_logprobs", inputs.ref_logprobs),
        ("entropy_coefficient", settings.entropy_coefficient, "entropy", inputs.entropy),
        ("importance_cap", settings.importance_cap, "sampling_logprobs", inputs.sampling_logprobs),
    )
    for option, value, name, tensor in needs:
        if value and tensor is None:
            raise ValueError(f"{option}={value} needs LossInputs.{name}, got None: it would have no effect")


def _blanked(inputs: LossInputs) -> LossInputs:
    """The inputs with 0 at masked positions. NaN * 0 is NaN, so masking after the arithmetic is too late."""
    mask = inputs.mask

    def blank(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.where(mask, x, 0.0)

    return replace(
        inputs,
        logprobs=torch.where(mask, inputs.logprobs, 0.0),
        advantages=torch.where(mask, inputs.advantages, 0.0),
        old_logprobs=blank(inputs.old_logprobs),
        ref_logprobs=blank(inputs.ref_logprobs),
        sampling_logprobs=blank(inputs.sampling_logprobs),
        entropy=blank(inputs.entropy),
    )


def _sums(x: LossInputs, log_ratio: Tensor, old: Tensor, settings: LossSettings) -> dict[str, Tensor]:
    """Token sums over the mask of everything that is worth a curve."""
    mask = x.mask

    def total(values: Tensor) -> Tensor:
        return torch.where(mask, values, 0.0).double().sum()

    def largest(values: Tensor) -> Tensor:
        return torch.where(mask, values, 0.0).max() if mask.numel() else values.new_zeros(())

    def smallest(values: Tensor) -> Tensor:
        kept = torch.where(mask, values, math.inf)
        return kept.min() if mask.numel() else values.new_full((), math.inf)

    ratio = log_ratio.exp()
    sums = {"tokens": mask.sum(), "ratio": total(ratio), "max/ratio": largest(ratio)}
    sums["approx_kl"] = total(k3(bounded(x.logprobs - old)))
    if x.ref_logprobs is not None:
        d = bounded(x.ref_logprobs - x.logprobs)
        sums |= {"kl": total(k3(d)), "k1": total(k1(d)), "k2": total(k2(d))}
    if x.entropy is not None:
        sums["entropy"] = total(x.entropy)
    if x.sampling_logprobs is not None:
        gap = (old - x.sampling_logprobs).abs().nan_to_num(nan=0.0)
        sums |= {"sampling_gap": total(gap), "max/sampling_gap": largest(gap)}
        if settings.importance_cap is not None:
            weight = importance_weight(old, x.sampling_logprobs, settings.importance_cap)
            sums |= {"importance": total(weight), "max/importance": largest(weight)}
            sums["min/importance"] = smallest(weight)
    return sums
