"""Sums, maxima and rows over all ranks, as plain values: the few collectives a step needs.

Every rank must call these in the same order; with one process each is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.batch import StepTotals


def sum_over_ranks(accelerator: Accelerator, values: Sequence[float]) -> list[float]:
    """Element-wise sums, in float64: exact for counts."""
    mine = torch.tensor(list(values), dtype=torch.float64, device=accelerator.device)
    total = accelerator.reduce(mine)
    assert isinstance(total, Tensor)
    return total.tolist()


def totals_over_ranks(accelerator: Accelerator, totals: StepTotals) -> StepTotals:
    """The counts of a step from those of each rank; the rows of a prompt are on one rank."""
    rows, tokens, prompts = sum_over_ranks(accelerator, [totals.rows, totals.tokens, totals.prompts])
    return StepTotals(int(rows), int(tokens), int(prompts))


def max_over_ranks(accelerator: Accelerator, value: float) -> float:
    """The largest value of any rank."""
    return float(rows_of_ranks(accelerator, torch.tensor([value], dtype=torch.float64)).max())


def min_over_ranks(accelerator: Accelerator, value: float) -> float:
    """The smallest value of any rank."""
    return -max_over_ranks(accelerator, -value)


def rows_of_ranks(accelerator: Accelerator, rows: Tensor) -> Tensor:
    """The rows of all ranks, stacked in rank order, on the CPU; every rank gives equally many."""
    gathered = accelerator.gather(rows.to(accelerator.device))
    assert isinstance(gathered, Tensor)
    return gathered.cpu()
