"""Products of fp32 matrices by oneDNN, with their gradients, where torch's own choice is slow.

On a CPU torch gives them to MKL, which on AMD's processors reaches less than half of the rate that oneDNN
does. The same sums in another order: results differ by rounding. Knows nothing of what is multiplied.

Measured (one thread, AVX-512, 1024 rows through a layer of 576 x 1536): 254 against 115 GFLOP/s forward, 273
and 237 against 111 and 113 for the gradients of input and weight.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LEAST = 1 << 21
"""Multiplications from which the saving outweighs the longer call."""
PROCESSOR = Path("/proc/cpuinfo")


class Linear(nn.Linear):
    """A linear layer whose products are those of `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(input, self.weight, self.bias)


def use_fast_products(model: nn.Module) -> None:
    """Makes every plain linear layer of the model a `Linear`, in place; its parameters stay as they are."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias with gradients: x (..., in), weight (out, in), bias (out,)."""
    kind = x.device.type
    plain = torch.is_autocast_enabled(kind) or weight.dtype != x.dtype
    if plain or not _pays(x, x.numel() * weight.shape[0]):
        return functional.linear(x, weight, bias)
    if torch.is_grad_enabled():
        function: Any = _Linear  # torch tells no type of `apply`
        return function.apply(x, weight, bias)
    return _product(x, weight, bias)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """(M, K) by (K, N), any strides, no gradient."""
    if a.requires_grad or b.requires_grad or not _pays(a, a.numel() * b.shape[1]):
        return a @ b
    return _product(a, b.t(), None)


def _pays(x: Tensor, multiplications: int) -> bool:
    suited = x.dtype == torch.float32 and x.device.type == "cpu"
    return suited and multiplications >= LEAST and is_faster_here()


@cache
def is_faster_here() -> bool:
    """Whether torch would ask MKL on a processor that MKL serves badly."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return PROCESSOR.exists() and "AuthenticAMD" in PROCESSOR.read_text(encoding="utf-8")


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    """With slopes G of the result: G weight to the input, G^T x to the weight, sums of G to the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        slope = gradients[0].flatten(0, -2)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _product(gradients[0], weight.t(), None)
        if ctx.needs_input_grad[1]:
            to_weight = _product(slope.t(), x.flatten(0, -2).t(), None)
        if ctx.needs_input_grad[2]:
            to_bias = slope.sum(dim=0)
        return to_x, to_weight, to_bias
