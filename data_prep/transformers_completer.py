"""A causal language model that writes on, by transformers' generate: batched, padded left, keyed by request.

Sampling takes no random state of the library. Every row draws uniform numbers of its own, from its key, and
inverts the cumulative distribution: only the temperature shapes it, no defaults of the model's own generation
settings. What else is in the batch changes a row by rounding alone. Knows prompts and tokens; knows nothing
of labels. The one module of data_prep that loads torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from rewards.completer import Continuation, Request
from rewards.errors import ConfigError, DataError
from rewards.format import FormatSpec
from rewards.models.backbone import find_device
from rewards.models.loading import load_tokenizer, load_weights, local_folder
from rewards.models.settings import ModelSettings
from rewards.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """max_tokens: of one continuation. temperature: > 0. rows: continuations written together."""

    max_tokens: int
    temperature: float
    rows: int

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.rows < 1:
            raise ConfigError(f"max_tokens={self.max_tokens}, rows={self.rows}: expected 1 or more of each")
        if not self.temperature > 0:
            raise ConfigError(f"temperature={self.temperature}: expected above 0, so that completions differ")


class TransformersCompleter:
    """Completes prefixes with one model; keeps the protocol of `rewards.completer`.

    Args:
        model: path, dtype, device and attention of a causal language model with its tokenizer.
        spec: writes the system prompt, and names the tag that a chat template may have opened.
        settings: how it is sampled.

    Raises:
        ConfigError: when the model cannot be loaded, or declares no token that ends a text.
    """

    def __init__(self, model: ModelSettings, spec: FormatSpec, settings: GenerationSettings) -> None:
        folder = local_folder(model.path)
        self.device = find_device(model.device)
        self.spec = spec
        self.settings = settings
        # Their types say less than they take.
        self._tokenizer: Any = load_tokenizer(folder)
        self._model: Any = load_weights("causal", folder, model, self.device)
        self._stops = _stop_ids(self._model, self._tokenizer)
        if not self._stops:
            raise ConfigError(f"{folder}: declares no eos token: no completion could ever end")
        self._limit: int | None = self._model.config.to_dict().get("max_position_embeddings")
        self._pad: int = (
            self._stops[0] if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        )
        # So that nothing of the checkpoint's own sampling defaults is filled in.
        self._model.generation_config = GenerationConfig(
            do_sample=False,
            max_new_tokens=settings.max_tokens,
            eos_token_id=self._stops,
            pad_token_id=self._pad,
        )

    def prefill_of(self, problem: Problem) -> str:
        """What the chat template writes into the assistant's turn before the model does."""
        return self.spec.prefill_of(self._prompt(problem))

    def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
        """For every request, in order, its continuations.

        Raises:
            DataError: a prefix leaves no room for a continuation in the model's context.
        """
        prefixes = [self._encode(request) for request in requests]
        rows = [(place, index) for place, request in enumerate(requests) for index in range(request.number)]
        # Equal lengths together, so that little is padding; the order depends on the requests alone.
        rows.sort(key=lambda row: (len(prefixes[row[0]]), *row))
        written: dict[tuple[int, int], Continuation] = {}
        for start in range(0, len(rows), self.settings.rows):
            batch = rows[start : start + self.settings.rows]
            keys = [f"{requests[place].key}/{index}" for place, index in batch]
            generated = self._generate([prefixes[place] for place, _ in batch], keys)
            for row, ids in zip(batch, generated, strict=True):
                written[row] = self._continuation(requests[row[0]], prefixes[row[0]], ids)
        return [
            [written[place, index] for index in range(request.number)]
            for place, request in enumerate(requests)
        ]

    def _prompt(self, problem: Problem) -> str:
        """The rendered chat up to the assistant's turn, or plain text for a tokenizer without a template."""
        system = self.spec.system_prompt()
        if self._tokenizer.chat_template is None:
            return f"{system}\n\nUser: {problem.prompt}\n\nAssistant: "
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": problem.prompt})
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _encode(self, request: Request) -> list[int]:
        """The ids of prompt and prefix, each tokenised alone, as when a policy wrote the prefix."""
        prompt = self._prompt(request.problem)
        if not prompt.endswith(request.prefill):
            prompt += request.prefill
        plain = self._tokenizer.chat_template is None  # a template writes its own special tokens
        ids: list[int] = self._tokenizer(prompt, add_special_tokens=plain)["input_ids"]
        if plain and ids[-1] in self._stops:  # some tokenizers end every text, and this one goes on
            ids = ids[:-1]
        # A space belongs to the token of the word after it.
        ids += self._tokenizer(request.prefix.rstrip(" "), add_special_tokens=False)["input_ids"]
        if self._limit is not None and len(ids) + self.settings.max_tokens > self._limit:
            raise DataError(
                f"problem {request.problem.id!r}: a prefix of {len(ids)} tokens and max_tokens="
                f"{self.settings.max_tokens} do not fit into the model's context of {self._limit}: lower "
                "max_tokens, or leave the problem out"
            )
        return ids

    @torch.inference_mode()
    def _generate(self, prefixes: Sequence[Sequence[int]], keys: Sequence[str]) -> list[list[int]]:
        """The ids that follow each prefix, up to and with the stop token."""
        width = max(map(len, prefixes))
        ids = torch.full((len(prefixes), width), self._pad, dtype=torch.long)
        mask = torch.zeros((len(prefixes), width), dtype=torch.long)
        for row, prefix in enumerate(prefixes):
            ids[row, width - len(prefix) :] = torch.tensor(prefix)
            mask[row, width - len(prefix) :] = 1
        draws = torch.stack([uniforms(key, self.settings.max_tokens) for key in keys]).to(self.device)
        sampling = KeyedSampling(draws, width, self.settings.temperature)
        output: Tensor = self._model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            logits_processor=LogitsProcessorList([sampling]),
        )
        return [self._cut(row) for row in output[:, width:].tolist()]

    def _cut(self, ids: list[int]) -> list[int]:
        end = next((place for place, token in enumerate(ids) if token in self._stops), len(ids))
        return ids[: end + 1]

    def _continuation(self, request: Request, prefix: Sequence[int], ids: list[int]) -> Continuation:
        stopped = bool(ids) and ids[-1] in self._stops
        # Decoded behind the prefix, because some tokenizers drop the space that a text starts with.
        before, after = (
            str(self._tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False))
            for part in (prefix, [*prefix, *(ids[:-1] if stopped else ids)])
        )
        text = after[len(before) :].removeprefix(request.prefix[len(request.prefix.rstrip(" ")) :])
        return Continuation(text, len(ids), truncated=not stopped)


