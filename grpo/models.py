"""Makes or loads the policy and its tokenizer from the `model` settings, and saves them.

Knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from grpo.adapters import add_adapter, save_adapter
from grpo.config import ModelConfig
from grpo.policy import Policy, check_head
from grpo.tiny import TinyShape, tiny_model, tiny_tokenizer
from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.models.loading import switch_dropout_off


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """notes: what a user should know of how the model was taken, one sentence each."""

    policy: Policy
    tokenizer: PreTrainedTokenizerBase
    notes: tuple[str, ...]


def load_policy(
    config: ModelConfig, spec: FormatSpec, *, temperature: float, seed: int, entropy_gradient: bool
) -> LoadedPolicy:
    """The policy on the CPU, weights in fp32 (bf16 is a matter of the arithmetic.

    See Accelerate's mixed precision).

    Dropout is off: rollout, old and new log-probs must be of one and the same function.

    Raises:
        ConfigError: for a name that cannot be loaded, or a model whose log-probs would be computed wrongly.
    """
    model, tokenizer = _tiny(config, spec, seed) if config.kind == "tiny" else _hub(config)
    if config.lora_rank:
        add_adapter(model, config.lora_rank, seed)
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    precision = torch.bfloat16 if config.precision == "bf16" else torch.float32
    policy = Policy(model, temperature=temperature, entropy_gradient=entropy_gradient, precision=precision)
    check_head(policy)
    return LoadedPolicy(policy, tokenizer, tuple(_notes(tokenizer)))


def save_policy(
    policy: Policy, tokenizer: PreTrainedTokenizerBase, folder: Path, *, lora: bool = False
) -> None:
    """Writes what `from_pretrained` reads, of a policy with an adapter that alone, which peft reads."""
    with _without_bars():
        if lora:
            save_adapter(policy.model, folder)
        else:
            policy.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _without_bars() -> Generator[None]:
    """Keeps the progress bars of transformers, such as that of writing a model, out of our own display."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _tiny(
    config: ModelConfig, spec: FormatSpec, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if config.hidden_size is None or config.layers is None or config.heads is None:
        raise ConfigError("model=tiny needs model.hidden_size, model.layers and model.heads")
    tokenizer = tiny_tokenizer(
        [spec.think_open, spec.think_close, spec.answer_open, spec.answer_close, "\\boxed{"]
    )
    shape = TinyShape(config.hidden_size, config.layers, config.heads)
    return tiny_model(tokenizer, shape, seed=seed), tokenizer


def _hub(config: ModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    name = config.name
    if name is None:
        raise ConfigError("model.name: model=hub needs a hub name or a local path")
    try:
        settings = AutoConfig.from_pretrained(name)
        switch_dropout_off(settings)
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, config=settings, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.name={name}: cannot be loaded as a causal language model "
            f"({str(error).splitlines()[0]}); expected a hub name or a folder with config.json, weights and "
            "tokenizer files"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            f"model.name={name}: its tokenizer declares no eos token, no completion could ever end"
        )
    return model, tokenizer


def _notes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    notes: list[str] = []
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        notes.append(
            "the tokenizer's pad is its eos: masks are made from lengths, so the end stays in the loss"
        )
    if tokenizer.chat_template is None:
        notes.append(
            "the tokenizer has no chat template: prompts are written as plain 'User: ... Assistant:' text; "
            "choose an instruct model to train with its own template"
        )
    return notes
