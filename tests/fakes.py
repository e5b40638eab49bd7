"""Small stand-ins with intent: random models of two families, problems, and scorers that judge by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerFast

from grpo.policy import Policy
from grpo.prompt import EncodedPrompt, encode_prompt
from grpo.tiny import TinyShape, tiny_model, tiny_tokenizer
from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample, Score

SPEC = FormatSpec()
TOKENIZER: PreTrainedTokenizerFast = tiny_tokenizer([SPEC.think_open, SPEC.think_close, "\\boxed{"])


def llama(seed: int = 0) -> PreTrainedModel:
    """Two layers, rotary positions, sharp enough that completions differ."""
    model = tiny_model(TOKENIZER, TinyShape(32, 2, 2), seed=seed)
    return sharpen(model)


def gpt2(seed: int = 0) -> PreTrainedModel:
    """Two layers, learned absolute positions, dropout in its configuration."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=len(TOKENIZER), n_embd=32, n_layer=2, n_head=2, n_positions=256, eos_token_id=1
        )
        return sharpen(GPT2LMHeadModel(config))


def sharpen(model: PreTrainedModel) -> PreTrainedModel:
    """Larger weights: a random model is near uniform, and errors of position would hide in it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    return model


def policy(model: PreTrainedModel | None = None, temperature: float = 1.0) -> Policy:
    """A policy over a tiny model."""
    return Policy(model or llama(), temperature=temperature)


def problem(text: str = "1+2=", gold: str = "3", identity: str | None = None) -> Problem:
    """A sum."""
    return Problem(identity or f"p-{text}", text, (gold,), "number", "test")


def prompts(*texts: str) -> list[EncodedPrompt]:
    """Encoded prompts of the given questions."""
    return [encode_prompt(problem(text), TOKENIZER, SPEC) for text in texts]


@dataclass(frozen=True)
class RuleScorer:
    """Pays what a function of the sample says; None is a failure of ours."""

    rule: Callable[[Sample], float | None]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One score per sample, in order."""
        values = [self.rule(sample) for sample in samples]
        return [
            Score.failed(Reason.INTERNAL) if value is None else Score.scored(value, Reason.MODEL)
            for value in values
        ]
