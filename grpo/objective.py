# pyright: strict
"""The surrogate objectives: ratio and advantage of each token -> loss of each token, and what was clipped.

Knows nothing of masks, aggregation or KL. Every function takes (logprobs, log_ratio, advantages, bounds),
all tensors (B, T); log_ratio is log(pi / pi_old), of the token or of the whole sequence, with gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SAPO_TAU_POSITIVE = 1.0
SAPO_TAU_NEGATIVE = 1.05


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ratio is kept in [1 - low, 1 + high]; dual, where given, bounds the loss where A < 0."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """values: (B, T) with gradient. low, high: (B, T) bool, tokens on which a bound was active."""

    values: Tensor
    low: Tensor
    high: Tensor


def clipped(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, bounds: Bounds) -> TokenLoss:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A): PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7).

    With low < high: DAPO's clip-higher (Yu et al. 2025, arXiv 2503.14476). With a sequence ratio: GSPO
    (Zheng et al. 2025, arXiv 2507.18071, eq. 5). With dual = c: for A < 0 the loss is at most -c A (Ye et
    al. 2020, arXiv 1912.09729, eq. 5), where its gradient is 0.
    """
    ratio = log_ratio.exp()
    inside = ratio.clamp(1 - bounds.low, 1 + bounds.high)
    values = -torch.minimum(ratio * advantages, inside * advantages)
    if bounds.dual is not None:
        values = torch.where(advantages < 0, torch.minimum(values, -bounds.dual * advantages), values)
    low = (ratio < 1 - bounds.low) & (advantages < 0)
    high = (ratio > 1 + bounds.high) & (advantages > 0)
    return TokenLoss(values, low, high)


def cispo(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, bounds: Bounds) -> TokenLoss:
    """-sg(clip(ratio, 1 - low, 1 + high)) A log pi: CISPO (MiniMax-M1 2025, arXiv 2506.13585, eq. 4).

    The weight is bounded, the gradient of a token never vanishes. The paper sets no lower bound (low = 1).
    The cap is 1 + high: what TRL calls epsilon_high = 5 is high = 4 here.
    """
    ratio = log_ratio.detach().exp()
    low, high = ratio < 1 - bounds.low, ratio > 1 + bounds.high
    weight = ratio.clamp(1 - bounds.low, 1 + bounds.high)
    moved = advantages != 0
    return TokenLoss(-weight * advantages * logprobs, low & moved, high & moved)


def sapo(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, bounds: Bounds) -> TokenLoss:
    """-(4 / tau) sigmoid(tau (ratio - 1)) A, tau 1 if A > 0 else 1.05: SAPO (arXiv 2511.20347); no bounds."""
    tau = torch.full_like(advantages, SAPO_TAU_NEGATIVE).masked_fill(advantages > 0, SAPO_TAU_POSITIVE)
    gate = torch.sigmoid(tau * (log_ratio.exp() - 1)) * 4 / tau
    none = torch.zeros_like(advantages, dtype=torch.bool)
    return TokenLoss(-gate * advantages, none, none)


OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor, Bounds], TokenLoss]] = {
    "clip": clipped,
    "cispo": cispo,
    "sapo": sapo,
}
