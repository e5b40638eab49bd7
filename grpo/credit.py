"""Credit: from the step rewards of a group, or one advantage for each output, to every token's advantage.

Process supervision is that of DeepSeekMath (Shao et al. 2024, arXiv 2402.03300, section 4.1.3); its sum is
one of four forms. Knows nothing of how steps are cut, judged or found among the tokens (grpo.offsets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from rewards.errors import ConfigError

CreditForm = Literal["sum", "mean", "min", "difference"]
StepBaseline = Literal["pool", "position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSettings:
    """How step rewards become token advantages.

    form: one of `FORMS`. baseline: one of `BASELINES`, what a step reward is compared with; form `min` has
    its own. eps is added to the standard deviation. A pool whose values differ by at most tolerance *
    max(1, |mean|) carries no signal: its advantages are exactly 0. min_temperature: of the soft minimum of
    form `min`, in units of the step reward; 0 is the hard minimum.
    """

    form: CreditForm = "sum"
    baseline: StepBaseline = "pool"
    eps: float = 1e-4
    tolerance: float = 1e-6
    min_temperature: float = 0.1

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(f"form={self.form!r}: expected one of {', '.join(FORMS)}")
        if self.baseline not in BASELINES:
            raise ConfigError(f"baseline={self.baseline!r}: expected one of {', '.join(BASELINES)}")
        if self.form == "min" and self.baseline != "pool":
            raise ConfigError(
                f"baseline={self.baseline!r}: form='min' compares the minima of whole outputs; use 'pool'"
            )
        bounds = {"eps": self.eps, "tolerance": self.tolerance, "min_temperature": self.min_temperature}
        for name, value in bounds.items():
            if not (isfinite(value) and value >= 0):
                raise ConfigError(f"{name}={value}: expected a number >= 0")


def process_advantages(
    step_values: Sequence[Sequence[float]],
    step_token_ends: Sequence[Sequence[int]],
    lengths: Sequence[int],
    settings: CreditSettings,
) -> list[Tensor]:
    """Token advantages of one group from its step rewards.

    Token t of output i gets the sum of the increments of the steps of i that end at or after t; the form
    says what an increment is. Outputs without steps take no part in any mean and get 0; so do tokens after
    the last step's end. Outcome advantages are normalised apart and added by the caller, never pooled.

    Args:
        step_values: for each output the rewards of its steps, finite; empty for an output without steps.
        step_token_ends: for each step the index of its last token, not decreasing; -1 for a step without.
        lengths: completion tokens of each output.
        settings: the form and its constants.

    Returns:
        For each output a (n_i,) float32 tensor of its own.

    Raises:
        ValueError: when counts differ, an end lies outside its output or a reward is not finite.

    >>> rows = process_advantages([[1.0], [0.0]], [[1], [0]], [2, 1], CreditSettings(eps=0.0))
    >>> [row.tolist() for row in rows]
    [[0.7071067690849304, 0.7071067690849304], [-0.7071067690849304]]
    """
    if not len(step_values) == len(step_token_ends) == len(lengths):
        counts = f"{len(step_values)}, {len(step_token_ends)} and {len(lengths)}"
        raise ValueError(f"{counts} lists of values, ends and lengths: expected one of each per output")
    for i, (values, ends, length) in enumerate(zip(step_values, step_token_ends, lengths, strict=True)):
        _check_output(i, values, ends, length)
    present = [i for i, values in enumerate(step_values) if values]
    rewards = [torch.tensor(step_values[i], dtype=torch.float64) for i in present]
    advantages = [torch.zeros(length, dtype=torch.float32) for length in lengths]
    if rewards:
        for i, increments in zip(present, FORMS[settings.form](rewards, settings), strict=True):
            advantages[i] = _spread(increments, step_token_ends[i], lengths[i])
    return advantages


def outcome_advantages_to_tokens(advantages: Tensor, lengths: Sequence[int]) -> Tensor:
    """(B,) advantages of whole outputs -> (B, T) float32, constant over an output's tokens and 0 after them.

    T is the largest length. The result owns its memory: writing one entry changes no other.
    """
    if advantages.shape != (len(lengths),):
        raise ValueError(f"advantages {tuple(advantages.shape)}: expected ({len(lengths)},), one per length")
    return pad_rows([advantages[i].repeat(length) for i, length in enumerate(lengths)])


def pad_rows(rows: Sequence[Tensor]) -> Tensor:
    """B tensors (n_i,) -> (B, T) float32 with zeros on the right, T = max n_i, owning its memory."""
    padded = torch.zeros(len(rows), max((len(row) for row in rows), default=0), dtype=torch.float32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


def advantage_length_correlation(advantages: Tensor, lengths: Sequence[int]) -> float | None:
    """Pearson correlation of an output's summed token advantage with its length, in [-1, 1].

    Near +1 the update as a whole pushes towards longer outputs. advantages: (B, T), 0 outside each length.
    None when it is undefined: fewer than two outputs, equal lengths or equal sums.
    """
    sums = advantages.detach().cpu().double().sum(dim=1)
    sizes = torch.tensor(lengths, dtype=torch.float64)
    if len(sizes) < 2 or sizes.max() == sizes.min() or sums.max() == sums.min():
        return None
    return float(torch.corrcoef(torch.stack([sums, sizes]))[0, 1])


def _check_output(index: int, values: Sequence[float], ends: Sequence[int], length: int) -> None:
    if len(values) != len(ends):
        raise ValueError(f"output {index}: {len(values)} step rewards but {len(ends)} step ends")
    if not all(isfinite(value) for value in values):
        raise ValueError(f"output {index}: step rewards {list(values)} must be finite")
    if any(before > after for before, after in pairwise([-1, *ends, length - 1])):
        raise ValueError(f"output {index}: step ends {list(ends)} must not fall and lie in [-1, {length})")


def _spread(increments: Tensor, ends: Sequence[int], length: int) -> Tensor:
    """(K,) increments at their end tokens -> (n,) sums over the steps that end at or after each token."""
    at = torch.tensor(ends)
    credit = torch.zeros(length, dtype=torch.float64)
    credit.index_add_(0, at[at >= 0], increments[at >= 0])
    return credit.flip(0).cumsum(0).flip(0).float()


def _factor(pool: Tensor, level: Tensor, settings: CreditSettings) -> Tensor:
    """1 / (unbiased std + eps) of a pool (N,) of values around level; exactly 0 for one without signal."""
    if pool.max() - pool.min() <= settings.tolerance * max(1.0, abs(float(level))):
        return torch.zeros_like(level)
    return 1.0 / (pool.std(unbiased=True) + settings.eps)


def _normalised(rewards: list[Tensor], settings: CreditSettings) -> list[Tensor]:
    """r~ = (r - b) / (s + eps): b by the baseline, s the unbiased std of all r - b of the group."""
    centred = BASELINES[settings.baseline](rewards)
    factor = _factor(torch.cat(centred), torch.cat(rewards).mean(), settings)
    return [values * factor for values in centred]


def _over_pool(rewards: list[Tensor]) -> list[Tensor]:
    """Against the mean of all step rewards of the group (DeepSeekMath 4.1.3).

    Advantages add up to 0 over the group at the first token only: a step that is harder than the average is
    charged however it is taken, and so are the tokens before it.
    """
    mean = torch.cat(rewards).mean()
    return [values - mean for values in rewards]


def _over_position(rewards: list[Tensor]) -> list[Tensor]:
    """The j-th step against the mean of the j-th steps of the outputs that have one.

    With equal numbers of steps the sum form is then the reward to go against its mean over the group at the
    same step: a baseline by time step, which biases no gradient and leaves hard steps uncharged. A step
    further than any other output went is compared with itself alone, and earns 0.
    """
    longest = max(len(values) for values in rewards)
    rows = torch.full((len(rewards), longest), float("nan"), dtype=torch.float64)
    for row, values in zip(rows, rewards, strict=True):
        row[: len(values)] = values
    means = rows.nanmean(dim=0)
    return [values - means[: len(values)] for values in rewards]


def _sum_increments(rewards: list[Tensor], settings: CreditSettings) -> list[Tensor]:
    """The paper's form: A_t = sum of r~_j over the steps j that end at or after t (DeepSeekMath 4.1.3).

    Unbounded: it grows with the number of good steps, which a policy learns to repeat (Gao et al. 2024,
    arXiv 2410.15115).
    """
    return _normalised(rewards, settings)


def _mean_increments(rewards: list[Tensor], settings: CreditSettings) -> list[Tensor]:
    """The paper's form divided by the output's number of steps K, so that |A_t| <= max |r~|."""
    return [values / len(values) for values in _normalised(rewards, settings)]


def _min_increments(rewards: list[Tensor], settings: CreditSettings) -> list[Tensor]:
    """Min-form credit: only the worst steps of an output count.

    Increment w_j (r_j - b) / (s + eps), w = softmax(-r / temperature) over the output's steps (PURE, Cheng et
    al. 2025, arXiv 2504.15275). b and s are mean and unbiased std of the outputs' soft minima m = sum w r, so
    that A_0 = (m - b) / (s + eps) is the outcome advantage of the soft minimum. PURE subtracts the mean step
    reward of the other outputs instead, which pays or charges for every further step.
    """
    weights = [_min_weights(values, settings.min_temperature) for values in rewards]
    minima = torch.stack([weight @ values for weight, values in zip(weights, rewards, strict=True)])
    mean = minima.mean()
    factor = _factor(minima, mean, settings)
    return [weight * (values - mean) * factor for weight, values in zip(weights, rewards, strict=True)]


def _min_weights(values: Tensor, temperature: float) -> Tensor:
    """(K,) weights that sum to 1; at temperature 0 the smallest values share them."""
    if temperature == 0:
        smallest = (values == values.min()).double()
        return smallest / smallest.sum()
    return torch.softmax(-values / temperature, dim=0)


def _difference_increments(rewards: list[Tensor], settings: CreditSettings) -> list[Tensor]:
    """Differences of neighbours: increment r~_j - r~_(j+1), the last one r~_K.

    They telescope: a token gets r~ of its own step, |A_t| <= max |r~|, and no later step changes it. The
    Delta refinement of Gao et al. 2024 (arXiv 2410.15115), which leaves the last step to the outcome.
    """
    return [torch.cat([values[:-1] - values[1:], values[-1:]]) for values in _normalised(rewards, settings)]


BASELINES: Mapping[StepBaseline, Callable[[list[Tensor]], list[Tensor]]] = {
    "pool": _over_pool,
    "position": _over_position,
}
"""Step rewards of the outputs that have steps -> the same less what each is compared with."""
FORMS: Mapping[CreditForm, Callable[[list[Tensor], CreditSettings], list[Tensor]]] = {
    "sum": _sum_increments,
    "mean": _mean_increments,
    "min": _min_increments,
    "difference": _difference_increments,
}
"""Step rewards of the outputs that have steps -> increments, each (K_i,) float64."""
