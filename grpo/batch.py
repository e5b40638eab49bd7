"""Rows of a step -> padded tensors, and the weight of each row in the step's loss.

The weights carry the aggregation and are computed once over the whole step: a micro-batch's loss is a plain
weighted sum, so gradients of any split into micro-batches and ranks add up to the same step. Knows nothing
of models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo.algorithm import AGGREGATIONS, check_name


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Counts over one optimiser step. Add them up over the ranks (the rows of a prompt stay on one rank)."""

    rows: int
    tokens: int
    prompts: int

    def __add__(self, other: StepTotals) -> StepTotals:
        return StepTotals(self.rows + other.rows, self.tokens + other.tokens, self.prompts + other.prompts)


def step_totals(lengths: Tensor, prompt_index: Tensor) -> StepTotals:
    """The counts of these rows. lengths: (B,) *trained* tokens; prompt_index: (B,) the prompt a row is of."""
    return StepTotals(lengths.numel(), int(lengths.sum()), len({int(p) for p in prompt_index}))


def row_weights(
    lengths: Tensor, prompt_index: Tensor, aggregation: str, max_length: int, totals: StepTotals
) -> Tensor:
    """(B,) float64: the weight of each trained token of a row in the loss, which is a sum.

    With R rows, N tokens, P prompts in the whole step, n_i tokens in row i and N_p in all rows of its prompt:

        sequence_mean  1 / (R n_i)    mean over rows of the row's mean: DeepSeekMath (arXiv 2402.03300, eq. 3)
        token_mean     1 / N          every token weighs the same: DAPO (arXiv 2503.14476, eq. 8)
        constant       1 / (R L)      L = max_length, a setting, never the padded width: Dr. GRPO (2503.20783)
        prompt_mean    1 / (P N_p)    token mean within a prompt, then mean over prompts
        sequence_sum   1 / R          mean over rows of the row's sum

    Rows without trained tokens (empty, or masked as truncated) have weight 0. They still count in R and,
    through their prompt, in P: masking rows scales a sequence_mean down and leaves a token_mean as it was.

    Args:
        lengths: (B,) trained tokens a row, the sums of the loss mask.
        prompt_index: (B,) int64; equal numbers, same prompt. All rows of a prompt must be in this call.
        aggregation: one of the names above.
        max_length: the completion limit in tokens, used by `constant`.
        totals: of the whole optimiser step, summed over ranks; taken before rows without signal are dropped.

    >>> lengths, prompts = torch.tensor([2, 4]), torch.tensor([0, 1])
    >>> row_weights(lengths, prompts, "sequence_mean", 8, step_totals(lengths, prompts)).tolist()
    [0.25, 0.125]
    """
    check_name("aggregation", aggregation, AGGREGATIONS)
    n = lengths.double()
    weights = _AGGREGATIONS[aggregation](n, prompt_index, max_length, totals)
    return torch.where(n > 0, weights, 0.0)


def pad_rows(rows: Sequence[Tensor], value: float, dtype: torch.dtype) -> Tensor:
    """(B, T) the rows (n_i,), filled on the right to the longest."""
    width = max((row.numel() for row in rows), default=0)
    padded = torch.full((len(rows), width), value, dtype=dtype)
    for i, row in enumerate(rows):
        padded[i, : row.numel()] = row
    return padded


def _sequence_mean(n: Tensor, prompt: Tensor, max_length: int, totals: StepTotals) -> Tensor:
    return 1 / (totals.rows * n.clamp(min=1))


def _token_mean(n: Tensor, prompt: Tensor, max_length: int, totals: StepTotals) -> Tensor:
    return torch.full_like(n, 1 / max(totals.tokens, 1))


def _constant(n: Tensor, prompt: Tensor, max_length: int, totals: StepTotals) -> Tensor:
    return torch.full_like(n, 1 / (max(totals.rows, 1) * max_length))


def _prompt_mean(n: Tensor, prompt: Tensor, max_length: int, totals: StepTotals) -> Tensor:
    same = prompt[:, None] == prompt[None, :]
    tokens = same.double() @ n
    return 1 / (totals.prompts * tokens.clamp(min=1))


def _sequence_sum(n: Tensor, prompt: Tensor, max_length: int, totals: StepTotals) -> Tensor:
    return torch.full_like(n, 1 / max(totals.rows, 1))


_AGGREGATIONS: dict[str, Callable[[Tensor, Tensor, int, StepTotals], Tensor]] = {
    "sequence_mean": _sequence_mean,
    "token_mean": _token_mean,
    "constant": _constant,
    "prompt_mean": _prompt_mean,
    "sequence_sum": _sequence_sum,
}
