"""The reference policy of the KL term: frozen weights, or the base model under a LoRA adapter.

Also when the frozen one follows its policy.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from grpo.adapters import without_adapter
from grpo.policy import Policy, TokenBatch

Follow = Literal["never", "round", "steps", "ema"]


class FrozenReference:
    """A copy of the policy at the moment of construction (or of the last `reset`), in its precision.

    whole: keep the weights in fp32, for a mean whose changes are too small for the precision.
    """

    def __init__(self, policy: Policy, *, whole: bool = False) -> None:
        self.policy = copy.deepcopy(policy).eval().requires_grad_(False)
        if not whole:
            self.policy.freeze_in_precision()

    @torch.no_grad()
    def logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, T) log-probs of the completion tokens, at the policy's temperature."""
        return self.policy(batch).logprobs

    def reset(self, policy: Policy) -> None:
        """The reference becomes the policy as it is now."""
        self.load_state(policy.state_dict())

    @torch.no_grad()
    def blend(self, policy: Policy, decay: float) -> None:
        """An exponential mean: each weight becomes decay * itself + (1 - decay) * the policy's."""
        for mean, weight in zip(self.policy.parameters(), policy.parameters(), strict=True):
            mean.lerp_(weight.detach(), 1 - decay)

    def state(self) -> Mapping[str, Tensor]:
        """The weights, for a checkpoint."""
        return self.policy.state_dict()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` gave."""
        self.policy.load_state_dict(state)


class AdapterReference:
    """The policy with its adapter switched off: no second copy of the weights."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @torch.no_grad()
    def logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, T) log-probs of the completion tokens under the base model."""
        training = self.policy.training
        self.policy.eval()
        try:
            with without_adapter(self.policy.model):
                return self.policy(batch).logprobs
        finally:
            self.policy.train(training)


Reference = FrozenReference | AdapterReference


@dataclass(frozen=True, slots=True)
class Following:
    """When a reference follows its policy: DeepSeekMath's Algorithm 1 moves it to the policy at each round.

    follow: never, round (at each round's end), steps (every so many), or ema (each step, by `blend`).
    """

    follow: Follow
    every: int | None = None
    decay: float | None = None

    def after_step(self, reference: FrozenReference, policy: Policy, step: int, *, round_ended: bool) -> bool:
        """Moves the reference if it is time; returns whether it became the policy."""
        if self.decay is not None:
            reference.blend(policy, self.decay)
        due = round_ended if self.follow == "round" else self.every is not None and step % self.every == 0
        if due:
            reference.reset(policy)
        return due
