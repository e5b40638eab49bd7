"""The policy: a causal language model and the log-probabilities it gives to sampled tokens.

Knows how to score the completions of shared prompts: each distinct prompt of a batch runs once, its keys and
values are expanded to the rows that continue it, and the vocabulary head is applied to completion positions
only, in chunks that are recomputed in the backward pass. Knows nothing of rewards, advantages or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from rewards.errors import ConfigError

CHUNK_ELEMENTS = 1 << 24
"""Logits held at once by the head (elements, about 64 MiB in fp32)."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows to score, each a completion of one of U distinct prompts.

    prompts: (U, L) int64, left-padded; prompt_mask: (U, L) int64, 1 on real tokens. prompt_of_row: (B,) int64
    into the prompts. completions: (B, T) int64, right-padded; lengths: (B,) int64, masks come from these
    alone.
    """

    prompts: Tensor
    prompt_mask: Tensor
    prompt_of_row: Tensor
    completions: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """(B, T) bool, True on completion tokens."""
        return torch.arange(self.completions.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def to(self, device: torch.device) -> TokenBatch:
        """The same rows on another device."""
        return TokenBatch(
            self.prompts.to(device),
            self.prompt_mask.to(device),
            self.prompt_of_row.to(device),
            self.completions.to(device),
            self.lengths.to(device),
        )


def left_pad(rows: Sequence[Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    """Stacks 1-d id tensors to (U, L) ids and (U, L) int64 mask, padded on the left."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = row
        mask[i, width - len(row) :] = 1
    return ids, mask


def token_batch(
    prompts: Sequence[Tensor], prompt_of_row: Sequence[int], completions: Sequence[Tensor], pad_id: int
) -> TokenBatch:
    """Builds a batch from 1-d id tensors; prompts that no row uses are left out."""
    used = sorted(set(prompt_of_row))
    ids, mask = left_pad([prompts[i] for i in used], pad_id)
    place = {prompt: i for i, prompt in enumerate(used)}
    lengths = torch.tensor([len(row) for row in completions])
    padded = torch.full((len(completions), max(1, int(lengths.max()))), pad_id, dtype=torch.long)
    for i, row in enumerate(completions):
        padded[i, : len(row)] = row
    return TokenBatch(ids, mask, torch.tensor([place[i] for i in prompt_of_row]), padded, lengths)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """logprobs: (B, T) fp32 at the temperature, 0 outside the mask.

    Entropy: (B, T) fp32 in nats, likewise.
    """

    logprobs: Tensor
    entropy: Tensor


