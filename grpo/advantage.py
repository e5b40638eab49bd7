"""Rewards (P, G) -> advantages (P, G): a baseline is subtracted, a scale divided by.

Knows nothing of tokens, of the loss or of where rewards come from. All arithmetic is float64 and two-pass
(the mean first, then squared distances), whatever the input. Departures from the papers and from other
trainers:

- a group whose rewards are equal up to `tolerance` gets exactly 0, not rounding residue over a small number;
- a row that was not scored (invalid, or NaN) is left out of every statistic and gets exactly 0;
- batch statistics are over the rows passed in: pass the rewards of the whole step, of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo.algorithm import GROUP_BASELINES, AlgorithmConfig, check_advantage
from rewards.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AdvantageSettings:
    """Which baseline and scale, and how several rewards are combined.

    eps is added to every scale. tolerance: rewards r count as equal when max - min <= tolerance * max(1,
    |mean|); the default also covers what a learned float32 reward gives to one text in differently padded
    batches.
    """

    baseline: str = "group_mean"
    scale: str = "group_std"
    combine: str = "sum_then_normalize"
    eps: float = 1e-4
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_advantage(self.baseline, self.scale, self.combine)
        if self.eps < 0 or self.tolerance < 0:
            raise ConfigError(f"eps={self.eps} tolerance={self.tolerance}: expected both >= 0")


@dataclass(frozen=True, slots=True)
class Advantages:
    """The result for one step.

    values: (P, G) float32, owning its memory, exactly 0 on rows without signal. valid: (P, G) bool, the rows
    that were scored. zero_signal: (P,) bool, True where no row of the group has a non-zero advantage.
    """

    values: Tensor
    valid: Tensor
    zero_signal: Tensor


def advantage_settings(algorithm: AlgorithmConfig) -> AdvantageSettings:
    """The advantage part of an algorithm."""
    return AdvantageSettings(algorithm.baseline, algorithm.scale, algorithm.combine)


def outcome_advantages(
    rewards: Tensor,
    settings: AdvantageSettings,
    *,
    valid: Tensor | None = None,
    weights: Sequence[float] | None = None,
) -> Advantages:
    """A_i = (r_i - b) / (s + eps), one number per completion.

    With group_mean and group_std: DeepSeekMath (Shao et al. 2024, arXiv 2402.03300) section 4.1.2. Ragged
    groups are given as rows that are not valid.

    Args:
        rewards: (P, G), or (P, G, C) for C named rewards. NaN means "not scored".
        settings: the variant. `normalize_then_sum` treats every reward apart (GDPO), then sums.
        valid: (P, G) bool, False leaves the row out; None means all that are not NaN.
        weights: C weights, 1 each when None.

    Raises:
        ValueError: for a wrong shape or an infinite reward.

    >>> rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.7, 0.7, 0.7, float("nan")]])
    >>> outcome_advantages(rewards, AdvantageSettings(scale="none")).values.tolist()
    [[0.75, -0.25, -0.25, -0.25], [0.0, 0.0, 0.0, 0.0]]
    """
    parts, scored = _checked(rewards, valid)
    weight = torch.ones(parts.shape[2], dtype=torch.float64, device=parts.device)
    if weights is not None:
        weight = torch.tensor(list(weights), dtype=torch.float64, device=parts.device)
    if weight.shape != parts.shape[2:]:
        raise ValueError(f"weights: expected {parts.shape[2]}, one for each reward, got {weight.numel()}")
    values = _COMBINES[settings.combine](parts, scored, weight, settings)
    rows = scored.any(2)
    values = torch.where(rows, values, 0.0)
    return Advantages(values.float(), rows, (values == 0).all(1))


def constant_groups(rewards: Tensor, valid: Tensor, tolerance: float = 1e-6) -> Tensor:
    """(P,) bool: groups whose valid rewards (P, G) are equal, or that have fewer than two valid rows.

    Judge the reward that matters: with a length penalty added, no group is constant (so dynamic sampling
    passes the unshaped correctness, not the sum).
    """
    return _constant(rewards.double(), valid, 1, tolerance).squeeze(1)


# --- baselines: (r, valid) -> what is subtracted, broadcastable to (P, G)


def group_mean(r: Tensor, valid: Tensor) -> Tensor:
    """(P, 1) mean of the group's valid rows."""
    return _mean(r, valid, (1,))


