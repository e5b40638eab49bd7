"""Rows for tests of the loss: the fixture of the golden numbers, random rows, gradients, micro-batches."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo.batch import row_weights, step_totals
from grpo.loss import LossSettings, policy_loss
from grpo.types import LossInputs, LossOutput

AGGREGATIONS = ["sequence_mean", "token_mean", "constant", "prompt_mean", "sequence_sum"]
UNBOUNDED = {"clip_low": None, "clip_high": None}
SETTINGS = [
    LossSettings(clip_high=0.28),
    LossSettings(ratio="sequence", clip_low=3e-4, clip_high=4e-4),
    LossSettings(objective="cispo", clip_low=0.2, clip_high=0.3),
    LossSettings(objective="sapo", clip_low=None, clip_high=None),
    LossSettings(kl_coefficient=0.04, kl_estimator="k3"),
    LossSettings(kl_coefficient=0.04, kl_estimator="k3_corrected"),
    LossSettings(kl_coefficient=0.04, kl_estimator="k2", entropy_coefficient=0.01, importance_cap=1.1),
]
NAMES = ["clip_higher", "gspo", "cispo", "sapo", "k3", "k3_corrected", "k2_entropy_importance"]
LOGPROBS = torch.tensor(
    [[-0.50, -1.20, -0.30, -2.00], [-0.90, -0.10, -1.50, -0.70], [-0.20, -0.80, -0.60, -1.10]],
    dtype=torch.float64,
)
OLD_CHANGE = [[0.10, -0.30, 0.05, 0.00], [-0.40, 0.02, 0.35, -0.15], [0.00, 0.60, -0.25, 0.20]]
REF_CHANGE = [[-0.20, 0.10, 0.00, 0.30], [0.05, -0.05, 0.50, -0.40], [0.10, 0.00, -0.30, 0.15]]


def fixture(aggregation: str = "token_mean", prompts: tuple[int, ...] = (0, 1, 2)) -> LossInputs:
    """Three rows of 3, 4 and 2 tokens; completion limit 10."""
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    index = torch.tensor(prompts)
    lengths = mask.sum(1)
    return LossInputs(
        logprobs=LOGPROBS.clone().requires_grad_(True),
        old_logprobs=LOGPROBS + torch.tensor(OLD_CHANGE, dtype=torch.float64),
        ref_logprobs=LOGPROBS + torch.tensor(REF_CHANGE, dtype=torch.float64),
        advantages=torch.tensor([1.2, -0.7, 0.4], dtype=torch.float64)[:, None].repeat(1, 4),
        mask=mask,
        row_weights=row_weights(lengths, index, aggregation, 10, step_totals(lengths, index)),
        sampling_logprobs=LOGPROBS + torch.tensor(REF_CHANGE, dtype=torch.float64) / 2,
        entropy=torch.linspace(0.1, 1.2, 12, dtype=torch.float64).view(3, 4),
    )


def random_inputs(seed: int, rows: int = 6, width: int = 5, aggregation: str = "token_mean") -> LossInputs:
    """Rows of unequal length, among them an empty one, of three prompts."""
    g = torch.Generator().manual_seed(seed)

    def draw(scale: float) -> Tensor:
        return scale * torch.randn(rows, width, generator=g, dtype=torch.float64)

    lengths = torch.randint(1, width + 1, (rows,), generator=g)
    lengths[rows // 2] = 0
    index = torch.arange(rows) % 3
    logprobs = -draw(1.0).abs()
    return LossInputs(
        logprobs=logprobs.requires_grad_(True),
        old_logprobs=logprobs.detach() + draw(0.3),
        ref_logprobs=logprobs.detach() + draw(0.3),
        advantages=draw(1.0),
        mask=torch.arange(width) < lengths[:, None],
        row_weights=row_weights(lengths, index, aggregation, 7, step_totals(lengths, index)),
        sampling_logprobs=logprobs.detach() + draw(0.2),
        entropy=draw(1.0).abs(),
    )


def gradient(inputs: LossInputs, settings: LossSettings) -> tuple[LossOutput, Tensor]:
    output = policy_loss(inputs, settings)
    (grad,) = torch.autograd.grad(output.loss, inputs.logprobs)
    return output, grad


def rows_of(inputs: LossInputs, rows: list[int], leaf: Tensor) -> LossInputs:
    """Some rows as a micro-batch of their own; the weights stay those of the whole step."""

    def pick(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[rows]

    return LossInputs(
        leaf[rows],
        pick(inputs.old_logprobs),
        pick(inputs.ref_logprobs),
        inputs.advantages[rows],
        inputs.mask[rows],
        inputs.row_weights[rows],
        pick(inputs.sampling_logprobs),
        pick(inputs.entropy),
    )
