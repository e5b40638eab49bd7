"""The decoder layers of Llama's family over one packed row of tokens, with less memory and fewer passes.

The library's modules hold every weight and every projection is called as a module, so adapters work as they
do there. What lies between the projections is done here: norms, rotary positions and the gated activation
keep only what they cannot make again, and hand the projections their input in the precision of the product,
cast once. Knows nothing of prompts, losses or sampling: attention is what `rows` makes of it.

Measured (SmolLM2-135M, bf16): 0.60 MB a token are kept for the backward pass, with the library's layers 0.94.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import LlamaModel, MistralModel, Qwen2Model

from grpo.attention import How, RowAttention

Decoder = LlamaModel | MistralModel | Qwen2Model
FAMILY: tuple[type[nn.Module], ...] = (LlamaModel, MistralModel, Qwen2Model)
"""Decoders whose layers are x + attention(norm(x)), then x + down(silu(gate(norm(x))) * up(norm(x)))."""


def is_of_family(decoder: nn.Module) -> TypeGuard[Decoder]:
    """Whether `run_layers` computes what this decoder does."""
    exact = type(decoder) in FAMILY  # a class derived from them may compute otherwise
    return exact and isinstance(decoder, Decoder) and decoder.config.hidden_act == "silu"


def run_layers(decoder: Decoder, ids: Tensor, positions: Tensor, rows: RowAttention) -> Tensor:
    """(N, H) last hidden states of N tokens at their positions, ids and positions (N,) int64.

    To be called under the autocast of the precision, as the decoder itself.
    """
    hidden = decoder.embed_tokens(ids)
    cos, sin = decoder.rotary_emb(hidden[None], position_ids=positions[None])
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    call = _Call(cos[0, :, None], sin[0, :, None], rows, dtype)
    for layer in decoder.layers:
        if layer.gradient_checkpointing and layer.training:
            hidden = checkpoint(_layer, layer, hidden, call, use_reentrant=False, preserve_rng_state=False)
        else:
            hidden = _layer(layer, hidden, call)
    return _norm(decoder.norm, hidden, hidden.dtype)


@dataclass(frozen=True, slots=True)
class _Call:
    """What all layers of a call share. cos, sin: (N, 1, D). dtype: of the products."""

    cos: Tensor
    sin: Tensor
    rows: RowAttention
    dtype: torch.dtype


def _layer(layer: Any, hidden: Tensor, call: _Call) -> Tensor:
    """(N, H) -> (N, H)."""
    hidden = hidden + _attention(layer.self_attn, _norm(layer.input_layernorm, hidden, call.dtype), call)
    x = _norm(layer.post_attention_layernorm, hidden, call.dtype)
    gated: Tensor = _Gated.apply(layer.mlp.gate_proj(x), layer.mlp.up_proj(x))
    return hidden + layer.mlp.down_proj(gated)


def _attention(module: Any, x: Tensor, call: _Call) -> Tensor:
    """(N, H) of the normed states (N, H)."""
    heads = (-1, module.head_dim)
    query = _Rotated.apply(module.q_proj(x).unflatten(-1, heads), call.cos, call.sin, call.dtype)
    key = _Rotated.apply(module.k_proj(x).unflatten(-1, heads), call.cos, call.sin, call.dtype)
    value = module.v_proj(x).unflatten(-1, heads).to(call.dtype)
    by_head = [part.transpose(0, 1)[None] for part in (query, key, value)]
    with torch.autocast(x.device.type, enabled=False):
        out = call.rows.attend(
            module.layer_idx, by_head[0], by_head[1], by_head[2], How(module.scaling, _window(module))
        )
    return module.o_proj(out[0].transpose(0, 1).flatten(1))


def _window(module: Any) -> int | None:
    """Positions that a layer sees, None is all."""
    kind = module.config.model_type
    if kind == "llama":
        return None
    return module.config.sliding_window if kind == "mistral" else module.sliding_window


def _norm(module: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    return _Normed.apply(x, module.weight, module.variance_epsilon, dtype)


class _Normed(torch.autograd.Function):
    """y = w x / rms(x), rms(x)^2 = mean(x^2) + eps (Zhang and Sennrich 2019, arXiv 1910.07467).

    With n = x / rms(x) and s = w dy: dw = sum dy n, dx = (s - n mean(s n)) / rms(x).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        slope = gradients[0].to(x.dtype)
        normal = x * scale
        product = slope * normal
        to_weight = product.sum(dim=0) if ctx.needs_input_grad[1] else None
        mean = product.mul_(weight).mean(dim=-1, keepdim=True)
        to_x = (slope * weight).sub_(normal.mul_(mean)).mul_(scale)
        return to_x, to_weight, None, None


class _Rotated(torch.autograd.Function):
    """Rotary positions (Su et al. 2021, arXiv 2104.09864) of x (N, K, D); the gradient turns back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.dtype = x.dtype
        return _rotate(x, cos, sin).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _rotate(gradients[0], cos, -sin).to(ctx.dtype), None, None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(N, K, D) in the type of cos: each pair (x_i, x_{i + D/2}) turned by its angle."""
    x = x.to(cos.dtype)
    first, second = x.chunk(2, dim=-1)
    turned = x * cos
    low, high = turned.chunk(2, dim=-1)
    half = sin.shape[-1] // 2  # the angles are written twice, once for each half
    low.addcmul_(second, sin[..., :half], value=-1)
    high.addcmul_(first, sin[..., half:])
    return turned


class _Gated(torch.autograd.Function):
    """silu(gate) up (Shazeer 2020, arXiv 2002.05202); silu(gate) is made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        (slope,) = gradients
        to_gate = torch.ops.aten.silu_backward(slope * up, gate)
        return to_gate, functional.silu(gate).mul_(slope)