class KeyedSampling(LogitsProcessor):
    """Leaves one token a row: the one that the row's uniform number falls on.

    draws: (R, T) float64 in [0, 1). prompt_length: tokens before the first that is sampled.
    """

    def __init__(self, draws: Tensor, prompt_length: int, temperature: float) -> None:
        self.draws = draws
        self.prompt_length = prompt_length
        self.temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(R, V) logits -> (R, V), all but one in each row at minus infinity."""
        ends = torch.softmax(scores.double() / self.temperature, dim=1).cumsum(dim=1)
        uniform = self.draws[:, input_ids.shape[1] - self.prompt_length, None]
        total = ends[:, -1:]
        aim = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        chosen = torch.searchsorted(ends, aim, right=True)
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)


def uniforms(key: str, count: int) -> Tensor:
    """(count,) float64 uniform numbers in [0, 1) that depend on the key alone."""
    seed = int.from_bytes(
        hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )
    return torch.rand(count, generator=torch.Generator().manual_seed(seed >> 1), dtype=torch.float64)


def _stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that the model or the tokenizer declares as an end."""
    declared = model.generation_config.eos_token_id if model.generation_config is not None else None
    found = [*declared] if isinstance(declared, list) else [declared]
    return sorted({token for token in (*found, tokenizer.eos_token_id) if token is not None})
