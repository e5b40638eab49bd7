# pyright: strict
"""PPO's side of the comparison with GRPO: token rewards, GAE, the value loss, an adaptive KL coefficient.

Pure functions on right-padded (B, T) tensors; masked positions may hold anything. Knows nothing of the value
head or of the loop. A row is one episode: after its last token nothing follows, so the next value is 0 there,
for truncated rows too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rewards.errors import ConfigError


def token_rewards(scores: Tensor, kl_penalty: Tensor, mask: Tensor) -> Tensor:
    """(B, T) float64: the score of a row on its last token, minus the KL penalty of every token.

    DeepSeekMath (Shao et al. 2024, arXiv 2402.03300) equation 2, for a reward that judges the whole output.

    Args:
        scores: (B,) one a row.
        kl_penalty: (B, T) from `grpo.kl.token_kl_penalty`, coefficient included; zeros for none.
        mask: (B, T) bool; all False for a row that was not scored. Such a row, like an empty one, gets 0.
    """
    last = torch.zeros_like(mask)
    rows = mask.any(1)
    last[rows, mask.sum(1)[rows] - 1] = True
    paid = torch.where(last, scores.double()[:, None], 0.0)
    return torch.where(mask, paid - kl_penalty.double(), 0.0)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the returns to fit the values to, both (B, T), 0 outside the mask.

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}: Schulman et al. 2016, arXiv
    1506.02438, equations 11 and 16. The return is A_t + V_t. With gamma = lam = 1, A_t is the sum of the
    rewards to come minus V_t.

    Args:
        rewards: (B, T) a reward a token.
        values: (B, T) V_t, the value before token t is written; no gradient is taken.
        mask: (B, T) bool, True on the first n_i tokens of a row.
        gamma: discount, in [0, 1].
        lam: weight of longer returns, in [0, 1].

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> gae(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), mask, gamma=1.0, lam=1.0)
    (tensor([[0.5000, 0.7500]]), tensor([[1., 1.]]))
    """
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ConfigError(f"gamma={gamma} lam={lam}: expected both in [0, 1]")
    v = torch.where(mask, values.detach().double(), 0.0)
    r = torch.where(mask, rewards.detach().double(), 0.0)
    advantages = torch.zeros_like(v)
    following = v.new_zeros(v.shape[0])
    next_value = v.new_zeros(v.shape[0])
    for t in reversed(range(v.shape[1])):
        delta = r[:, t] + gamma * next_value - v[:, t]
        # Masked columns are 0 throughout, so what follows the last token is 0 as well.
        following = delta + gamma * lam * following
        next_value = v[:, t]
        advantages[:, t] = following
    return advantages.float(), torch.where(mask, advantages + v, 0.0).float()


def whiten(values: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """(B, T) (x - mean) / (std + eps) over the mask (unbiased std), exactly 0 outside it.

    Pass the whole step at once. Fewer than two tokens, or equal values, give 0.
    """
    x = torch.where(mask, values.double(), 0.0)
    n = mask.sum()
    mean = x.sum() / n.clamp(min=1)
    centred = torch.where(mask, x - mean, 0.0)
    std = (centred.square().sum() / (n - 1).clamp(min=1)).sqrt()
    flat = (n < 2) | (std <= 1e-6 * mean.abs().clamp(min=1))
    return torch.where(flat, 0.0, centred / (std + eps)).to(values.dtype)


@dataclass(frozen=True, slots=True)
class ValueInputs:
    """values: (B, T) with gradient. old_values: (B, T) of the model at sampling. returns, mask: (B, T).

    row_weights: (B,), as for the policy loss, so that micro-batches only add up.
    """

    values: Tensor
    old_values: Tensor
    returns: Tensor
    mask: Tensor
    row_weights: Tensor


def value_loss(inputs: ValueInputs, clip: float | None) -> Tensor:
    """Scalar: sum_i w_i sum_t max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2, with gradient.

    The clipped form of PPO's reference code (Engstrom et al. 2020, arXiv 2005.12729, section 2); clip=None
    is the plain square.
    """
    mask = inputs.mask
    v = torch.where(mask, inputs.values, 0.0)
    old = torch.where(mask, inputs.old_values, 0.0)
    target = torch.where(mask, inputs.returns, 0.0)
    squares = (v - target).square()
    if clip is not None:
        near = torch.minimum(torch.maximum(v, old - clip), old + clip)
        squares = torch.maximum(squares, (near - target).square())
    weights = inputs.row_weights.to(v.dtype)[:, None]
    return (torch.where(mask, squares / 2, 0.0) * weights).sum()


@dataclass(frozen=True, slots=True)
class AdaptiveKL:
    """The KL coefficient of PPO-Penalty, moved so that the KL reaches a target.

    e = clip((KL - target) / target, -0.2, 0.2) and coefficient <- coefficient (1 + gain e): Ziegler et al.
    2019, arXiv 1909.08593, section 2.2. target: in nats, of what `updated` is given (a token's mean or a
    sequence's sum).
    """

    coefficient: float
    target: float
    gain: float = 0.1

    def __post_init__(self) -> None:
        if self.coefficient <= 0 or self.target <= 0 or self.gain <= 0:
            raise ConfigError(
                f"AdaptiveKL coefficient={self.coefficient} target={self.target} gain={self.gain}: "
                "expected all > 0"
            )

    def updated(self, kl: float) -> AdaptiveKL:
        """The controller after a step whose KL was `kl`; one that is not finite changes nothing."""
        if not math.isfinite(kl):
            return self
        error = min(max((kl - self.target) / self.target, -0.2), 0.2)
        return replace(self, coefficient=self.coefficient * (1 + self.gain * error))
