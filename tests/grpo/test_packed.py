"""A held linear layer against the product it stands for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from grpo.packed import HeldLinear, can_pack


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_a_held_layer_gives_the_product_in_its_precision(dtype: torch.dtype, bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias=bias)
    x = torch.randn(rows, 48)
    held = HeldLinear(linear, dtype)
    own = linear.bias.to(dtype) if bias else None
    expected = nn.functional.linear(x.to(dtype), linear.weight.to(dtype), own)
    out = held(x)
    assert out.dtype == dtype
    assert torch.allclose(out, expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-6)
    assert not out.requires_grad


def test_only_bf16_is_packed() -> None:
    assert not can_pack(torch.zeros(2, 2))
    assert HeldLinear(nn.Linear(4, 4), torch.bfloat16).packed == can_pack(torch.zeros(2, 2).bfloat16())


def test_a_held_layer_keeps_its_weights_when_the_layer_learns() -> None:
    linear = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    held = HeldLinear(linear, torch.bfloat16)
    before = held(x)
    with torch.no_grad():
        linear.weight.add_(1.0)
    assert torch.equal(held(x), before)
