"""The embedded default model: a small Llama with a character tokenizer, both made on the spot from a seed."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}"
"""The user's text alone.

A model this small learns the layout from the cold start, not from a system prompt.
"""

SPECIAL = ("<pad>", "<eos>", "<unk>")


@dataclass(frozen=True, slots=True)
class TinyShape:
    """hidden_size and heads must divide; the feed-forward width is three times the hidden size."""

    hidden_size: int = 128
    layers: int = 3
    heads: int = 4


def tiny_tokenizer(whole_tokens: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a printable ASCII character, and one for each of whole_tokens (tags, the box command)."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *string.printable[:95], "\n"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_tokens([AddedToken(token, normalized=False) for token in whole_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(tokenizer: PreTrainedTokenizerFast, shape: TinyShape, *, seed: int) -> LlamaForCausalLM:
    """A randomly initialised Llama.

    The same seed gives the same weights and leaves the global generator alone.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=3 * shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=SPECIAL.index("<pad>"),
        eos_token_id=SPECIAL.index("<eos>"),
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
