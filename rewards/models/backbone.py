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
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards.errors import ConfigError
from rewards.models.conventions import Convention
from rewards.models.heads import (
    LayerHead,
    activate,
    check_head,
    read_layer_head,
    token_logprobs,
    vocabulary_head,
)
from rewards.models.loading import (
    embedding_rows,
    load_weights,
    local_folder,
    output_embedding,
    settings_of,
)
from rewards.models.rendering import Rendered, special_id
from rewards.models.settings import ModelSettings

REFERENCE = "reference"
"""The folder, in that of an implicit process reward model, of the model that it is compared with."""

Values = Callable[[Tensor, Tensor, Sequence[Rendered]], list[Tensor]]
"""(ids (B, L) int64, mask (B, L) int64, the rows) -> for each row (S,) fp32, one value a read."""


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """ids and mask (B, L) int64 of rows of token ids, filled with `pad` on the right."""
    sequences = [torch.tensor(row) for row in rows]
    ids = pad_sequence(sequences, batch_first=True, padding_value=pad)
    mask = pad_sequence([torch.ones_like(row) for row in sequences], batch_first=True)
    return ids, mask


@dataclass(frozen=True, slots=True)
class Backbone:
    """What gives the values.

    models and head: every part, for the fingerprint. positions: most tokens of an input, None for no limit.
    rows: of the input embedding, which token ids are below.
    """

    device: torch.device
    values: Values
    models: tuple[PreTrainedModel, ...]
    head: LayerHead | None
    positions: int | None
    rows: int


def load_backbone(
    folder: Path, convention: Convention, settings: ModelSettings, tokenizer: PreTrainedTokenizerBase
) -> Backbone:
    """Loads the weights that a convention needs, in eval mode on the device.

    Raises:
        ConfigError: for weights that would score wrongly.
    """
    device = find_device(settings.device)
    if convention.head == "log_ratio":
        places = (folder, reference_folder(folder, settings.reference))
        models = tuple(load_weights("causal", place, settings, device) for place in places)
        return assemble(convention, models, None)
    if convention.head == "vocabulary":
        model = load_weights("causal", folder, settings, device)
        with torch.no_grad():
            head = vocabulary_head(output_embedding(model), *token_pair(tokenizer, convention))
        check_head(folder, convention, head)
        return assemble(convention, (model,), head)
    model = load_weights("backbone", folder, settings, device)
    width = int(settings_of(model)["hidden_size"])
    return assemble(convention, (model,), read_layer_head(folder, convention, width).to(device))


def assemble(convention: Convention, models: tuple[PreTrainedModel, ...], head: LayerHead | None) -> Backbone:
    """The parts of a reward model as what gives its values.

    Args:
        convention: says how they are read.
        models: the model; of a log-ratio the policy and the reference.
        head: on the model's hidden states; None of a log-ratio.
    """
    values = _log_ratio(convention, *models) if head is None else _at_reads(convention, models[0], head)
    positions = settings_of(models[0]).get("max_position_embeddings")
    return Backbone(models[0].device, values, models, head, positions, embedding_rows(models))


def padding_id(tokenizer: PreTrainedTokenizerBase, rows: int) -> int:
    """The id that fills batches: pad where the embedding has it. It is masked, whichever it is."""
    pad = special_id(tokenizer.pad_token_id)
    return 0 if pad is None or pad >= rows else pad


def reference_folder(folder: Path, reference: str | None) -> Path:
    """Where the reference model of a log-ratio is: as set, or FOLDER/reference.

    Raises:
        ConfigError: when there is none.
    """
    own = folder / REFERENCE
    if reference is None and not own.exists():
        raise ConfigError(f"model.reference: {folder} compares with a reference model; give its path")
    found = own if reference is None else local_folder(reference, "model.reference")
    if found.resolve() == folder.resolve():
        raise ConfigError(
            f"model.reference={reference}: is the model itself, whose log-ratio is 0 for every text; give "
            "the model that it was trained from"
        )
    return found


def transformer(model: PreTrainedModel) -> PreTrainedModel:
    """The model without a language-model head; itself where it has none."""
    untyped: Any = model
    return untyped.base_model


def last_hidden(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """(B, L) ids and mask -> (B, L, H) states behind the last layer."""
    untyped: Any = transformer(model)
    return untyped(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state


def completion_logprobs(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, spans: Sequence[tuple[int, int]]
) -> list[Tensor]:
    """For each row (n,) fp32: log p of the n tokens of its completion given all before them.

    Args:
        model: a causal language model.
        ids: (B, L).
        mask: (B, L).
        spans: of each row [first, last), as `completion_span` gives.
    """
    hidden = last_hidden(model, ids, mask)
    output = output_embedding(model)
    return [
        token_logprobs(hidden[place, first - 1 : last - 1], output, ids[place, first:last])
        for place, (first, last) in enumerate(spans)
    ]


def completion_span(row: Rendered) -> tuple[int, int]:
    """The completion's tokens [first, last) up to the last one read; the first token of all has no log p."""
    return max(row.start, 1), row.reads[-1] + 1


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


def find_device(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:N -> the device.

    Raises:
        ConfigError: for a CUDA device where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"model.device={name}: there is no CUDA device; use cpu or auto")
    return torch.device(name)


def token_pair(tokenizer: PreTrainedTokenizerBase, convention: Convention) -> tuple[int, int]:
    """The last tokens of the positive and the negative string.

    Raises:
        ConfigError: when they are not two.
    """
    texts = (convention.positive_token, convention.negative_token)
    positive, negative = (int(tokenizer(text, add_special_tokens=False)["input_ids"][-1]) for text in texts)
    if positive == negative or tokenizer.unk_token_id in (positive, negative):
        raise ConfigError(
            f"convention: {texts[0]!r} and {texts[1]!r} are no two tokens of this tokenizer "
            f"(ids {positive} and {negative}): the convention is another model's"
        )
    return positive, negative


def _at_reads(convention: Convention, model: PreTrainedModel, head: LayerHead) -> Values:
    def values(ids: Tensor, mask: Tensor, rows: Sequence[Rendered]) -> list[Tensor]:
        hidden = last_hidden(model, ids, mask)
        counts = [len(row.reads) for row in rows]
        row_of_read = [place for place, count in enumerate(counts) for _ in range(count)]
        reads = [read for row in rows for read in row.reads]
        with torch.autocast(hidden.device.type, enabled=False):  # the head is fp32, also where a caller casts
            logits = head.logits(hidden[row_of_read, reads])
        return list(torch.split(activate(logits, convention), counts))

    return values


def _log_ratio(convention: Convention, policy: PreTrainedModel, reference: PreTrainedModel) -> Values:
    """beta * sum over the tokens of a step (or from the start) of log p - log p_ref.

    Yuan et al. 2024, arXiv:2412.01981; sums in fp64.
    """

    def values(ids: Tensor, mask: Tensor, rows: Sequence[Rendered]) -> list[Tensor]:
        spans = [completion_span(row) for row in rows]
        of_policy, of_reference = (
            completion_logprobs(model, ids, mask, spans) for model in (policy, reference)
        )
        result: list[Tensor] = []
        for row, (first, _), own, other in zip(rows, spans, of_policy, of_reference, strict=True):
            sums = (own - other).double().cumsum(0)
            sums = torch.cat([sums.new_zeros(1), sums])
            ends = sums[[read - first + 1 for read in row.reads]]
            if convention.ratio_over == "step":
                ends = ends.diff(prepend=ends.new_zeros(1))
            result.append(activate((convention.beta * ends)[:, None], convention).float())
        return result

    return values
