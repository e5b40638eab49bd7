"""A reward model in training: weights that take a batch of token ids to the loss of its labels.

The same parts, read at the same positions, as rewards.models.backbone scores with. Knows heads and losses;
knows nothing of text, files or optimisers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rewards.models.backbone import completion_logprobs, last_hidden
from rewards.models.collating import Batch
from rewards.models.conventions import Convention
from rewards.models.heads import Layer, LayerHead, vocabulary_head
from rewards.models.loading import output_embedding
from rewards.models.losses import bradley_terry, class_logits, cross_entropy


class Trainable(nn.Module):
    """A transformer with what is read off it. Dropout is off: one text has one value.

    Args:
        convention: how it is read.
        model: the transformer; a causal language model for vocabulary pairs and log-ratios.
        head: the layers of a scalar or class head, whose weights become parameters; else None.
        pair: the positive and the negative token (vocabulary pairs); else None.
        centring: of the loss of pairs.
    """

    accepts_loss_kwargs = True  # tells the Trainer that `forward` divides by the units of the whole step

    def __init__(
        self,
        convention: Convention,
        model: PreTrainedModel,
        head: LayerHead | None,
        pair: tuple[int, int] | None,
        centring: float,
    ) -> None:
        super().__init__()
        self.model = model
        layers = () if head is None else head.layers
        self.weights = nn.ParameterList([nn.Parameter(layer.weight.clone()) for layer in layers])
        self.biases = nn.ParameterList(
            [nn.Parameter(layer.bias.clone()) for layer in layers if layer.bias is not None]
        )
        self._biased = [layer.bias is not None for layer in layers]
        self._convention = convention
        self._pair = pair
        self._centring = centring
        self._keys_to_ignore_on_save = None  # read by the Trainer when a checkpoint lacks tied weights
        hooks: Any = self  # torch tells no type of the hook
        hooks.register_state_dict_post_hook(_drop_tied)

    def head(self) -> LayerHead | None:
        """The head with its current weights, which gradients flow into; None of a log-ratio."""
        if self._pair is not None:
            return vocabulary_head(output_embedding(self.model), *self._pair)
        if not len(self.weights):
            return None
        biases = iter(self.biases)
        return LayerHead(
            tuple(
                Layer(weight, next(biases) if biased else None)
                for weight, biased in zip(self.weights, self._biased, strict=True)
            )
        )

    def forward(
        self, batch: Batch, labels: Tensor, num_items_in_batch: Tensor | None = None
    ) -> dict[str, Tensor]:
        """{"loss": () fp32}: the sum over the units of the batch by the number of those of the whole step.

        Args:
            batch: the rows and their targets.
            labels: (units,), for their number.
            num_items_in_batch: units of the step over all micro-batches; None: this batch is all of it.
        """
        units = labels.numel() if num_items_in_batch is None else num_items_in_batch
        logits = self.logits(batch)
        with torch.autocast(logits.device.type, enabled=False):
            return {"loss": self._loss(logits, batch) / units}

    def logits(self, batch: Batch) -> Tensor:
        """(R, C) fp32 logits of (wrong, right[, neutral]) at the reads; (B, 2) of a log-ratio."""
        if self._convention.head == "log_ratio":
            ends: Any = batch["spans"]
            spans: list[tuple[int, int]] = ends.tolist()
            own = completion_logprobs(self.model, batch["ids"], batch["mask"], spans)
            sums = torch.stack([logprobs.double().sum() for logprobs in own])
            return class_logits((self._convention.beta * (sums - batch["reference"])).float())
        hidden = last_hidden(self.model, batch["ids"], batch["mask"])
        rows, reads = batch["reads"].unbind(dim=1)
        with torch.autocast(hidden.device.type, enabled=False):
            head = self.head()
            assert head is not None
            logits = head.logits(hidden[rows, reads])
        if self._convention.head == "scalar":
            return class_logits(logits.squeeze(1))
        return logits[:, class_columns(self._convention, logits.shape[1])]

    def _loss(self, logits: Tensor, batch: Batch) -> Tensor:
        if not len(batch["margins"]):
            return cross_entropy(logits, batch["masses"])
        scores = logits[:, 1] - logits[:, 0]
        chosen, rejected = scores.chunk(2)
        return bradley_terry(chosen, rejected, batch["margins"], self._centring)


def class_columns(convention: Convention, classes: int) -> list[int]:
    """The columns of a head that say wrong, right and, where it has a third class, neutral."""
    if convention.head == "vocabulary":
        return [1, 0]
    right = convention.positive_index
    wrong = convention.negative_index
    if wrong is None:
        wrong = next(column for column in range(classes) if column != right)
    return [wrong, right, *(column for column in range(classes) if column not in (wrong, right))]


def _drop_tied(_: nn.Module, state: dict[str, Tensor], prefix: str, metadata: object) -> None:
    """Of tensors that share their memory (tied embeddings) the first stays: safetensors takes no others."""
    seen: set[tuple[int, torch.Size]] = set()
    for name, tensor in list(state.items()):
        place = (tensor.data_ptr(), tensor.shape)
        if tensor.numel() and place in seen:
            del state[name]
        seen.add(place)
