"""Rows of one rollout -> optimiser steps. Holds no formula: the loss is grpo.loss, the weights grpo.batch.

Every row's weight is counted over the whole step and all ranks, so micro-batches and ranks add up to one
gradient. Rows that cannot move the policy (no advantage, no KL, no entropy bonus) are left out of the
forward; they stay in the counts. Each rank runs at least one backward pass, with weight 0 when it has nothing
to learn from, so that none waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from grpo.batch import pad_rows, row_weights, step_totals
from grpo.loss import LossSettings, policy_loss
from grpo.policy import TokenBatch, token_batch
from grpo.ranks import max_over_ranks, min_over_ranks, sum_over_ranks, totals_over_ranks
from grpo.reference import Reference
from grpo.timings import Timings
from grpo.types import LossInputs

METRIC_NAMES = {
    "kl": "kl",
    "k1": "kl/k1",
    "k2": "kl/k2",
    "entropy": "entropy",
    "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean",
    "max/clip_high": "clip_ratio/high_max",
    "clip_region": "clip_ratio/region_mean",
    "approx_kl": "policy/approx_kl",
    "ratio": "policy/ratio_mean",
    "max/ratio": "policy/ratio_max",
    "sampling_gap": "sampling/sampling_logp_difference/mean",
    "max/sampling_gap": "sampling/sampling_logp_difference/max",
    "importance": "sampling/importance_sampling_ratio/mean",
    "min/importance": "sampling/importance_sampling_ratio/min",
    "max/importance": "sampling/importance_sampling_ratio/max",
}
"""The loss's sums -> the field's names."""
LOSSES = ("loss", "grad_norm", "critic/loss", "critic/grad_norm")
"""The numbers of a step that must be finite."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One completion to learn from.

    prompt: index of its prompt in the step. token_ids: (n,) int64. advantages: (n,) float32. logprobs: (n,)
    of the sampler. trained: False keeps the row in the counts and out of the loss.
    """

    prompt: int
    token_ids: Tensor
    advantages: Tensor
    logprobs: Tensor
    trained: bool = True


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """aggregation: a name of grpo.batch. max_length: the completion limit in tokens, used by `constant`.

    micro_batch_rows, micro_batch_tokens: the most rows and completion tokens of one backward pass (None: any
    number of tokens); they change memory, not the gradient. updates_per_rollout: optimiser steps on the same
    rows (mu of the paper). keep_silent: groups without any advantage are still
    trained on for their KL and entropy terms.
    """

    aggregation: str
    max_length: int
    micro_batch_rows: int
    updates_per_rollout: int
    max_grad_norm: float
    keep_silent: bool = False
    micro_batch_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Trainable:
    """What is optimised: a model as Accelerate prepared it, its optimiser and schedule."""

    module: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler


class Updater:
    """Turns rows into optimiser steps."""

    def __init__(
        self,
        trainable: Trainable,
        settings: UpdateSettings,
        loss: LossSettings,
        *,
        accelerator: Accelerator,
        reference: Reference | None,
        pad_id: int,
    ) -> None:
        self.trainable = trainable
        self.settings = settings
        self.loss = loss
        self.accelerator = accelerator
        self.reference = reference
        self.pad_id = pad_id

    def update(
        self, prompts: Sequence[Tensor], rows: Sequence[TrainRow], timings: Timings | None = None
    ) -> dict[str, float]:
        """Takes `updates_per_rollout` optimiser steps.

        Args:
            prompts: ids of each.
            rows: of the step, each with its place among the prompts.
            timings: gets the reference's forward as `ref`, out of `update_actor`; None measures nothing.

        Returns:
            The step's loss metrics, equal on every rank.
        """
        lengths = torch.tensor([len(row.token_ids) if row.trained else 0 for row in rows])
        index = torch.tensor([row.prompt for row in rows])
        totals = totals_over_ranks(self.accelerator, step_totals(lengths, index))
        weights = row_weights(
            lengths, index, self.settings.aggregation, self.settings.max_length, totals
        ).float()
        kept = [i for i in self._moving(rows) if lengths[i] > 0]
        batches = micro_batches(
            [len(row.token_ids) for row in rows],
            index.tolist(),
            kept,
            self.settings.micro_batch_rows,
            tokens=self.settings.micro_batch_tokens,
        )
        if sum_over_ranks(self.accelerator, [len(kept)]) == [0]:
            return {"loss": 0.0, "grad_norm": 0.0, "update/skipped": 1.0}
        if not batches:  # this rank learns nothing, the others wait for its gradients
            batches, weights = [[0]], torch.zeros_like(weights)
        prepared = [self._prepare(prompts, [rows[i] for i in batch], weights[batch]) for batch in batches]
        self._refer(prepared, timings or Timings())
        metrics = [self._optimiser_step(prepared) for _ in range(self.settings.updates_per_rollout)]
        rate = self.trainable.scheduler.get_last_lr()[0]
        return {name: _over_updates(name, [m[name] for m in metrics]) for name in metrics[0]} | {
            "learning_rate": float(rate)
        }

    def _moving(self, rows: Sequence[TrainRow]) -> list[int]:
        """The rows that can move the policy: by their advantage, or by the terms that need none."""
        moved = [i for i, row in enumerate(rows) if bool((row.advantages != 0).any())]
        if self.loss.kl_coefficient == 0 and self.loss.entropy_coefficient == 0:
            return moved
        speaking = {rows[i].prompt for i in moved}
        return [i for i, row in enumerate(rows) if self.settings.keep_silent or row.prompt in speaking]

    def _prepare(self, prompts: Sequence[Tensor], rows: Sequence[TrainRow], weights: Tensor) -> _MicroBatch:
        device = self.accelerator.device
        batch = token_batch(
            prompts, [row.prompt for row in rows], [row.token_ids for row in rows], self.pad_id
        ).to(device)
        return _MicroBatch(
            batch,
            pad_rows([row.advantages for row in rows], 0.0, torch.float32).to(device),
            pad_rows([row.logprobs for row in rows], 0.0, torch.float32).to(device),
            weights.to(device),
        )

    def _refer(self, batches: Sequence[_MicroBatch], timings: Timings) -> None:
        """Fills in the reference's log-probs."""
        if self.reference is None:
            return
        with timings.phase("ref", out_of="update_actor"):
            for batch in batches:
                batch.ref_logprobs = self.reference.logprobs(batch.tokens)
            if self.accelerator.device.type == "cuda":
                torch.cuda.synchronize(self.accelerator.device)  # or its time would count as the update's

    def _optimiser_step(self, batches: Sequence[_MicroBatch]) -> dict[str, float]:
        policy, optimizer = self.trainable.module, self.trainable.optimizer
        sums: dict[str, float] = {}
        for k, batch in enumerate(batches):
            last = k + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(policy):
                scores = policy(batch.tokens)
                output = policy_loss(self._inputs(batch, scores.logprobs, scores.entropy), self.loss)
                self.accelerator.backward(output.loss * self.accelerator.num_processes)  # ranks average
            if self.settings.updates_per_rollout > 1 and batch.old_logprobs is None:
                batch.old_logprobs = scores.logprobs.detach()
            _accumulate(sums, {"loss": output.loss.detach(), **output.sums})
        clipped = self.accelerator.clip_grad_norm_(policy.parameters(), self.settings.max_grad_norm)
        metrics = self._means(sums) | {"grad_norm": float(clipped) if clipped is not None else 0.0}
        broken = is_broken(metrics)
        if not broken:
            optimizer.step()
            self.trainable.scheduler.step()
        optimizer.zero_grad()
        return metrics | {"update/skipped": float(broken)}

    def _inputs(self, batch: _MicroBatch, logprobs: Tensor, entropy: Tensor) -> LossInputs:
        return LossInputs(
            logprobs=logprobs,
            old_logprobs=batch.old_logprobs,
            ref_logprobs=batch.ref_logprobs,
            advantages=batch.advantages,
            mask=batch.tokens.mask,
            row_weights=batch.row_weights,
            sampling_logprobs=batch.sampling_logprobs,
            entropy=entropy,
        )

    def _means(self, sums: dict[str, float]) -> dict[str, float]:
        """Token means over all ranks, under the names of grpo.names.

        `loss` is a sum, `max/...` the largest, `min/...` the smallest.
        """
        names = sorted(name for name in sums if not name.startswith(("max/", "min/")))
        totals = sum_over_ranks(self.accelerator, [sums[name] for name in names])
        added = dict(zip(names, totals, strict=True))
        tokens = max(added.pop("tokens"), 1.0)
        loss = added.pop("loss")
        extremes = {
            name: (max_over_ranks if name.startswith("max/") else min_over_ranks)(self.accelerator, x)
            for name, x in sorted(sums.items())
            if name.startswith(("max/", "min/"))
        }
        means = {name: x / tokens for name, x in added.items()} | extremes
        means["clip_region"] = means["clip_low"] + means["clip_high"]
        return {"loss": loss} | {METRIC_NAMES[name]: value for name, value in means.items()}


