"""The policy: a causal language model and the log-probabilities it gives to sampled tokens.

Knows how to score the completions of shared prompts: each distinct prompt of a batch runs once, in one packed
row with the completions that continue it (see grpo.attention), and the vocabulary head is applied to
completion positions only, a block of the vocabulary at a time (see grpo.head). Knows nothing of rewards,
advantages or sampling.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from grpo.attention import IMPLEMENTATION, NO_MASK, PackedRows, RowAttention, shares_prompts
from grpo.head import score_tokens
from grpo.layers import is_of_family, run_layers
from grpo.packed import HeldLinear
from rewards.errors import ConfigError
from rewards.models.products import use_fast_products

ModelInput = Tensor | DynamicCache | RowAttention | bool


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
            state (see `check_head`), with or without LoRA layers injected.
        temperature: of the softmax, the one that samples are drawn at.
        entropy_gradient: whether the entropy keeps its graph (needed by an entropy bonus only).
        precision: of the arithmetic, for whoever runs the model (trainer, sampler, reference): torch.bfloat16
            is autocast, the weights stay as they are.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        entropy_gradient: bool = False,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError(
                f"temperature={temperature}: expected > 0, the ratio is undefined for greedy decoding"
            )
        if not isinstance(model.get_output_embeddings(), nn.Linear):
            raise ConfigError(
                f"{type(model).__name__} has no linear output embedding: expected a causal language model, "
                "adapters on its layers only"
            )
        use_fast_products(model)
        self.model = model
        self.temperature = temperature
        self.entropy_gradient = entropy_gradient
        self.precision = precision
        self._held: tuple[nn.Module, HeldLinear] | None = None
        self.shares_prompts = shares_prompts(model)
        if self.shares_prompts:
            model.set_attn_implementation(IMPLEMENTATION)

    @property
    def head(self) -> nn.Linear:
        """The output embedding; its weight may be tied to the input's."""
        head = self.model.get_output_embeddings()
        assert isinstance(head, nn.Linear)
        return head

    def forward(self, batch: TokenBatch) -> TokenScores:
        """Scores every completion token of the batch given its prompt and the tokens before it."""
        mask = batch.mask
        logprobs, entropy = self._score(self.completion_states(batch), batch.completions[mask])
        zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        return TokenScores(zeros.masked_scatter(mask, logprobs), zeros.masked_scatter(mask, entropy))

    def completion_states(self, batch: TokenBatch) -> Tensor:
        """(N, H): the last hidden state before each of the N completion tokens, in the order of the mask."""
        if not self.shares_prompts:
            return self._whole_row_states(batch)[batch.mask]
        packed = pack(batch)
        return self.packed_states(packed.ids, packed.positions, packed.layout).index_select(0, packed.before)

    def packed_states(self, ids: Tensor, positions: Tensor, rows: RowAttention) -> Tensor:
        """(N, H) last hidden states of N tokens in one packed row; ids, positions (N,) int64."""
        decoder = self._decoder
        if is_of_family(decoder):
            with self.arithmetic():
                return run_layers(decoder, ids, positions, rows)
        return self.hidden_states(
            {
                "input_ids": ids[None],
                "attention_mask": NO_MASK.to(ids.device),
                "position_ids": positions[None],
                "use_cache": False,
                "rows": rows,
            }
        )[0]

    def hidden_states(self, inputs: Mapping[str, ModelInput]) -> Tensor:
        """(B, T, H) last hidden states of the decoder below the head; inputs as its forward names them."""
        with self.arithmetic():
            return self._decoder(**inputs).last_hidden_state

    @property
    def _decoder(self) -> nn.Module:
        return self.model.get_decoder() if self._held is None else self._held[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, V) fp32 logits divided by the temperature, of (N, H) hidden states; no gradient to the head."""
        head = HeldLinear(self.head, self.precision) if self._held is None else self._held[1]
        logits = head(hidden).float()
        return logits if self.temperature == 1 else logits / self.temperature

    @contextmanager
    def weights_in_precision(self) -> Iterator[None]:
        """Inside, matrices are held in the precision they are multiplied in: no call casts them again.

        For many short calls in a row, as decoding makes. Changes no result; training must wait until after.
        """
        if self.precision == torch.float32:
            yield
            return
        decoder = self.model.get_decoder()
        # A twin of the modules over the same parameters, linear layers replaced. The parameters themselves
        # stay as they are: a change of their type would cut the hooks that average gradients over ranks.
        memo: dict[int, nn.Module | nn.Parameter] = {id(p): p for p in decoder.parameters()}
        memo |= {id(m): HeldLinear(m, self.precision) for m in self._linear_layers()}
        try:
            self._held = copy.deepcopy(decoder, memo), HeldLinear(self.head, self.precision)
            yield
        finally:
            self._held = None

    def freeze_in_precision(self) -> None:
        """Keeps the layers' matrices in the precision alone, for a policy that is never trained."""
        for layer in self._linear_layers():
            layer.weight.data = layer.weight.data.to(self.precision)

    def _linear_layers(self) -> list[nn.Linear]:
        return [m for m in self.model.get_decoder().modules() if isinstance(m, nn.Linear)]

    def arithmetic(self) -> torch.autocast:
        """The precision that the model computes in."""
        low = self.precision != torch.float32
        return torch.autocast(self.model.device.type, dtype=self.precision if low else None, enabled=low)

    def _whole_row_states(self, batch: TokenBatch) -> Tensor:
        """(B, T, H) where layers are no plain attention: prompt and completion run together by row."""
        prompt_mask = batch.prompt_mask[batch.prompt_of_row]
        mask = torch.cat([prompt_mask, batch.mask.long()], dim=1)
        states = self.hidden_states(
            {
                "input_ids": torch.cat([batch.prompts[batch.prompt_of_row], batch.completions], dim=1),
                "attention_mask": mask,
                "position_ids": positions(mask),
                "use_cache": False,
            }
        )
        return states[:, batch.prompts.shape[1] - 1 : -1]

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (N,) fp32 of targets (N,) under hidden states (N, H)."""
        logprobs, entropy = score_tokens(
            hidden.to(self.precision), self.head.weight, self.head.bias, targets, self.temperature
        )
        return logprobs, entropy if self.entropy_gradient else entropy.detach()


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch as one row of N tokens: each prompt once, then every completion without its last token.

    ids, positions: (N,) int64. before: int64, for each completion token in the order of the batch's mask, the
    place of the token whose hidden state predicts it.
    """

    ids: Tensor
    positions: Tensor
    before: Tensor
    layout: PackedRows


