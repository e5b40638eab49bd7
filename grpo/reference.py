"""The reference policy of the KL term: frozen weights, or the base model under a LoRA adapter."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from grpo.adapters import without_adapter
from grpo.policy import Policy, TokenBatch


class FrozenReference:
    """A copy of the policy at the moment of construction (or of the last `reset`), in its precision."""

    def __init__(self, policy: Policy) -> None:
        self.policy = copy.deepcopy(policy).eval().requires_grad_(False)
        self.policy.freeze_in_precision()

    @torch.no_grad()
    def logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, T) log-probs of the completion tokens, at the policy's temperature."""
        return self.policy(batch).logprobs

    def reset(self, policy: Policy) -> None:
        """The reference becomes the policy as it is now."""
        self.policy.load_state_dict(policy.state_dict())


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