class Policy(nn.Module):
    """A causal LM that scores completions at one temperature.

    Args:
        model: any transformers causal LM whose logits are its output embedding applied to the last hidden
        state
            (checked here), with or without LoRA layers injected.
        temperature: of the softmax, the one that samples are drawn at.
        entropy_gradient: whether the entropy keeps its graph (needed by an entropy bonus only).
    """

    def __init__(self, model: PreTrainedModel, *, temperature: float, entropy_gradient: bool = False) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError(
                f"temperature={temperature}: expected > 0, the ratio is undefined for greedy decoding"
            )
        head = model.get_output_embeddings()
        if head is None:
            raise ConfigError(
                f"{type(model).__name__} has no output embedding: expected a causal language model"
            )
        self.model = model
        self.temperature = temperature
        self.entropy_gradient = entropy_gradient

    def forward(self, batch: TokenBatch) -> TokenScores:
        """Scores every completion token of the batch given its prompt and the tokens before it."""
        if self.model.is_activation_checkpointing and self.training and torch.is_grad_enabled():
            hidden = self._whole_row_states(batch)  # a cache cannot be recomputed
        else:
            hidden = self._shared_prefix_states(batch)
        mask = batch.mask
        logprobs, entropy = self._head(hidden[mask], batch.completions[mask])
        zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        return TokenScores(zeros.masked_scatter(mask, logprobs), zeros.masked_scatter(mask, entropy))

    def hidden_states(self, **inputs: Tensor | DynamicCache | bool) -> Tensor:
        """(B, T, H) last hidden states of the decoder below the head."""
        return self.model.get_decoder()(**inputs).last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, V) fp32 logits divided by the temperature, of (N, H) hidden states."""
        head = self.model.get_output_embeddings()
        assert head is not None
        return head(hidden).float() / self.temperature

    def _shared_prefix_states(self, batch: TokenBatch) -> Tensor:
        """(B, T, H): the state before each completion token; every distinct prompt is run once."""
        cache = DynamicCache(config=self.model.config)
        prompt_positions = positions(batch.prompt_mask)
        prompt_states = self.hidden_states(
            input_ids=batch.prompts,
            attention_mask=batch.prompt_mask,
            position_ids=prompt_positions,
            cache=cache,
            use_cache=True,
        )
        first = prompt_states[:, -1:][batch.prompt_of_row]  # (B, 1, H): the first completion token's context
        if batch.completions.shape[1] == 1:
            return first
        cache.batch_select_indices(batch.prompt_of_row)
        mask = batch.mask.long()
        start = prompt_positions[:, -1][batch.prompt_of_row] + 1  # (B,)
        inputs = batch.completions[:, :-1]
        rest = self.hidden_states(
            input_ids=inputs,
            attention_mask=torch.cat([batch.prompt_mask[batch.prompt_of_row], mask[:, :-1]], dim=1),
            position_ids=start[:, None] + torch.arange(inputs.shape[1], device=inputs.device),
            cache=cache,
            use_cache=True,
        )
        return torch.cat([first, rest], dim=1)

    def _whole_row_states(self, batch: TokenBatch) -> Tensor:
        """The same states from prompt and completion run together row by row."""
        prompt_mask = batch.prompt_mask[batch.prompt_of_row]
        mask = torch.cat([prompt_mask, batch.mask.long()], dim=1)
        states = self.hidden_states(
            input_ids=torch.cat([batch.prompts[batch.prompt_of_row], batch.completions], dim=1),
            attention_mask=mask,
            position_ids=positions(mask),
            use_cache=False,
        )
        return states[:, batch.prompts.shape[1] - 1 : -1]

    def _head(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (N,) of targets (N,) under hidden states (N, H)."""
        rows = max(1, CHUNK_ELEMENTS // self.model.config.get_text_config().vocab_size)
        if len(targets) <= rows:
            return self._score_chunk(hidden, targets)
        pairs = [
            checkpoint(self._score_chunk, hidden[i : i + rows], targets[i : i + rows], use_reentrant=False)
            for i in range(0, len(targets), rows)
        ]
        return torch.cat([logprobs for logprobs, _ in pairs]), torch.cat([entropy for _, entropy in pairs])

    def _score_chunk(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(hidden)
        normaliser = logits.logsumexp(dim=-1)
        logprobs = logits.gather(1, targets[:, None]).squeeze(1) - normaliser
        with torch.set_grad_enabled(self.entropy_gradient and torch.is_grad_enabled()):
            entropy = normaliser - (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)
        return logprobs, entropy


def positions(mask: Tensor) -> Tensor:
    """(B, L) int64 position ids that count real tokens only, so that padding moves nothing."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


@torch.no_grad()
def check_head(policy: Policy) -> None:
    """Refuses a model whose logits are not its output embedding applied to its last hidden state.

    Raises:
        ConfigError: for models that scale or cap their logits afterwards; their log-probs would be wrong.
    """
    device = policy.model.device
    ids = torch.arange(4, 12, device=device)[None] % policy.model.config.get_text_config().vocab_size
    mask = torch.ones_like(ids)
    ours = policy.logits(policy.hidden_states(input_ids=ids, attention_mask=mask, use_cache=False)[0])
    theirs = policy.model(input_ids=ids, attention_mask=mask, use_cache=False).logits[0].float()
    if not torch.allclose(ours * policy.temperature, theirs, atol=1e-2, rtol=1e-2):
        raise ConfigError(
            f"model {policy.model.config.model_type!r}: its logits are not head(hidden state); models that "
            "cap or scale their logits are not supported: choose another model"
        )
