"""Keys and values while decoding: the prompt's once for all its rows, each row's own written in place.

Two ways to run a model token by token, with the same three verbs: `start` runs the prompts, `advance` one
token of every row, `keep` drops rows. `SharedRows` is for models whose layers are plain attention;
`CachedRows` gives every row a copy in the library's own cache, for all others. Knows nothing of sampling.

Measured (64 rows of SmolLM2-135M, one thread): growing the library's cache by concatenation took 27 % of a
decoding step in fp32, its attention 40 % in bf16; here both together take an eighth in bf16.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from grpo.attention import How, causal_attention
from grpo.policy import Policy, left_pad, positions

FIRST_CAPACITY = 64
"""Tokens of a row that the first buffers hold; they double when full."""


class SharedRows:
    """Rows of several prompts, `group_size` a prompt, over one copy of each prompt's keys and values."""

    def __init__(self, policy: Policy, prompts: Sequence[Tensor], group_size: int, max_tokens: int) -> None:
        self.policy = policy
        self.device = policy.model.device
        self.prompts = [ids.to(self.device) for ids in prompts]
        self.group_size = group_size
        self.max_tokens = max_tokens
        self.slots = torch.arange(len(prompts) * group_size, device=self.device)  # (R,) prompt-major places
        self.all_slots = len(self.slots)
        lengths = torch.tensor([len(ids) for ids in prompts], device=self.device)
        self.lengths = lengths
        self.absent = torch.arange(int(lengths.max()), device=self.device) >= lengths[:, None]  # (U, P)
        self.done = -1  # tokens of the rows that are in the buffers; -1 while the prompts run
        self.layers: dict[int, _Layer] = {}

    def start(self) -> Tensor:
        """(R, H): the state after each row's prompt."""
        position = torch.cat([torch.arange(len(ids), device=self.device) for ids in self.prompts])
        hidden = self.policy.packed_states(torch.cat(self.prompts), position, self)
        self.done = 0
        return hidden[self.lengths.cumsum(0) - 1].repeat_interleave(self.group_size, 0)

    def advance(self, ids: Tensor) -> Tensor:
        """(R, H): the state after one more token of every row, ids (R,)."""
        position = self.lengths[self.slots // self.group_size] + self.done
        hidden = self.policy.packed_states(ids, position, self)
        self.done += 1
        return hidden

    def keep(self, index: Tensor) -> None:
        """Goes on with the rows at these places among the present ones."""
        self.slots = self.slots[index]
        for layer in self.layers.values():
            layer.keep(index, self.done)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """One layer's attention, (1, H, N, D) -> (1, H, N, D); see grpo.attention."""
        if self.done < 0:
            return self._attend_prompts(layer, query, key, value, how)
        state = self.layers[layer]
        state.append(key[0].transpose(0, 1), value[0].transpose(0, 1), self.done, self.max_tokens)
        return self._attend_rows(state, query[0].transpose(0, 1), how).transpose(0, 1)[None]

    def _attend_prompts(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        sizes = [len(ids) for ids in self.prompts]
        keys, values = ([part[0] for part in x.split(sizes, dim=2)] for x in (key, value))  # (K, P_u, D)
        self.layers[layer] = _Layer(_padded(keys), _padded(values))
        outputs = [
            causal_attention(q, k[None], v[None], k[:, :0], v[:, :0], how)
            for q, k, v in zip(query.split(sizes, dim=2), keys, values, strict=True)
        ]
        return torch.cat(outputs, dim=2)

    def _attend_rows(self, state: _Layer, query: Tensor, how: How) -> Tensor:
        """(R, H, D) of one token a row: scores over the prompt, batched by prompt, then over its own."""
        rows, heads, depth = query.shape
        groups = state.prompt_keys.shape[1]
        per_key = heads // groups
        queries = (query * how.scale).view(rows, groups, per_key, depth)
        by_prompt = self._spread(queries) @ state.prompt_keys.transpose(-1, -2)  # (U, K, G m, P)
        by_prompt = by_prompt.masked_fill_(self._hidden(how)[:, None, None], -torch.inf)
        # whole buffers, not what is filled of them: a product with a part would copy that part first
        own = queries @ state.own_keys.transpose(-1, -2)  # (R, K, m, capacity)
        own[..., self.done + 1 :] = -torch.inf
        if how.window is not None:
            own[..., : max(0, self.done + 1 - how.window)] = -torch.inf
        scores = torch.cat([self._gather(by_prompt, per_key), own], dim=-1)
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
        prompt = state.prompt_keys.shape[2]
        from_prompt = self._gather(self._spread(shares[..., :prompt]) @ state.prompt_values, per_key)
        return (from_prompt + shares[..., prompt:] @ state.own_values).reshape(rows, heads, depth)

    def _spread(self, x: Tensor) -> Tensor:
        """(R, K, m, W) -> (U, K, G m, W), zero for rows that have left."""
        if len(x) < self.all_slots:
            x = x.new_zeros((self.all_slots, *x.shape[1:])).index_copy_(0, self.slots, x)
        return x.unflatten(0, (len(self.prompts), -1)).transpose(1, 2).flatten(2, 3)

    def _gather(self, x: Tensor, per_key: int) -> Tensor:
        """(U, K, G m, W) -> (R, K, m, W): undoes `_spread`."""
        x = x.unflatten(2, (-1, per_key)).transpose(1, 2).flatten(0, 1)
        return x if len(self.slots) == self.all_slots else x[self.slots]

    def _hidden(self, how: How) -> Tensor:
        """(U, P) bool, True where a prompt has no token, or the window has passed it."""
        if how.window is None:
            return self.absent
        oldest = self.lengths[:, None] + self.done - how.window + 1
        return self.absent | (torch.arange(self.absent.shape[1], device=self.device) < oldest)


class _Layer:
    """One layer's keys and values: (U, K, P, D) of the prompts, (R, K, capacity, D) of the rows.

    The rows' are 0 where unused.
    """

    def __init__(self, prompt_keys: Tensor, prompt_values: Tensor) -> None:
        self.prompt_keys, self.prompt_values = prompt_keys, prompt_values
        self.own_keys = self.own_values = prompt_keys.new_empty(0)

    def append(self, key: Tensor, value: Tensor, at: int, most: int) -> None:
        """Writes (R, K, D) as token `at` of every row."""
        if at == 0 or at == self.own_keys.shape[2]:
            self.own_keys = _grown(self.own_keys, key, at, most)
            self.own_values = _grown(self.own_values, value, at, most)
        self.own_keys[:, :, at] = key
        self.own_values[:, :, at] = value

    def keep(self, index: Tensor, done: int) -> None:
        if done:
            self.own_keys, self.own_values = self.own_keys[index], self.own_values[index]


def _grown(old: Tensor, like: Tensor, used: int, most: int) -> Tensor:
    rows, groups, depth = like.shape
    new = like.new_zeros((rows, groups, min(most, max(FIRST_CAPACITY, 2 * used)), depth))
    if used:
        new[:, :, :used] = old
    return new


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """(K, P_u, D) tensors -> (U, K, P, D), zero at the end."""
    padded = nn.utils.rnn.pad_sequence([x.transpose(0, 1) for x in parts], batch_first=True)
    return padded.transpose(1, 2).contiguous()


class CachedRows:
    """The same rows over the library's cache: prompts once, then a copy for each row."""

    def __init__(self, policy: Policy, prompts: Sequence[Tensor], group_size: int) -> None:
        self.policy = policy
        self.group_size = group_size
        ids, mask = left_pad(prompts, 0)
        self.ids, self.mask = ids.to(policy.model.device), mask.to(policy.model.device)
        self.position = positions(self.mask)[:, -1]
        self.cache = DynamicCache(config=policy.model.config)

    def start(self) -> Tensor:
        """(R, H): the state after each row's prompt."""
        hidden = self.policy.hidden_states(
            {
                "input_ids": self.ids,
                "attention_mask": self.mask,
                "position_ids": positions(self.mask),
                "cache": self.cache,
                "use_cache": True,
            }
        )
        self.cache.batch_repeat_interleave(self.group_size)
        self.mask = self.mask.repeat_interleave(self.group_size, 0)
        self.position = self.position.repeat_interleave(self.group_size, 0)
        return hidden[:, -1].repeat_interleave(self.group_size, 0)

    def advance(self, ids: Tensor) -> Tensor:
        """(R, H): the state after one more token of every row, ids (R,)."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(ids), 1)], dim=1)
        self.position = self.position + 1
        hidden = self.policy.hidden_states(
            {
                "input_ids": ids[:, None],
                "attention_mask": self.mask,
                "position_ids": self.position[:, None],
                "cache": self.cache,
                "use_cache": True,
            }
        )
        return hidden[:, -1]

    def keep(self, index: Tensor) -> None:
        """Goes on with the rows at these places among the present ones."""
        self.cache.batch_select_indices(index)
        self.mask, self.position = self.mask[index], self.position[index]
