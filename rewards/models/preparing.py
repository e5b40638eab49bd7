"""A base and a convention -> a reward model that can be trained.

The base is a causal language model, a transformer without a head, or an earlier reward model, whose head is
kept. A head that is not there is newly made. Knows weights, heads and adapters; knows nothing of examples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards.errors import ConfigError
from rewards.models.backbone import REFERENCE, completion_logprobs, find_device, token_pair
from rewards.models.collating import Item, collate
from rewards.models.conventions import Convention
from rewards.models.engine import batches
from rewards.models.fit_settings import FitPrecision, FitSettings, LoraSettings
from rewards.models.heads import LayerHead, find_layer_head, new_layer_head
from rewards.models.loading import load_weights, settings_of
from rewards.models.settings import ModelSettings
from rewards.models.trainable import Trainable

_TOKENS = 8192  # of a forward pass of the reference model


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is trained.

    module: the weights. head: new, kept, vocabulary or log_ratio. reference: the model that a log-ratio
    compares with. adapters: to be merged into the weights when training is done.
    """

    module: Trainable
    head: str
    reference: PreTrainedModel | None
    adapters: Any

    def models(self) -> tuple[PreTrainedModel, ...]:
        """The model and, of a log-ratio, the reference."""
        return (self.module.model,) if self.reference is None else (self.module.model, self.reference)

    def merge(self) -> None:
        """Makes adapters part of the weights."""
        if self.adapters is not None:
            self.adapters.merge_and_unload()


def convention_to_train(convention: Convention, settings: FitSettings) -> Convention:
    """The convention of the trained model: a third class for neutral steps makes it read 1 - p(wrong)."""
    if settings.loss.neutral != "class" or convention.negative_index is not None:
        return convention
    return replace(convention, negative_index=1 if convention.positive_index == 0 else 0)


def prepare(
    base: Path, convention: Convention, tokenizer: PreTrainedTokenizerBase, settings: FitSettings
) -> Prepared:
    """Loads the base in fp32 with its head, or a new one, and adapters where asked for.

    Raises:
        ConfigError: for weights or a head that do not fit the convention, or adapters without peft.
    """
    device = find_device(settings.device)
    loading = ModelSettings(path=str(base), attention=settings.attention)
    causal = convention.head in ("vocabulary", "log_ratio")
    model = load_weights("causal" if causal else "backbone", base, loading, device)
    head, origin = (None, convention.head) if causal else _layer_head(base, convention, model, settings)
    reference: PreTrainedModel | None = None
    if convention.head == "log_ratio":
        own = base / REFERENCE
        reference = load_weights("causal", own if own.exists() else base, loading, device)
    if settings.gradient_checkpointing:
        untyped: Any = model
        untyped.activation_checkpointing_enable({"use_reentrant": False})
    adapters = None if settings.lora is None else _adapt(model, settings.lora, settings.seed)
    pair = token_pair(tokenizer, convention) if convention.head == "vocabulary" else None
    module = Trainable(convention, model, head, pair, settings.loss.centring).to(device)
    return Prepared(module, origin, reference, adapters)


def with_reference(
    items: Sequence[Item], reference: PreTrainedModel, pad: int, precision: FitPrecision
) -> list[Item]:
    """The items with the reference model's log p of each row's completion, which training never changes.

    In the numbers trained in, so that a model that has learnt nothing yet has a ratio of 0.
    """
    of_type = torch.autocast(reference.device.type, torch.bfloat16, enabled=precision == "bf16")
    rows = [row for item in items for row in item.rows]
    sums: dict[int, float] = {}
    for places in batches([len(row.ids) for row in rows], _TOKENS):
        batch = collate([Item((rows[place],)) for place in places], pad)["batch"]
        ids, mask = batch["ids"].to(reference.device), batch["mask"].to(reference.device)
        with torch.inference_mode(), of_type:
            found = completion_logprobs(reference, ids, mask, [rows[place].span for place in places])
        sums |= {place: float(own.double().sum()) for place, own in zip(places, found, strict=True)}
    told = iter(sums[place] for place in range(len(rows)))
    return [
        replace(item, rows=tuple(replace(row, reference=next(told)) for row in item.rows)) for item in items
    ]


def _layer_head(
    base: Path, convention: Convention, model: PreTrainedModel, settings: FitSettings
) -> tuple[LayerHead, str]:
    width = int(settings_of(model)["hidden_size"])
    classes = 1 if convention.head == "scalar" else 3 if settings.loss.neutral == "class" else 2
    kept = find_layer_head(base, convention, width)
    if kept is None:
        if convention.head == "classes" and convention.positive_index >= classes:
            raise ConfigError(
                f"convention.positive_index={convention.positive_index}: a new head has {classes} classes; "
                "expected 0 or 1"
            )
        return new_layer_head(width, classes, settings.seed), "new"
    found = len(kept.layers[-1].weight)
    if found != classes:
        raise ConfigError(
            f"{base}: its head gives {found} numbers, training needs {classes}: a head with a third class "
            "for neutral steps is trained with loss.neutral=class, others are not"
        )
    return kept, "kept"


def _adapt(model: PreTrainedModel, settings: LoraSettings, seed: int) -> Any:
    """Puts adapters into the model, in place; the wrapper that can merge them."""
    try:
        import peft  # an extra: training all weights does not need it
    except ImportError as error:
        raise ConfigError("lora: needs peft; pip install 'plumbline[lora]', or train all weights") from error
    library: Any = peft
    seeding: Any = torch.random
    config = library.LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules="all-linear"
    )
    with seeding.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks by a name that transformers gives up
        seeding.manual_seed(seed)
        return library.get_peft_model(model, config)
