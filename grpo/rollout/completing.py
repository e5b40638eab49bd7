"""The policy that is trained as one that goes on from a prefix, for Monte-Carlo step labels.

Keeps the protocol of rewards.completer over the engine that samples. Knows nothing of what is asked, or why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedTokenizerBase

from grpo.prompt import EncodedPrompt, encode_prompt
from grpo.rollout.local import LocalEngine, Sampling
from grpo.types import Completion
from rewards.completer import Continuation, Request
from rewards.errors import EngineError
from rewards.format import FormatSpec


@dataclass(frozen=True, slots=True)
class LocalCompleter:
    """Writes on with the engine's policy, at its temperature.

    max_tokens: of prefix and continuation together, the completion limit of the run; what would exceed it is
    cut there.
    """

    engine: LocalEngine
    tokenizer: PreTrainedTokenizerBase
    spec: FormatSpec
    max_tokens: int

    def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
        """For every request, in order, its `number` continuations; those of one number decode together."""
        found: dict[int, list[Continuation]] = {}
        prompts = [self._prompt(request) for request in requests]
        for number in sorted({request.number for request in requests}):
            places = [place for place, request in enumerate(requests) if request.number == number]
            begun = [self._begun(prompts[place], requests[place]) for place in places]
            sampling = Sampling("complete", number, self.max_tokens)
            groups = [group for batch in self.engine.generate(begun, sampling) for group in batch]
            for place, prefix, group in zip(places, begun, groups, strict=True):
                left = self.max_tokens - (len(prefix.ids) - len(prompts[place].ids))
                found[place] = [self._cut(completion, left) for completion in group.completions]
        return [found[place] for place in range(len(requests))]

    def _prompt(self, request: Request) -> EncodedPrompt:
        prompt = encode_prompt(request.problem, self.tokenizer, self.spec)
        if prompt.prefill != request.prefill:
            raise EngineError(
                f"problem {request.problem.id!r}: the template opens the answer with {prompt.prefill!r}, the "
                f"solution was opened with {request.prefill!r}: label it with the model that wrote it"
            )
        return prompt

    def _begun(self, prompt: EncodedPrompt, request: Request) -> EncodedPrompt:
        """The prompt with the prefix behind it; samples are keyed by the request instead of the problem."""
        prefix = self.tokenizer(request.prefix, add_special_tokens=False).input_ids
        ids = torch.cat([prompt.ids, torch.tensor(prefix, dtype=torch.long)])
        return replace(prompt, problem=replace(prompt.problem, id=request.key), ids=ids)

    def _cut(self, completion: Completion, left: int) -> Continuation:
        length = len(completion.token_ids)
        if length <= left:
            return Continuation(completion.sample.text, length, completion.sample.truncated)
        kept = completion.token_ids[: max(0, left)].tolist()
        return Continuation(self.engine.decode(kept), len(kept), truncated=True)
