"""Samples completions in process.

One prefill a prompt, its cache shared by G rows, finished rows leave the batch.

Sampling is keyed by (seed, step, problem id, sample index): each row draws its own uniform numbers and
inverts the cumulative distribution, so batch composition, order and the number of processes change no sample.
Only temperature shapes the distribution; the model's own generation defaults are not read, its declared stop
ids are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedTokenizerBase

from grpo.policy import Policy, left_pad, positions
from grpo.prompt import EncodedPrompt
from grpo.types import Completion, RolloutGroup
from rewards.types import Sample


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one call samples. greedy takes the likeliest token.

    Log-probs stay those at the policy's temperature.

    key: names the draw (seed, purpose, step), so that equal keys give equal samples. group_size: G.
    max_tokens: the completion limit. version: of the policy, stored with every sample.
    """

    key: str
    group_size: int
    max_tokens: int
    greedy: bool = False
    version: int = 0


class LocalEngine:
    """Generates with the policy's own weights, so sampler and trainer cannot disagree.

    Args:
        policy: the model that is trained, unwrapped.
        tokenizer: decodes completions for the scorers, specials kept.
        decode_rows: rows decoded together (prompts x G, rounded down to whole groups).
    """

    def __init__(self, policy: Policy, tokenizer: PreTrainedTokenizerBase, *, decode_rows: int) -> None:
        self.policy = policy
        self.tokenizer = tokenizer
        self.decode_rows = decode_rows
        self.stop_ids = torch.tensor(sorted(stop_ids(policy, tokenizer)))
        self.pad_id = pad_id(tokenizer)

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """Yields whole groups in prompt order, as soon as their decode batch is done."""
        training = self.policy.training
        self.policy.eval()
        per_batch = max(1, self.decode_rows // sampling.group_size)
        try:
            for start in range(0, len(prompts), per_batch):
                yield self._decode(prompts[start : start + per_batch], sampling)
        finally:
            self.policy.train(training)

    @torch.no_grad()
    def _decode(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> list[RolloutGroup]:
        device = self.policy.model.device
        keys = [(p.problem.id, i) for p in prompts for i in range(sampling.group_size)]
        rows = _Rows.empty(len(keys), sampling.max_tokens, device)
        draws = torch.stack([uniforms(sampling.key, *key, sampling.max_tokens) for key in keys]).to(device)
        state = self._prefill(prompts, sampling.group_size)
        stop = self.stop_ids.to(device)
        for t in range(sampling.max_tokens):
            logprobs = torch.log_softmax(self.policy.logits(state.hidden), dim=-1)  # (R, V)
            ids = logprobs.argmax(-1) if sampling.greedy else invert_cdf(logprobs, draws[state.rows, t])
            alive = rows.append(t, state.rows, ids, logprobs.gather(1, ids[:, None]).squeeze(1), stop)
            if t + 1 == sampling.max_tokens or not bool(alive.any()):
                break
            state = self._advance(state.keep(alive), ids[alive])
        return self._groups(prompts, sampling, rows)

    def _prefill(self, prompts: Sequence[EncodedPrompt], group_size: int) -> _DecodeState:
        device = self.policy.model.device
        ids, mask = left_pad([p.ids for p in prompts], self.pad_id)
        ids, mask = ids.to(device), mask.to(device)
        cache = DynamicCache(config=self.policy.model.config)
        position = positions(mask)
        hidden = self.policy.hidden_states(
            input_ids=ids, attention_mask=mask, position_ids=position, cache=cache, use_cache=True
        )
        cache.batch_repeat_interleave(group_size)
        return _DecodeState(
            torch.arange(len(prompts) * group_size, device=device),
            cache,
            mask.repeat_interleave(group_size, 0),
            position[:, -1].repeat_interleave(group_size, 0),
            hidden[:, -1].repeat_interleave(group_size, 0),
        )

    def _advance(self, state: _DecodeState, ids: Tensor) -> _DecodeState:
        mask = torch.cat([state.mask, state.mask.new_ones(len(ids), 1)], dim=1)
        position = state.position + 1
        hidden = self.policy.hidden_states(
            input_ids=ids[:, None],
            attention_mask=mask,
            position_ids=position[:, None],
            cache=state.cache,
            use_cache=True,
        )
        return _DecodeState(state.rows, state.cache, mask, position, hidden[:, -1])

    def _groups(
        self, prompts: Sequence[EncodedPrompt], sampling: Sampling, rows: _Rows
    ) -> list[RolloutGroup]:
        lengths = rows.lengths.tolist()
        ids, logprobs, stopped = rows.ids.cpu(), rows.logprobs.cpu(), rows.stopped.tolist()
        groups: list[RolloutGroup] = []
        for g, prompt in enumerate(prompts):
            completions: list[Completion] = []
            for i in range(sampling.group_size):
                row = g * sampling.group_size + i
                n = lengths[row]
                kept = ids[row, : n - 1] if stopped[row] else ids[row, :n]  # text without the stop id
                sample = Sample(
                    prompt.problem,
                    str(self.tokenizer.decode(kept, skip_special_tokens=False)),
                    prefill=prompt.prefill,
                    truncated=not stopped[row],
                    group=g,
                    index=i,
                    policy_version=sampling.version,
                )
                completions.append(Completion(sample, ids[row, :n].clone(), logprobs[row, :n].clone()))
            groups.append(RolloutGroup(prompt.problem, prompt.ids, tuple(completions)))
        return groups


@dataclass(slots=True)
class _Rows:
    """What has been sampled so far: ids and logprobs (R, max_tokens), lengths (R,), stopped (R,)."""

    ids: Tensor
    logprobs: Tensor
    lengths: Tensor
    stopped: Tensor

    @staticmethod
    def empty(rows: int, max_tokens: int, device: torch.device) -> _Rows:
        return _Rows(
            torch.zeros((rows, max_tokens), dtype=torch.long, device=device),
            torch.zeros((rows, max_tokens), device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
        )

    def append(self, t: int, rows: Tensor, ids: Tensor, logprobs: Tensor, stop: Tensor) -> Tensor:
        """Writes token t of the given rows; returns which of them go on."""
        self.ids[rows, t] = ids
        self.logprobs[rows, t] = logprobs
        self.lengths[rows] = t + 1
        done = torch.isin(ids, stop)
        self.stopped[rows] = done
        return ~done


@dataclass(slots=True)
class _DecodeState:
    """The rows still decoding: their indices, cache, attention mask, last position and last hidden state."""

    rows: Tensor
    cache: DynamicCache
    mask: Tensor
    position: Tensor
    hidden: Tensor

    def keep(self, alive: Tensor) -> _DecodeState:
        if bool(alive.all()):
            return self
        index = alive.nonzero().squeeze(1)
        self.cache.batch_select_indices(index)
        return _DecodeState(
            self.rows[index], self.cache, self.mask[index], self.position[index], self.hidden[index]
        )


def uniforms(key: str, problem_id: str, index: int, count: int) -> Tensor:
    """(count,) float64 uniform numbers in [0, 1) that depend on the key.

    The problem and the sample index alone.
    """
    digest = hashlib.blake2b(f"{key}\x1f{problem_id}\x1f{index}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def invert_cdf(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """(R,) sampled ids: the first whose cumulative probability exceeds the row's uniform number."""
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    target = (uniform * cumulative[:, -1]).unsqueeze(1)
    return torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(max=logprobs.shape[1] - 1)


def stop_ids(policy: Policy, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Every id that the model or the tokenizer declares as an end."""
    config = policy.model.generation_config
    declared = config.eos_token_id if config is not None else None
    ids = set(declared if isinstance(declared, list) else [declared])
    ids.add(tokenizer.eos_token_id)
    return {i for i in ids if i is not None}


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """An id to fill with; masks come from lengths, so it may equal eos."""
    for candidate in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if isinstance(candidate, int):
            return candidate
    return 0
