"""Reward models of every public kind, tiny and random, saved as their authors save them.

`tiny_folder(preset, folder)` writes weights, tokenizer and chat template of a model that the preset of that
name describes. The tokenizer is a byte-level BPE that learned a few merges, so that tokens span characters
and neighbours can join, as in real ones.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<extra_0>", "<s>")
CORPUS = (
    "Step 1: One box holds 3 + 4 = 7 balls.\nStep 2: So the answer is 35.\n\nA box holds 4 blue balls. ки\n",
    "Please reason step by step, and put your final answer within \\boxed{35}.\n\nuser\nassistant\nsystem\n",
)
WIDTH = 32


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: the Cyrillic tag is one token, pad one of its own, eos the end of a turn."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    core.train_from_iterator(CORPUS * 4, trainer)
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        chat_template=CHAT,
    )


def config(*, labels: int = 2, positions: int = 2048) -> LlamaConfig:
    """Two layers of width 32."""
    return LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        tie_word_embeddings=False,
        num_labels=labels,
        pad_token_id=0,
        bos_token_id=4,
        eos_token_id=2,
    )


def sharpened(model: nn.Module) -> nn.Module:
    """Larger weights, so that different texts get clearly different values."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4.0)
    return model


def seeded(make: type[PreTrainedModel], settings: LlamaConfig, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(settings)
        sharpened(model)
    return model.eval()


def random_layers(seed: int, *sizes: int) -> list[nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [nn.Linear(a, b) for a, b in pairwise(sizes)]


def tiny_folder(preset: str, folder: Path, *, seed: int = 0, positions: int = 2048) -> Path:
    """Saves a tiny model of the preset's kind; the reference of implicit-prm is FOLDER/reference."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save_pretrained(folder)
    match preset:
        case "qwen2.5-math-prm":
            save_with_layers(folder, ("score.0", "score.2"), random_layers(seed + 1, WIDTH, WIDTH, 2), seed)
        case "skywork-o1-prm":
            save_with_layers(folder, ("v_head.summary",), random_layers(seed + 1, WIDTH, 1), seed)
        case "math-shepherd" | "rlhflow-prm" | "rlhflow-orm":
            seeded(LlamaForCausalLM, config(positions=positions), seed).save_pretrained(folder)
        case "implicit-prm":
            seeded(LlamaForCausalLM, config(positions=positions), seed).save_pretrained(folder)
            reference = folder / "reference"
            seeded(LlamaForCausalLM, config(positions=positions), seed + 1).save_pretrained(reference)
        case "trl-prm" | "pure-prm":
            settings = config(labels=2, positions=positions)
            seeded(LlamaForTokenClassification, settings, seed).save_pretrained(folder)
        case _:
            settings = config(labels=1, positions=positions)
            seeded(LlamaForSequenceClassification, settings, seed).save_pretrained(folder)
    return folder


def save_with_layers(folder: Path, names: tuple[str, ...], layers: list[nn.Linear], seed: int) -> None:
    """A causal model's checkpoint with further tensors beside it, as custom heads are published."""
    seeded(LlamaForCausalLM, config(), seed).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, layer in zip(names, layers, strict=True):
        tensors[f"{name}.weight"] = layer.weight.detach().clone()
        tensors[f"{name}.bias"] = layer.bias.detach().clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
