"""A batch of token ids -> the values at the read positions: transformer, head and activation together.

Knows which parts a convention's head needs; knows nothing of text or of how batches are made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards.errors import ConfigError
from rewards.models.conventions import Convention
from rewards.models.heads import LayerHead, activate, read_layer_head, token_logprobs, vocabulary_head
from rewards.models.loading import load_weights, local_folder, output_embedding, settings_of
from rewards.models.rendering import Rendered
from rewards.models.settings import ModelSettings

Values = Callable[[Tensor, Tensor, Sequence[Rendered]], list[Tensor]]
"""(ids (B, L) int64, mask (B, L) int64, the rows) -> for each row (S,) fp32, one value a read."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """What gives the values.

    models and head: every part, for the fingerprint. positions: most tokens of an input, None for no limit.
    """

    device: torch.device
    values: Values
    models: tuple[PreTrainedModel, ...]
    head: LayerHead | None
    positions: int | None


def load_backbone(
    folder: Path, convention: Convention, settings: ModelSettings, tokenizer: PreTrainedTokenizerBase
) -> Backbone:
    """Loads the weights that a convention needs, in eval mode on the device.

    Raises:
        ConfigError: for weights that would score wrongly.
    """
    device = _device(settings.device)
    head: LayerHead | None = None
    if convention.head == "log_ratio":
        if settings.reference is None:
            raise ConfigError(f"model.reference: {folder} compares with a reference model; give its path")
        places = (folder, local_folder(settings.reference))
        models = tuple(load_weights("causal", place, settings, device) for place in places)
        values = _log_ratio(convention, *models)
    elif convention.head == "vocabulary":
        models = (load_weights("causal", folder, settings, device),)
        head = vocabulary_head(output_embedding(models[0]), *_token_pair(tokenizer, convention))
        values = _at_reads(convention, models[0].base_model, head)
    else:
        models = (load_weights("backbone", folder, settings, device),)
        width = int(settings_of(models[0])["hidden_size"])
        head = read_layer_head(folder, convention, width).to(device)
        values = _at_reads(convention, models[0], head)
    positions = settings_of(models[0]).get("max_position_embeddings")
    return Backbone(device, values, models, head, positions)


def fingerprint(backbone: Backbone, convention: Convention, example: Rendered) -> str:
    """Twelve hex digits that change with the convention, the tokenizer and any tensor that training moves.

    Hashes an example's ids, the head and the first values of every parameter: whole weights take long.
    """
    digest = hashlib.sha256(json.dumps([asdict(convention), example.ids], sort_keys=True).encode())
    tensors = [p.detach().flatten()[:64] for model in backbone.models for p in model.parameters()]
    if backbone.head is not None:
        tensors += [layer.weight for layer in backbone.head.layers]
        tensors += [layer.bias for layer in backbone.head.layers if layer.bias is not None]
    for tensor in tensors:
        digest.update(tensor.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"model.device={name}: there is no CUDA device; use cpu or auto")
    return torch.device(name)


def _token_pair(tokenizer: PreTrainedTokenizerBase, convention: Convention) -> tuple[int, int]:
    """The last tokens of the positive and the negative string."""
    texts = (convention.positive_token, convention.negative_token)
    positive, negative = (int(tokenizer(text, add_special_tokens=False)["input_ids"][-1]) for text in texts)
    if positive == negative or tokenizer.unk_token_id in (positive, negative):
        raise ConfigError(
            f"convention: {texts[0]!r} and {texts[1]!r} are no two tokens of this tokenizer "
            f"(ids {positive} and {negative}): the convention is another model's"
        )
    return positive, negative


def _at_reads(convention: Convention, model: Any, head: LayerHead) -> Values:
    def values(ids: Tensor, mask: Tensor, rows: Sequence[Rendered]) -> list[Tensor]:
        hidden: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        counts = [len(row.reads) for row in rows]
        row_of_read = [place for place, count in enumerate(counts) for _ in range(count)]
        reads = [read for row in rows for read in row.reads]
        logits = head.logits(hidden[row_of_read, reads])
        return list(torch.split(activate(logits, convention), counts))

    return values


def _log_ratio(convention: Convention, policy: PreTrainedModel, reference: PreTrainedModel) -> Values:
    """beta * sum over the tokens of a step (or from the start) of log p - log p_ref.

    Yuan et al. 2024, arXiv:2412.01981; sums in fp64.
    """
    untyped: list[Any] = [policy.base_model, reference.base_model]
    outputs = [output_embedding(policy), output_embedding(reference)]

    def values(ids: Tensor, mask: Tensor, rows: Sequence[Rendered]) -> list[Tensor]:
        hidden: list[Tensor] = [
            model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state for model in untyped
        ]
        result: list[Tensor] = []
        for place, row in enumerate(rows):
            tokens = slice(max(row.start, 1), row.reads[-1] + 1)
            before = slice(tokens.start - 1, tokens.stop - 1)
            of_policy, of_reference = (
                token_logprobs(states[place, before], output, ids[place, tokens])
                for states, output in zip(hidden, outputs, strict=True)
            )
            sums = (of_policy - of_reference).double().cumsum(0)
            sums = torch.cat([sums.new_zeros(1), sums])
            ends = sums[[read - tokens.start + 1 for read in row.reads]]
            if convention.ratio_over == "step":
                ends = ends.diff(prepend=ends.new_zeros(1))
            result.append(activate((convention.beta * ends)[:, None], convention).float())
        return result

    return values
