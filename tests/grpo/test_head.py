"""The blocked head against log_softmax over the whole vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import grpo.head
from grpo.head import score_tokens


def inputs(vocabulary: int = 23) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocabulary, 4, generator=g, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(vocabulary, generator=g, dtype=torch.float64, requires_grad=True)
    return hidden, weight, bias, torch.tensor([0, 22, 7, 8, 15])


@pytest.mark.parametrize("block", [1, 8, 4096])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kept", [0, 60, 1 << 26])
def test_trap_21_values_and_gradients_for_every_block(
    block: int, temperature: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo.head, "BLOCK", block)
    monkeypatch.setattr(grpo.head, "KEPT", kept)  # of 115 logits
    hidden, weight, bias, targets = inputs()
    whole = torch.log_softmax((hidden @ weight.t() + bias) / temperature, dim=1)
    logprobs, entropy = score_tokens(hidden, weight, bias, targets, temperature)
    assert torch.allclose(logprobs, whole.gather(1, targets[:, None]).squeeze(1))
    assert torch.allclose(entropy, -(whole.exp() * whole).sum(dim=1))
    assert torch.autograd.gradcheck(
        lambda h, w, b: score_tokens(h, w, b, targets, temperature), (hidden, weight, bias)
    )


def test_large_logits_neither_overflow_nor_vanish() -> None:
    hidden = torch.tensor([[1000.0], [-1000.0]])
    weight = torch.tensor([[1.0], [-1.0], [0.5]])
    logprobs, entropy = score_tokens(hidden, weight, None, torch.tensor([0, 0]), 1.0)
    assert logprobs.tolist() == [0.0, -2000.0]
    assert torch.allclose(entropy, torch.zeros(2))


def test_logits_kept_and_made_again_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo.head, "BLOCK", 8)
    gradients: list[tuple[Tensor, ...]] = []
    for kept in (0, 60, 1 << 26):
        monkeypatch.setattr(grpo.head, "KEPT", kept)
        hidden, weight, bias, targets = (x.float() if x.is_floating_point() else x for x in inputs())
        leaves = [x.detach().requires_grad_() for x in (hidden, weight, bias)]
        logprobs, entropy = score_tokens(leaves[0].bfloat16(), leaves[1], leaves[2], targets, 0.7)
        gradients.append(torch.autograd.grad((logprobs + entropy).sum(), leaves))
    for other in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], other, strict=True))


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight, _, targets = inputs()
    score_tokens(hidden, weight.detach(), None, targets, 1.0)[0].sum().backward()
    assert hidden.grad is not None