def pack(batch: TokenBatch) -> Packed:
    """Packs rows by prompt, keeping their order within one."""
    order = torch.argsort(batch.prompt_of_row, stable=True)
    real = batch.prompt_mask.bool()
    prompt_lengths = real.sum(dim=1)
    inputs = (batch.lengths - 1).clamp(min=0)[order]  # the last token predicts nothing
    steps = torch.arange(batch.completions.shape[1], device=order.device)
    run = steps < inputs[:, None]
    start = prompt_lengths[batch.prompt_of_row[order]]
    first = prompt_lengths.sum() + inputs.cumsum(0) - inputs  # (B,) where each row's tokens begin
    end_of_prompt = (prompt_lengths.cumsum(0) - 1)[batch.prompt_of_row[order]]
    before = torch.where(steps == 0, end_of_prompt[:, None], first[:, None] + steps - 1)
    unsorted = torch.empty_like(before)
    unsorted[order] = before
    counts = torch.bincount(batch.prompt_of_row, minlength=len(prompt_lengths)).tolist()
    return Packed(
        torch.cat([batch.prompts[real], batch.completions[order][run]]),
        torch.cat([positions(batch.prompt_mask)[real], (start[:, None] + steps)[run]]),
        unsorted[batch.mask],
        PackedRows(
            tuple(prompt_lengths.tolist()),
            tuple(tuple(part.tolist()) for part in inputs.cpu().split(counts)),
        ),
    )


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
    ours = policy.logits(
        policy.hidden_states({"input_ids": ids, "attention_mask": mask, "use_cache": False})[0]
    )
    theirs = policy.model(input_ids=ids, attention_mask=mask, use_cache=False).logits[0].float()
    if not torch.allclose(ours * policy.temperature, theirs, atol=1e-2, rtol=1e-2):
        raise ConfigError(
            f"model {policy.model.config.model_type!r}: its logits are not head(hidden state); models that "
            "cap or scale their logits are not supported: choose another model"
        )
