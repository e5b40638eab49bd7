"""Attention in which the rows of a prompt share its keys and values, for training and for decoding.

Registered with transformers as an attention implementation, so that any model built on its attention
interface runs on it unchanged. The layout of the tokens travels with the call (`rows=`); without one it is
the library's scaled-dot-product attention.

All tokens of a batch are one packed row: prompts first, then completions. Every matrix product of the model
then runs over real tokens only, each prompt's once, and nothing of a cache stands in the way of activation
checkpointing. Knows nothing of models, losses or sampling.

Measured (SmolLM2-135M's shapes, one thread with bf16 dot products): in bf16 the products below take a quarter
of the time of the library's fused kernel, forward and backward, because a kernel for few queries repacks all
keys; in fp32 both take the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rewards.errors import ConfigError

IMPLEMENTATION = "shared_prompt"
PLAIN_LAYERS = {"full_attention", "sliding_attention"}
NO_MASK = torch.ones((1, 1, 1, 1), dtype=torch.bool)
"""Four dimensions tell the library that a mask is ready; the layout is the real one."""


class RowAttention(Protocol):
    """Attends for one layer. query: (1, H, N, D); key, value: (1, K, N, D), H a multiple of K."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """(1, H, N, D)."""
        ...


@dataclass(frozen=True, slots=True)
class How:
    """scale: of the scores. window: a query sees so many positions, its own included; None is all."""

    scale: float
    window: int | None


def shares_prompts(model: PreTrainedModel) -> bool:
    """Whether every layer of the model is attention that this module can stand in for."""
    settings = model.config.get_text_config().to_dict()
    layers = set(settings.get("layer_types") or PLAIN_LAYERS)
    capped = settings.get("attn_logit_softcapping") is not None
    return model.is_backend_compatible() and layers <= PLAIN_LAYERS and not capped


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Prompts and the rows that continue them, as one packed row of tokens.

    prompts: tokens of each prompt, in the order they are packed. rows: for each prompt, the tokens of each of
    its rows; the rows follow the prompts in the same order.
    """

    prompts: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """Every token sees its prompt and what comes before it in its own row; (1, H, N, D)."""
        sizes = [*self.prompts, *(sum(lengths) for lengths in self.rows)]
        q, k, v = (x[0].split(sizes, dim=1) for x in (query, key, value))  # prompts, then rows by prompt
        outputs: list[Tensor] = []
        for i in range(len(self.prompts)):
            nothing = k[i].detach()[:, :0]
            outputs.append(causal_attention(q[i][None], k[i][None], v[i][None], nothing, nothing, how)[0])
        for i, lengths in enumerate(self.rows):
            if sum(lengths):
                own = [_rows_apart(x[len(self.prompts) + i], lengths) for x in (q, k, v)]
                out = causal_attention(own[0], own[1], own[2], k[i], v[i], how)
                outputs.append(_rows_together(out, lengths))
        return torch.cat(outputs, dim=1)[None]


def _rows_apart(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """(H, N, D) -> (R, H, T, D), padded at the end: a causal query never sees what comes after it."""
    if len(set(lengths)) == 1:
        return x.unflatten(1, (len(lengths), lengths[0])).transpose(0, 1)
    rows = [part.transpose(0, 1) for part in x.split(list(lengths), dim=1)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True).transpose(1, 2)


def _rows_together(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """(R, H, T, D) -> (H, N, D): undoes `_rows_apart`."""
    if len(set(lengths)) == 1:
        return x.transpose(0, 1).flatten(1, 2)
    return torch.cat([row[:, :n] for row, n in zip(x, lengths, strict=True)], dim=1)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, shared_k: Tensor, shared_v: Tensor, how: How) -> Tensor:
    """(R, H, T, D) of rows whose tokens follow a shared prompt of P tokens (P may be 0).

    Args:
        q: (R, H, T, D).
        k: (R, K, T, D); H / K neighbouring query heads share a key head.
        v: as k.
        shared_k: (K, P, D) the prompt's.
        shared_v: as shared_k.
        how: scale and window.
    """
    keys = torch.cat([shared_k.expand(len(q), -1, -1, -1), k], dim=2)  # (R, K, P + T, D)
    values = torch.cat([shared_v.expand(len(q), -1, -1, -1), v], dim=2)
    seen = _seen(q.shape[2], shared_k.shape[1], how.window, q.device)
    if q.dtype != torch.bfloat16 or q.device.type != "cpu":
        return nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=seen, scale=how.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    bias = torch.zeros(seen.shape, dtype=q.dtype).masked_fill_(~seen, -torch.inf)
    out: Tensor = _Products.apply(q, keys, values, bias, how.scale)
    return out


class _Products(torch.autograd.Function):
    """softmax(scale q keys^T + bias) values: q (R, H, T, D), keys (R, K, L, D), bias (T, L).

    The shares outweigh all else that a layer would keep, and cost little to make again.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float) -> Tensor:
        queries = _by_key(q * scale, keys)
        ctx.save_for_backward(queries, keys, values, bias)
        ctx.scale = scale
        return (_shares(queries, keys, bias) @ values).view(q.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, bias = ctx.saved_tensors
        shares = _shares(queries, keys, bias)
        slope = _by_key(gradients[0], keys)
        to_values = shares.transpose(-1, -2) @ slope
        to_shares = slope @ values.transpose(-1, -2)
        to_scores = torch.ops.aten._softmax_backward_data(to_shares, shares, -1, shares.dtype)
        to_queries = (to_scores @ keys).view(gradients[0].shape).mul_(ctx.scale)
        return to_queries, to_scores.transpose(-1, -2) @ queries, to_values, None, None


def _by_key(x: Tensor, keys: Tensor) -> Tensor:
    """(R, H, T, D) -> (R, K, H/K T, D): the heads that share a key head, one below the other."""
    return x.reshape(len(x), keys.shape[1], -1, x.shape[-1])


def _shares(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """(R, K, H/K T, L) softmax of the scores."""
    scores = queries @ keys.transpose(-1, -2)
    scores.unflatten(2, (-1, len(bias))).add_(bias)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)


def _seen(steps: int, prompt: int, window: int | None, device: torch.device) -> Tensor:
    """(T, P + T) bool, True where a query may look: not ahead of it, nor behind its window."""
    at = torch.arange(prompt, prompt + steps, device=device)[:, None]
    key = torch.arange(prompt + steps, device=device)
    seen = key <= at
    return seen if window is None else seen & (key > at - window)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """The function transformers calls (its signature); the last axes of the result are (N, H, D)."""
    rows: RowAttention | None = settings.pop("rows", None)
    if rows is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    for name in ("softcap", "s_aux", "position_bias"):
        if settings.get(name) is not None:
            raise ConfigError(
                f"{type(module).__name__}: attention with {name} is not supported, choose another model"
            )
    scale = settings.get("scaling")
    how = How(query.shape[-1] ** -0.5 if scale is None else scale, settings.get("sliding_window"))
    kind = query.device.type
    if torch.is_autocast_enabled(kind):  # what the library's kernel would be given
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    with torch.autocast(kind, enabled=False):
        out = rows.attend(module.layer_idx, query, key, value, how)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(IMPLEMENTATION, _attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
