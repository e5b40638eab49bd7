"""Evaluates and fits a value model on the completions of a step. The loss is grpo.value's.

As in grpo.update, every row's weight is counted over the whole step and all ranks, so that micro-batches and
ranks add up to one gradient, and a rank without anything to learn runs one backward pass of weight 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.batch import row_weights, step_totals
from grpo.policy import TokenBatch, token_batch
from grpo.ranks import sum_over_ranks, totals_over_ranks
from grpo.types import RolloutGroup
from grpo.update import Trainable, is_broken, micro_batches
from grpo.value import ValueInputs, value_loss
from grpo.value_head import ValueModel


@dataclass(frozen=True, slots=True)
class Episodes:
    """The completions of a step as a value model reads them.

    prompts: P id tensors. prompt_of_row: (B,) indices into them. token_ids: B id tensors (n_i,).
    """

    prompts: tuple[Tensor, ...]
    prompt_of_row: tuple[int, ...]
    token_ids: tuple[Tensor, ...]

    def lengths(self) -> Tensor:
        """(B,) int64."""
        return torch.tensor([len(ids) for ids in self.token_ids])

    def mask(self) -> Tensor:
        """(B, T) bool, True on the tokens of each row; T is the longest."""
        lengths = self.lengths()
        return torch.arange(int(lengths.max())) < lengths[:, None]

    def batch(self, rows: Sequence[int], pad_id: int) -> TokenBatch:
        """Some of the rows."""
        return token_batch(
            self.prompts, [self.prompt_of_row[i] for i in rows], [self.token_ids[i] for i in rows], pad_id
        )


def episodes_of(groups: Sequence[RolloutGroup]) -> Episodes:
    """All completions of the groups, in order."""
    return Episodes(
        tuple(group.prompt_ids for group in groups),
        tuple(p for p, group in enumerate(groups) for _ in group.completions),
        tuple(completion.token_ids for group in groups for completion in group.completions),
    )


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """aggregation, max_length, micro_batch_rows, updates_per_rollout, max_grad_norm, micro_batch_tokens: as
    for the policy.

    clip: how far values move from those at sampling before the loss stops paying for it; None for no bound.
    """

    aggregation: str
    max_length: int
    micro_batch_rows: int
    updates_per_rollout: int
    max_grad_norm: float
    clip: float | None = None
    micro_batch_tokens: int | None = None


class Critic:
    """A value model with what fits it.

    Args:
        model: the value model itself.
        trainable: the same as Accelerate prepared it, its optimiser and schedule.
    """

    def __init__(
        self,
        model: ValueModel,
        trainable: Trainable,
        settings: CriticSettings,
        *,
        accelerator: Accelerator,
        pad_id: int,
    ) -> None:
        self.model = model
        self.trainable = trainable
        self.settings = settings
        self.accelerator = accelerator
        self.pad_id = pad_id

    @torch.no_grad()
    def values(self, rows: Episodes) -> Tensor:
        """(B, T) fp32 on the CPU, 0 outside the mask."""
        values = torch.zeros(rows.mask().shape)
        everything = range(len(rows.token_ids))
        for chunk in self._micro_batches(rows, everything):
            found = self.model(rows.batch(chunk, self.pad_id).to(self.accelerator.device)).cpu()
            values[chunk, : found.shape[1]] = found
        return values

    def fit(self, rows: Episodes, values: Tensor, returns: Tensor, learned: Tensor) -> dict[str, float]:
        """Takes `updates_per_rollout` optimiser steps towards the returns.

        Args:
            rows: the completions.
            values: (B, T) as `values` gave them.
            returns: (B, T).
            learned: (B,) bool; other rows are left out.

        Returns:
            loss and norm of the gradient, means over the updates, and how many were left out; equal on
            every rank.
        """
        lengths = rows.lengths() * learned
        index = torch.tensor(rows.prompt_of_row)
        totals = totals_over_ranks(self.accelerator, step_totals(lengths, index))
        if totals.tokens == 0:
            return {"critic/skipped": 1.0}
        weights = row_weights(
            lengths, index, self.settings.aggregation, self.settings.max_length, totals
        ).float()
        # A rank with nothing to learn has only weights of 0, and the others wait for its gradients.
        batches = self._micro_batches(rows, lengths.nonzero()[:, 0].tolist() or [0])
        inputs = [self._micro_batch(rows, chunk, values, returns, weights) for chunk in batches]
        steps = [self._optimiser_step(inputs) for _ in range(self.settings.updates_per_rollout)]
        sums = {name: sum(step[name] for step in steps) for name in steps[0]}
        skipped = sums.pop("critic/skipped")
        return {name: total / len(steps) for name, total in sums.items()} | {"critic/skipped": skipped}

    def _micro_batches(self, rows: Episodes, kept: Sequence[int]) -> list[list[int]]:
        lengths = [len(ids) for ids in rows.token_ids]
        return micro_batches(
            lengths,
            rows.prompt_of_row,
            kept,
            self.settings.micro_batch_rows,
            tokens=self.settings.micro_batch_tokens,
        )

    def _micro_batch(
        self, rows: Episodes, chunk: list[int], values: Tensor, returns: Tensor, weights: Tensor
    ) -> _MicroBatch:
        device = self.accelerator.device
        tokens = rows.batch(chunk, self.pad_id)
        width = tokens.completions.shape[1]
        return _MicroBatch(
            tokens.to(device),
            values[chunk, :width].to(device),
            returns[chunk, :width].to(device),
            weights[chunk].to(device),
        )

    def _optimiser_step(self, batches: Sequence[_MicroBatch]) -> dict[str, float]:
        module, optimizer = self.trainable.module, self.trainable.optimizer
        total = 0.0
        for k, batch in enumerate(batches):
            last = k + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(module):
                inputs = ValueInputs(
                    module(batch.tokens), batch.values, batch.returns, batch.tokens.mask, batch.row_weights
                )
                loss = value_loss(inputs, self.settings.clip)
                self.accelerator.backward(loss * self.accelerator.num_processes)  # ranks average
            total += float(loss.detach())
        clipped = self.accelerator.clip_grad_norm_(module.parameters(), self.settings.max_grad_norm)
        norm = float(clipped) if clipped is not None else 0.0
        (loss,) = sum_over_ranks(self.accelerator, [total])
        metrics = {"critic/loss": loss, "critic/grad_norm": norm}
        broken = is_broken(metrics)
        if not broken:
            optimizer.step()
            self.trainable.scheduler.step()
        optimizer.zero_grad()
        return metrics | {"critic/skipped": float(broken)}

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs: weights, optimiser, schedule."""
        return {
            "weights": self.model.state_dict(),
            "optimizer": self.trainable.optimizer.state_dict(),
            "scheduler": self.trainable.scheduler.state_dict(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Puts back what `state` gave."""
        self.model.load_state_dict(state["weights"])
        self.trainable.optimizer.load_state_dict(state["optimizer"])
        self.trainable.scheduler.load_state_dict(state["scheduler"])


@dataclass(frozen=True, slots=True)
class _MicroBatch:
    """Rows on the device."""

    tokens: TokenBatch
    values: Tensor
    returns: Tensor
    row_weights: Tensor
