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
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from grpo.head import exp_
from grpo.policy import Policy
from grpo.prompt import EncodedPrompt
from grpo.rollout.decoding import CachedRows, SharedRows
from grpo.types import Completion, RolloutGroup
from rewards.types import Sample

BLOCK = 256
"""Vocabulary entries that are summed as one while drawing."""


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


def decode_completion(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of sampled ids, specials kept."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


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

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, specials kept, as the scorers see it."""
        return decode_completion(self.tokenizer, ids)

    @torch.no_grad()
    def _decode(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> list[RolloutGroup]:
        device = self.policy.model.device
        keys = [(p.problem.id, i) for p in prompts for i in range(sampling.group_size)]
        written = _Written.empty(len(keys), sampling.max_tokens, device)
        draws = torch.stack([uniforms(sampling.key, *key, sampling.max_tokens) for key in keys]).to(device)
        stop = self.stop_ids.to(device)
        rows = torch.arange(len(keys), device=device)  # those still decoding
        with self.policy.weights_in_precision():
            model = self._rows(prompts, sampling)
            hidden = model.start()
            for t in range(sampling.max_tokens):
                uniform = None if sampling.greedy else draws[rows, t]
                ids, logprobs = choose(self.policy.logits(hidden), uniform)
                alive = written.append(t, rows, ids, logprobs, stop).nonzero().squeeze(1)
                if t + 1 == sampling.max_tokens or not len(alive):
                    break
                if len(alive) < len(rows):
                    rows, ids = rows[alive], ids[alive]
                    model.keep(alive)
                hidden = model.advance(ids)
        return self._groups(prompts, sampling, written)

    def _rows(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> SharedRows | CachedRows:
        ids = [prompt.ids for prompt in prompts]
        if self.policy.shares_prompts:
            return SharedRows(self.policy, ids, sampling.group_size, sampling.max_tokens)
        return CachedRows(self.policy, ids, sampling.group_size)

    def _groups(
        self, prompts: Sequence[EncodedPrompt], sampling: Sampling, rows: _Written
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
                    self.decode(kept.tolist()),
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
class _Written:
    """What has been sampled so far: ids and logprobs (R, max_tokens), lengths (R,), stopped (R,)."""

    ids: Tensor
    logprobs: Tensor
    lengths: Tensor
    stopped: Tensor

    @staticmethod
    def empty(rows: int, max_tokens: int, device: torch.device) -> _Written:
        return _Written(
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


def uniforms(key: str, problem_id: str, index: int, count: int) -> Tensor:
    """(count,) float64 uniform numbers in [0, 1) that depend on the key.

    The problem and the sample index alone.
    """
    digest = hashlib.blake2b(f"{key}\x1f{problem_id}\x1f{index}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def choose(logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """(R,) ids drawn by the rows' uniform numbers, or the likeliest without them, and their log-probs (R,).

    logits: (R, V) fp32, overwritten.
    """
    top = logits.amax(dim=1, keepdim=True)
    weights = exp_(logits.sub_(top))
    total = weights.sum(dim=1)
    ids = weights.argmax(dim=1) if uniform is None else invert_cdf(weights, uniform)
    return ids, weights.gather(1, ids[:, None]).squeeze(1).log() - total.log()


def invert_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """(R,) sampled ids: the first whose cumulative weight exceeds the row's uniform number times the total.

    Two steps, the first over sums of blocks: only one block a row is then summed in fp64, not the vocabulary.
    An id of weight 0 is never drawn.

    Args:
        weights: (R, V) fp32, not negative, each row with a positive sum.
        uniform: (R,) fp64 in [0, 1).
    """
    rows, vocabulary = weights.shape
    missing = -vocabulary % BLOCK
    blocks = (functional.pad(weights, (0, missing)) if missing else weights).view(rows, -1, BLOCK)
    sums = blocks.sum(dim=2).double()
    ends = sums.cumsum(dim=1)
    target = (uniform * ends[:, -1])[:, None]
    block = torch.searchsorted(ends, target, right=True).clamp_(max=sums.shape[1] - 1)
    size = sums.gather(1, block)
    share = (target - (ends.gather(1, block) - size)) / size  # how far into its block, in [0, 1)
    inside = blocks[torch.arange(rows, device=weights.device), block.squeeze(1)].double().cumsum(dim=1)
    whole = inside[:, -1:]
    aim = torch.minimum(share.clamp_(min=0) * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return (block * BLOCK + torch.searchsorted(inside, aim, right=True)).squeeze(1)


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
