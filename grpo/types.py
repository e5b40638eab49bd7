"""The records of one GRPO step, from rollout to loss. Shapes are checked at construction.

Axes: P problems, G group, B = P*G rows, T completion tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from rewards.types import Problem, Sample


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion: the text for the scorers, the ids for the trainer (never re-encoded).

    token_ids: (n,) int64 sampled ids, the stop id included when one ended the text.
    logprobs: (n,) float32, at the sampling temperature, of exactly those ids.
    """

    sample: Sample
    token_ids: Tensor
    logprobs: Tensor

    def __post_init__(self) -> None:
        if self.token_ids.ndim != 1 or self.token_ids.shape != self.logprobs.shape:
            raise ValueError(
                f"Completion: token_ids {tuple(self.token_ids.shape)} and "
                f"logprobs {tuple(self.logprobs.shape)} must be 1-d and equal in length"
            )


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The G completions of one prompt. prompt_ids: (L,) int64, exactly what the policy was conditioned on."""

    problem: Problem
    prompt_ids: Tensor
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What the loss of some rows of a step needs.

    logprobs: (B, T) with gradient, at the sampling temperature. old_logprobs: (B, T) of the policy that
    sampled, or None when every sample is used for one update only (the ratio is then exactly 1 in value).
    ref_logprobs: (B, T) or None without KL. advantages: (B, T). mask: (B, T) bool, True on completion tokens
    that are trained on; elsewhere the other tensors may hold anything. row_weights: (B,) floating: the weight
    of each token in the mask in the sum that is the loss; it carries the aggregation and was computed over
    the whole step and all ranks (see grpo.batch.row_weights), so that micro-batches only ever add up.
    sampling_logprobs: (B, T) what the engine reported, or None when it is the trainer's own. entropy: (B, T)
    of the next-token distribution, with gradient where there is an entropy bonus, or None when it is not
    measured.
    """

    logprobs: Tensor
    old_logprobs: Tensor | None
    ref_logprobs: Tensor | None
    advantages: Tensor
    mask: Tensor
    row_weights: Tensor
    sampling_logprobs: Tensor | None = None
    entropy: Tensor | None = None

    def __post_init__(self) -> None:
        shape = self.logprobs.shape
        if self.logprobs.ndim != 2:
            raise ValueError(f"LossInputs.logprobs: expected (B, T), got {tuple(shape)}")
        others: dict[str, Tensor | None] = {
            "old_logprobs": self.old_logprobs,
            "ref_logprobs": self.ref_logprobs,
            "advantages": self.advantages,
            "mask": self.mask,
            "sampling_logprobs": self.sampling_logprobs,
            "entropy": self.entropy,
        }
        for name, tensor in others.items():
            if tensor is not None and tensor.shape != shape:
                raise ValueError(f"LossInputs.{name}: expected {tuple(shape)}, got {tuple(tensor.shape)}")
        if self.row_weights.shape != shape[:1]:
            raise ValueError(
                f"LossInputs.row_weights: expected {tuple(shape[:1])}, got {tuple(self.row_weights.shape)}"
            )


@dataclass(frozen=True, slots=True)
class LossOutput:
    """loss: scalar with gradient, this micro-batch's share of the step's loss.

    sums: detached token sums over the mask (`tokens`, `kl`, `clip_low`, ...) that add up over micro-batches
    and ranks; divide by `tokens` at the end. Names that begin with `max/` are maxima instead.
    """

    loss: Tensor
    sums: Mapping[str, Tensor]
