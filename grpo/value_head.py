"""The value model of PPO: the policy's transformer, copied, a number a token in place of the vocabulary.

Reads completions as the policy does, each distinct prompt once (see `grpo.policy`). Knows nothing of rewards.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from grpo.policy import Policy, TokenBatch


class ValueModel(nn.Module):
    """V_t, what a completion is expected to earn from its token t on, before that token is written.

    Starts as the policy is now, with a head of zeros: every value is 0 until it is fitted. What of the policy
    is not trained (all but its adapters, with LoRA) is not trained here either.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.body = copy.deepcopy(policy)
        # The states below the vocabulary's head are all that is read; the head would only take memory.
        self.body.model.set_output_embeddings(nn.Identity())
        self.head = nn.Linear(policy.model.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(policy.model.device)
        self.train()  # a loaded model is in evaluation mode, in which activations are not recomputed

    def forward(self, batch: TokenBatch) -> Tensor:
        """(B, T) fp32 values, 0 outside the mask."""
        mask = batch.mask
        values = self.head(self.body.completion_states(batch).float()).squeeze(-1)
        return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_scatter(mask, values)