def leave_one_out(r: Tensor, valid: Tensor) -> Tensor:
    """(P, G) mean of the *other* valid rows of the group: RLOO (Ahmadian et al. 2024, arXiv 2402.14740)."""
    n = valid.sum(1, keepdim=True)
    # From the deviations, so that a large common offset cancels before the division.
    mean = group_mean(r, valid)
    return mean - (r - mean) / (n - 1).clamp(min=1)


def batch_mean(r: Tensor, valid: Tensor) -> Tensor:
    """(1, 1) mean over the step: REINFORCE++ (Hu et al. 2025, arXiv 2501.03262)."""
    return _mean(r, valid, (0, 1))


def no_baseline(r: Tensor, valid: Tensor) -> Tensor:
    """(1, 1) zero: plain REINFORCE."""
    return r.new_zeros(1, 1)


# --- scales: (r, r - b, valid) -> what is divided by, broadcastable to (P, G); 0 means "do not divide"


def group_std(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(P, 1) unbiased standard deviation of the group (divides by n - 1), as in TRL, torchtune, verl."""
    return _std(r, valid, (1,), 1)


def group_std_biased(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(P, 1) standard deviation of the group that divides by n."""
    return _std(r, valid, (1,), 0)


def leave_one_out_std(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(P, G) unbiased standard deviation of the *other* valid rows, 0 where equal: NeMo-RL's default."""
    size = r.shape[1]
    others = valid[:, None, :] & ~torch.eye(
        size, dtype=torch.bool, device=r.device
    )  # (P, G, G): row i without i
    spread = _std(r[:, None, :].expand(-1, size, -1), others, (2,), 1).squeeze(2)
    # The deviation of equal values is rounding residue: as a divisor it gives advantages of thousands.
    return torch.where(spread <= 1e-6 * r.abs().amax(1, keepdim=True).clamp(min=1), 0.0, spread)


def mean_scale(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(P, 1) the group's mean reward: MaxRL, (r - mean) / mean, for rewards that are success indicators."""
    if bool((r < 0).any()):
        raise ConfigError(
            f"algorithm.scale=group_mean: expected rewards >= 0, got {float(r.min()):g}; set "
            "algorithm.scale=group_std, or leave out the reward that is negative"
        )
    return _mean(r, valid, (1,))


def batch_std(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(1, 1) unbiased standard deviation of the step's *uncentred* rewards, as TRL `scale_rewards=batch`."""
    return _std(r, valid, (0, 1), 1)


def batch_centred_std(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(1, 1) unbiased standard deviation over the step of r - b: REINFORCE++-baseline (arXiv 2501.03262)."""
    return _std(centred, valid, (0, 1), 1)


def no_scale(r: Tensor, centred: Tensor, valid: Tensor) -> Tensor:
    """(1, 1) zero, "do not divide": Dr. GRPO (Liu et al. 2025, arXiv 2503.20783)."""
    return r.new_zeros(1, 1)


# --- combining rewards: (parts (P, G, C), scored (P, G, C), weights (C,), settings) -> (P, G)


def sum_then_normalize(parts: Tensor, scored: Tensor, weights: Tensor, settings: AdvantageSettings) -> Tensor:
    """Normalises r = sum over the scored rewards of w_c r_c."""
    return normalize((parts * weights).sum(2), scored.any(2), settings)


def normalize_then_sum(parts: Tensor, scored: Tensor, weights: Tensor, settings: AdvantageSettings) -> Tensor:
    """Normalises each reward, sums with the weights, then whitens over the step: GDPO (Liu et al. 2026, arXiv
    2601.05242).

    Keeps apart what a sum maps to one number: (1, 0) and (0, 1) differ. A reward that is missing in a row
    drops its own term only.
    """
    rows = scored.any(2)
    total = torch.zeros_like(parts[..., 0])
    for c in range(parts.shape[2]):
        total = total + weights[c] * normalize(parts[..., c], scored[..., c], settings)
    whitened = (total - _mean(total, rows, (0, 1))) / (_std(total, rows, (0, 1), 1) + settings.eps)
    # Centring a batch moves silent groups off zero; they stay silent.
    silent = (total == 0).all(1, keepdim=True)
    return torch.where(silent, 0.0, whitened)


def normalize(r: Tensor, valid: Tensor, settings: AdvantageSettings) -> Tensor:
    """(r - b) / (s + eps) of one finite reward (P, G) float64; exactly 0 on constant pools and invalid rows.

    The pool is what the baseline is taken over: the group, or the batch. Without a baseline nothing is
    silenced, and the rewards of a constant batch are not divided.
    """
    centred = r - _BASELINES[settings.baseline](r, valid)
    spread = _SCALES[settings.scale](r, centred, valid)
    silent = torch.zeros_like(valid)
    if settings.baseline in GROUP_BASELINES:
        silent = _constant(r, valid, 1, settings.tolerance).expand_as(valid)
    else:
        alike = _constant(r.reshape(1, -1), valid.reshape(1, -1), 1, settings.tolerance)
        spread = torch.where(alike, 0.0, spread)
        silent = alike.expand_as(valid) if settings.baseline == "batch_mean" else silent
    scaled = torch.where(spread > 0, centred / (spread + settings.eps), centred)
    return torch.where(valid & ~silent, scaled, 0.0)


_Baseline = Callable[[Tensor, Tensor], Tensor]
_Scale = Callable[[Tensor, Tensor, Tensor], Tensor]
_Combine = Callable[[Tensor, Tensor, Tensor, AdvantageSettings], Tensor]

_BASELINES: dict[str, _Baseline] = {
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
    "batch_mean": batch_mean,
    "none": no_baseline,
}
_SCALES: dict[str, _Scale] = {
    "group_std": group_std,
    "group_std_biased": group_std_biased,
    "leave_one_out_std": leave_one_out_std,
    "group_mean": mean_scale,
    "batch_std": batch_std,
    "batch_centred_std": batch_centred_std,
    "none": no_scale,
}
_COMBINES: dict[str, _Combine] = {
    "sum_then_normalize": sum_then_normalize,
    "normalize_then_sum": normalize_then_sum,
}


def _checked(rewards: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """(parts (P, G, C) float64 with 0 where not scored, scored (P, G, C) bool)."""
    if rewards.ndim not in (2, 3):
        raise ValueError(f"rewards: expected (P, G) or (P, G, C), got {tuple(rewards.shape)}")
    parts = rewards.detach().double()
    parts = parts if parts.ndim == 3 else parts[..., None]
    scored = ~parts.isnan()
    if valid is not None:
        if valid.shape != parts.shape[:2]:
            raise ValueError(f"valid: expected {tuple(parts.shape[:2])}, got {tuple(valid.shape)}")
        scored = scored & valid.bool()[..., None]
    parts = torch.where(scored, parts, 0.0)
    if bool(parts.isinf().any()):
        raise ValueError("rewards: a scored row is infinite; mark it invalid or bound the reward")
    return parts, scored


def _mean(x: Tensor, valid: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Mean over valid entries, 0 where there are none; dims are kept."""
    total = torch.where(valid, x, 0.0).sum(dims, keepdim=True)
    return total / valid.sum(dims, keepdim=True).clamp(min=1)


def _std(x: Tensor, valid: Tensor, dims: tuple[int, ...], ddof: int) -> Tensor:
    """Two-pass standard deviation over valid entries, 0 where n <= ddof; dims are kept."""
    squares = torch.where(valid, (x - _mean(x, valid, dims)).square(), 0.0).sum(dims, keepdim=True)
    return (squares / (valid.sum(dims, keepdim=True) - ddof).clamp(min=1)).sqrt()


def _constant(r: Tensor, valid: Tensor, dim: int, tolerance: float) -> Tensor:
    """True where the valid entries along `dim` (kept) are equal up to the tolerance, or fewer than two."""
    high = torch.where(valid, r, -torch.inf).amax(dim, keepdim=True)
    low = torch.where(valid, r, torch.inf).amin(dim, keepdim=True)
    bound = tolerance * _mean(r, valid, (dim,)).abs().clamp(min=1)
    return ~(high - low > bound) | (valid.sum(dim, keepdim=True) < 2)
