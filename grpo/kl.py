# pyright: strict
"""Estimators of KL(policy || reference) from log-probs of the sampled tokens, for the loss or for the reward.

With d = log pi_ref - log pi of a sampled token (Schulman 2020, "Approximating KL divergence"):

    k1 = -d            mean is the KL; can be negative; its gradient as a loss is 1, so it penalises nothing
    k2 = d^2 / 2       mean is not the KL; on-policy gradient -d is that of the KL
    k3 = e^d - d - 1   mean is the KL, never negative; gradient 1 - e^d (that of the reverse direction)
    k3_corrected       ratio * k3, the ratio not detached: on-policy gradient -d, and right off-policy too

Knows nothing of advantages or of clipping.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Differences of log-probs are clamped to this before exp: beyond it only overflow is left to decide."""


def k1(d: Tensor) -> Tensor:
    """-d."""
    return -d


def k2(d: Tensor) -> Tensor:
    """d^2 / 2."""
    return d.square() / 2


def k3(d: Tensor) -> Tensor:
    """e^d - d - 1; expm1 keeps the small values that a trained policy has."""
    return torch.expm1(d) - d


_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3, "k3_corrected": k3}


def bounded(difference: Tensor) -> Tensor:
    """A difference of log-probs, clamped to +-20 (gradient 0 beyond)."""
    return difference.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def token_kl(logprobs: Tensor, ref_logprobs: Tensor, ratio: Tensor, estimator: str) -> Tensor:
    """(B, T) the estimate for each token, with gradient; `ratio` (B, T) is used by k3_corrected only."""
    value = _ESTIMATORS[estimator](bounded(ref_logprobs - logprobs))
    return ratio * value if estimator == "k3_corrected" else value


def token_kl_penalty(
    logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, estimator: str, coefficient: float
) -> Tensor:
    """(B, T) what to subtract from the reward of each token, no gradient, 0 outside the mask.

    With k1: DeepSeekMath (arXiv 2402.03300) equation 2, r_t = r(q, o_<=t) - beta log(pi / pi_ref).
    `logprobs` are those of the policy that sampled.
    """
    value = _ESTIMATORS[estimator](bounded(ref_logprobs - logprobs)).detach()
    return torch.where(mask, coefficient * value, 0.0)
