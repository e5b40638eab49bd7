"""The KL to the reference charged in the reward, token by token, and its coefficient where that adapts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.batch import pad_rows
from grpo.kl import token_kl_penalty
from grpo.policy import token_batch
from grpo.ranks import sum_over_ranks
from grpo.reference import Reference
from grpo.types import Completion, RolloutGroup
from grpo.value import AdaptiveKL


@dataclass(frozen=True, slots=True)
class KlRows:
    """Estimates the KL of the policy that sampled from a reference, which is on the device.

    estimator: a name in `grpo.kl`. rows_at_once: completions of one forward; changes memory only.
    """

    reference: Reference
    estimator: str
    rows_at_once: int
    pad_id: int
    device: torch.device

    def estimate(self, prompts: Sequence[Tensor], rows: Sequence[tuple[int, Completion]]) -> Tensor:
        """(B, T) float64 on the CPU, 0 after a row's last token; rows: completions, each with its prompt."""
        chunks = [rows[start : start + self.rows_at_once] for start in range(0, len(rows), self.rows_at_once)]
        return pad_rows([row for chunk in chunks for row in self._once(prompts, chunk)], 0.0, torch.float64)

    def _once(self, prompts: Sequence[Tensor], chunk: Sequence[tuple[int, Completion]]) -> Tensor:
        ids = [completion.token_ids for _, completion in chunk]
        batch = token_batch(prompts, [p for p, _ in chunk], ids, self.pad_id).to(self.device)
        sampled = pad_rows([completion.logprobs for _, completion in chunk], 0.0, torch.float32)
        reference = self.reference.logprobs(batch)
        return token_kl_penalty(
            sampled.to(reference.device), reference, batch.mask, self.estimator, 1.0
        ).cpu()


@dataclass(slots=True)
class KlPenalty:
    """r_t <- r_t - coefficient * kl_t of the policy that sampled: DeepSeekMath (arXiv 2402.03300, eq. 2).

    Summed over a completion it is r - coefficient * sum_t kl_t: RLOO (arXiv 2402.14740, eq. 3).

    coefficient: of the next charge. target: nats of KL a completion that the coefficient adapts to (see
    `grpo.value.AdaptiveKL`), None to leave it. rows: completions of one forward of the reference; changes
    memory only.
    """

    reference: Reference
    estimator: str
    coefficient: float
    rows: int
    pad_id: int
    accelerator: Accelerator
    target: float | None = None

    def charge(self, groups: Sequence[RolloutGroup]) -> tuple[Tensor, dict[str, float]]:
        """(B, T) float64, what to subtract from the reward of each token (0 after a row's last).

        The coefficient adapts afterwards, equally on every rank.
        """
        flat = [(p, completion) for p, group in enumerate(groups) for completion in group.completions]
        prompts = [group.prompt_ids for group in groups]
        measured = KlRows(self.reference, self.estimator, self.rows, self.pad_id, self.accelerator.device)
        kl = measured.estimate(prompts, flat)
        total, count = sum_over_ranks(self.accelerator, [float(kl.sum()), len(kl)])
        charged, mean = self.coefficient, total / count
        metrics = {"reward/kl": mean, "reward/kl_charge": charged * mean}
        if self.target is not None:
            metrics["reward/kl_coefficient"] = charged
            self.coefficient = AdaptiveKL(charged, self.target).updated(mean).coefficient
        return charged * kl, metrics
