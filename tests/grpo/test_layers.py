"""Our layers against the library's own: values, gradients, and how much they keep for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fakes import TOKENIZER, gpt2, llama, sharpen
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

import grpo.layers
from grpo.layers import is_of_family
from grpo.policy import Policy, TokenBatch, TokenScores, token_batch

SHAPE = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def qwen2() -> PreTrainedModel:
    """Biases at the projections, and a window in its second layer."""
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    return sharpen(Qwen2ForCausalLM(config))


def scaled() -> PreTrainedModel:
    """Norm weights that are not 1, positions stretched."""
    torch.manual_seed(0)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=rope))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return sharpen(model)


MODELS: dict[str, Callable[[], PreTrainedModel]] = {"llama": llama, "qwen2": qwen2, "scaled": scaled}


def batch() -> TokenBatch:
    g = torch.Generator().manual_seed(0)
    ids = [torch.randint(3, len(TOKENIZER), (n,), generator=g) for n in (7, 12, 9, 6, 11, 1, 9)]
    return token_batch(ids[:2], [1, 0, 0, 1, 1], ids[2:], 0)


def gradients(policy: Policy) -> tuple[Tensor, dict[str, Tensor]]:
    logprobs = policy(batch()).logprobs
    logprobs.square().sum().backward()
    return logprobs.detach(), {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}


def kept_bytes(policy: Policy) -> int:
    """What a forward pass keeps, each storage counted once, the weights not."""
    weights = {p.untyped_storage().data_ptr() for p in policy.parameters()}
    seen: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        seen[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        scores: TokenScores = policy(batch())
    assert scores.logprobs.requires_grad
    return sum(x.untyped_storage().nbytes() for place, x in seen.items() if place not in weights)


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_the_librarys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logprobs, slopes = gradients(Policy(MODELS[name](), temperature=0.7).eval())
    monkeypatch.setattr(grpo.layers, "FAMILY", ())
    theirs, their_slopes = gradients(Policy(MODELS[name](), temperature=0.7).eval())
    assert torch.allclose(logprobs, theirs, atol=1e-5)
    assert slopes.keys() == their_slopes.keys()
    for parameter, slope in slopes.items():
        scale = float(their_slopes[parameter].abs().max())
        assert torch.allclose(slope, their_slopes[parameter], atol=1e-5 * scale + 1e-6), parameter


def test_bf16_strays_from_fp32_no_further_than_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    def error() -> float:
        exact, _ = gradients(Policy(scaled(), temperature=1.0).eval())
        low, _ = gradients(Policy(scaled(), temperature=1.0, precision=torch.bfloat16).eval())
        return float((low - exact).abs().mean())

    ours = error()
    monkeypatch.setattr(grpo.layers, "FAMILY", ())
    assert 0 < ours < 1.5 * error()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_less_is_kept_than_the_library_keeps(precision: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = kept_bytes(Policy(scaled(), temperature=1.0, precision=precision).train())
    model = scaled()
    model.activation_checkpointing_enable({"use_reentrant": False})
    checkpointed = kept_bytes(Policy(model, temperature=1.0, precision=precision).train())
    monkeypatch.setattr(grpo.layers, "FAMILY", ())
    theirs = kept_bytes(Policy(scaled(), temperature=1.0, precision=precision).train())
    assert checkpointed < ours < theirs


def test_other_layers_are_left_to_the_library() -> None:
    assert is_of_family(llama().get_decoder())
    assert not is_of_family(gpt2().get_decoder())
    gelu = LlamaForCausalLM(LlamaConfig(**SHAPE, hidden_act="gelu"))
    assert not is_of_family(gelu.get_decoder())


def test_the_steps_between_products_have_their_gradients() -> None:
    g = torch.Generator().manual_seed(0)
    x, up = (torch.randn(3, 2, 4, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(4, generator=g, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(3, 1, 2, generator=g, dtype=torch.float64).repeat(1, 1, 2)
    check = torch.autograd.gradcheck
    assert check(lambda x, w: grpo.layers._Normed.apply(x.flatten(0, 1), w, 1e-6, x.dtype), (x, weight))
    assert check(lambda x: grpo.layers._Rotated.apply(x, angle.cos(), angle.sin(), x.dtype), (x,))
    assert check(grpo.layers._Gated.apply, (x, up))
