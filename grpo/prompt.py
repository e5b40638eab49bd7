"""Turns a problem into the exact token ids the policy is conditioned on.

One format spec writes the system prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rewards.format import FormatSpec
from rewards.types import Problem


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """ids: (L,) int64 with exactly the special tokens the template writes.

    Prefill: what it put into the answer.
    """

    problem: Problem
    ids: Tensor
    text: str
    prefill: str


def encode_prompt(problem: Problem, tokenizer: PreTrainedTokenizerBase, spec: FormatSpec) -> EncodedPrompt:
    """Renders the chat template (plain text for a tokenizer without one) and tokenises it once."""
    system = spec.system_prompt()
    if tokenizer.chat_template is None:
        text = f"{system}\n\nUser: {problem.prompt}\n\nAssistant: "
        ids = tokenizer(text).input_ids
        if ids[-1] == tokenizer.eos_token_id:  # some tokenizers end every text, and a completion goes on
            ids = ids[:-1]
    else:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": problem.prompt})
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        ids = tokenizer(text, add_special_tokens=False).input_ids  # the template writes its own specials
    return EncodedPrompt(problem, torch.tensor(ids, dtype=torch.long), text, spec.prefill_of(text))


def encode_prompts(
    problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, spec: FormatSpec, *, max_tokens: int
) -> tuple[list[EncodedPrompt], list[EncodedPrompt]]:
    """The prompts within max_tokens, and those that are longer: filtered and reported, never cut."""
    encoded = [encode_prompt(problem, tokenizer, spec) for problem in problems]
    return (
        [prompt for prompt in encoded if len(prompt.ids) <= max_tokens],
        [prompt for prompt in encoded if len(prompt.ids) > max_tokens],
    )
