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
from grpo.update import micro_batches
from grpo.value import AdaptiveKL


@dataclass(frozen=True, slots=True)
class KlRows:
    """Estimates the KL of the policy that sampled from a reference, which is on the device.

    estimator: a name in `grpo.kl`. rows_at_once, tokens_at_once: completions and their tokens of one forward
    at most, as of a backward pass (`grpo.update.micro_batches`); they change memory only.
    """

    reference: Reference
    estimator: str
    rows_at_once: int
    pad_id: int
    device: torch.device
    tokens_at_once: int | None = None

    def estimate(self, prompts: Sequence[Tensor], rows: Sequence[tuple[int, Completion]]) -> Tensor:
        """(B, T) float64 on the CPU, 0 after a row's last token; rows: completions, each with its prompt."""
        chunks = micro_batches(
            [len(completion.token_ids) for _, completion in rows],
            [p for p, _ in rows],
            range(len(rows)),
            self.rows_at_once,
            tokens=self.tokens_at_once,
        )
        found = {
            i: row
            for chunk in chunks
            for i, row in zip(chunk, self._once(prompts, [rows[i] for i in chunk]), strict=True)
        }
        return pad_rows([found[i] for i in range(len(rows))], 0.0, torch.float64)

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
    `grpo.value.AdaptiveKL`), None to leave it. rows, tokens: completions and their tokens of one forward of
    the reference at most; they change memory only.
    """

    reference: Reference
    estimator: str
    coefficient: float
    rows: int
    pad_id: int
    accelerator: Accelerator
    target: float | None = None
    tokens: int | None = None

    def charge(self, groups: Sequence[RolloutGroup]) -> tuple[Tensor, dict[str, float]]:
        """(B, T) float64, what to subtract from the reward of each token (0 after a row's last).

        The coefficient adapts afterwards, equally on every rank.
        """
        flat = [(p, completion) for p, group in enumerate(groups) for completion in group.completions]
        prompts = [group.prompt_ids for group in groups]
        measured = KlRows(
            self.reference, self.estimator, self.rows, self.pad_id, self.accelerator.device, self.tokens
        )
        kl = measured.estimate(prompts, flat)
        total, count = sum_over_ranks(self.accelerator, [float(kl.sum()), len(kl)])
        charged, mean = self.coefficient, total / count
        metrics = {"reward/kl": mean, "reward/kl_charge": charged * mean}
        if self.target is not None:
            metrics["reward/kl_coefficient"] = charged
            self.coefficient = AdaptiveKL(charged, self.target).updated(mean).coefficient
        return charged * kl, metrics
