"""A linear layer whose weight lies as the processor's product in bf16 reads it: for many calls of few rows.

A product over a plain weight first rearranges it, which for 64 rows takes a sixth of its time. Same bits.
Knows nothing of models.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rewards.models.products import linear


class HeldLinear(nn.Module):
    """A frozen copy of a linear layer in `dtype`, packed where the processor has products in bf16."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = linear.weight.detach().to(dtype)
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.packed = can_pack(self.weight)
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out), in `dtype`."""
        x = x.to(self.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return linear(x, self.weight, self.bias)


def can_pack(weight: Tensor) -> bool:
    """Whether this machine's products read packed weights of this kind."""
    on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return on_cpu and weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