def is_broken(metrics: Mapping[str, float]) -> bool:
    """Whether a loss or a gradient of a step is not finite; the same on every rank."""
    return not all(math.isfinite(metrics[name]) for name in LOSSES if name in metrics)


@dataclass(slots=True)
class _MicroBatch:
    """Rows on the device.

    ref_logprobs are filled before the updates, old_logprobs by the first of several.
    """

    tokens: TokenBatch
    advantages: Tensor
    sampling_logprobs: Tensor
    row_weights: Tensor
    ref_logprobs: Tensor | None = None
    old_logprobs: Tensor | None = None


def micro_batches(
    lengths: Sequence[int],
    prompt_index: Sequence[int],
    kept: Sequence[int],
    rows: int,
    *,
    tokens: int | None = None,
) -> list[list[int]]:
    """Splits the kept rows into batches of at most `rows` rows and `tokens` completion tokens.

    A single row may be longer than that. Rows of a prompt stay together, for they share its forward; prompts
    with long rows come first, so that a limit too high for the memory shows at once.
    """
    longest: dict[int, int] = {}
    for i in kept:
        longest[prompt_index[i]] = max(longest.get(prompt_index[i], 0), lengths[i])
    batches: list[list[int]] = []
    room = 0
    for i in sorted(kept, key=lambda i: (-longest[prompt_index[i]], prompt_index[i], -lengths[i], i)):
        if not batches or len(batches[-1]) == rows or (tokens is not None and lengths[i] > room):
            batches.append([])
            room = tokens or 0
        batches[-1].append(i)
        room -= lengths[i]
    return batches


def _over_updates(name: str, values: Sequence[float]) -> float:
    if name == "update/skipped":
        return sum(values)
    if name.endswith(("/max", "_max")):
        return max(values)
    return min(values) if name.endswith("/min") else sum(values) / len(values)


def _accumulate(sums: dict[str, float], more: dict[str, Tensor]) -> None:
    for name, value in more.items():
        x = float(value)
        if name.startswith("max/"):
            sums[name] = max(sums.get(name, x), x)
        elif name.startswith("min/"):
            sums[name] = min(sums.get(name, x), x)
        else:
            sums[name] = sums.get(name, 0.0) + x
