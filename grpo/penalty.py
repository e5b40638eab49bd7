"""The KL to the reference charged in the reward: one number a completion, before advantages are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo.batch import pad_rows
from grpo.kl import sequence_kl_penalty
from grpo.policy import token_batch
from grpo.reference import Reference
from grpo.types import RolloutGroup


@dataclass(frozen=True, slots=True)
class KlPenalty:
    """r <- r - coefficient * sum_t kl_t of the policy that sampled (RLOO, arXiv 2402.14740, eq. 3).

    rows: completions of one forward of the reference; changes memory only.
    """

    reference: Reference
    estimator: str
    coefficient: float
    rows: int
    pad_id: int
    device: torch.device

    def charge(self, groups: Sequence[RolloutGroup]) -> Tensor:
        """(P, G) float64, what to subtract from each completion's reward."""
        prompts = [group.prompt_ids for group in groups]
        rows = [(p, completion) for p, group in enumerate(groups) for completion in group.completions]
        charges: list[Tensor] = []
        for start in range(0, len(rows), self.rows):
            chunk = rows[start : start + self.rows]
            batch = token_batch(
                prompts, [p for p, _ in chunk], [completion.token_ids for _, completion in chunk], self.pad_id
            ).to(self.device)
            sampled = pad_rows([completion.logprobs for _, completion in chunk], 0.0, torch.float32)
            reference = self.reference.logprobs(batch)
            charges.append(
                sequence_kl_penalty(
                    sampled.to(self.device), reference, batch.mask, self.estimator, self.coefficient
                ).cpu()
            )
        return torch.cat(charges).reshape(len(groups), -1)
