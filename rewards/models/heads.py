"""Hidden states at the read positions -> logits -> values, always in fp32.

Knows the layers that stand on a backbone and the activations of conventions; knows nothing of text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from rewards.errors import ConfigError
from rewards.models.conventions import Convention
from rewards.models.loading import open_tensors

HEAD_FILE = "head.safetensors"
"""Holds the head of a model that we trained."""
_POSITIONS = 256  # positions whose logits over the whole vocabulary are held at once


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer in fp32: weight (out, in), bias (out,) or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class LayerHead:
    """Linear layers with a ReLU between them."""

    layers: tuple[Layer, ...]

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, H) in any precision -> (N, C) fp32."""
        out = hidden.float()
        for place, layer in enumerate(self.layers):
            out = functional.linear(out.relu() if place else out, layer.weight, layer.bias)
        return out

    def to(self, device: torch.device) -> LayerHead:
        """The same head on a device."""
        return LayerHead(
            tuple(
                Layer(layer.weight.to(device), None if layer.bias is None else layer.bias.to(device))
                for layer in self.layers
            )
        )


def read_layer_head(folder: Path, convention: Convention, width: int) -> LayerHead:
    """The layers stored in a checkpoint under the convention's head_name.

    They are read from the file itself, so that a head can never be one that loading has newly made.

    Args:
        folder: holds *.safetensors.
        convention: names the head and says what it must give.
        width: of the backbone's hidden states.

    Raises:
        ConfigError: when the tensors are not there, or of other shapes than the convention says.
    """
    head = find_layer_head(folder, convention, width)
    if head is None and not list(folder.glob("*.safetensors")):
        raise ConfigError(
            f"{folder}: has no *.safetensors, in which the head {convention.head_name}.weight is looked for: "
            "convert its weights to safetensors (load the whole model with transformers and save_pretrained)"
        )
    if head is None:
        raise ConfigError(
            f"{folder}: the checkpoint has no head {convention.head_name}.weight: the model was saved "
            f"without its head, or its head has another name ({_head_names(folder)}); set head_name"
        )
    check_head(folder, convention, head)
    return head


def check_head(folder: Path, convention: Convention, head: LayerHead) -> None:
    """A head must tell texts apart: its layers are not all zeros, nor its classes all alike.

    Raises:
        ConfigError: where every text would get one value.
    """
    last = head.layers[-1].weight
    apart = last if convention.head == "scalar" else last - last[0]
    if not apart.any() or not all(layer.weight.any() for layer in head.layers):
        raise ConfigError(
            f"{folder}: its head gives the same value to every text (weights of zeros, or classes that are "
            "alike): it was never trained, or is lost; expected the reward model's own, whole checkpoint"
        )


def find_layer_head(folder: Path, convention: Convention, width: int) -> LayerHead | None:
    """The same, and None where the checkpoint has no tensor of that name."""
    name = convention.head_name
    tensors = _read_tensors(folder, name + ".")
    numbers = sorted({int(key.split(".")[0]) for key in tensors if key.split(".")[0].isdecimal()})
    prefixes = [f"{number}." for number in numbers] or [""]
    layers: list[Layer] = []
    for prefix in prefixes:
        weight = tensors.get(prefix + "weight")
        if weight is None or weight.ndim != 2:
            return None
        layers.append(Layer(weight, tensors.get(prefix + "bias")))
    if len({layer.bias is None for layer in layers}) > 1:
        raise ConfigError(
            f"{folder}: of the layers of the head {name} some have a bias and some have none "
            f"({', '.join(sorted(f'{name}.{key}' for key in tensors))}): expected the whole head"
        )
    _check_shapes(folder, convention, [layer.weight for layer in layers], width)
    return LayerHead(tuple(layers))


def new_layer_head(width: int, classes: int, seed: int) -> LayerHead:
    """One layer with weights from a normal distribution of standard deviation 1 / (width + 1), bias 0.

    As OpenRLHF's reward models start: values near 0 whatever the width.
    """
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, width, generator=generator) / (width + 1)
    return LayerHead((Layer(weight, torch.zeros(classes)),))


def write_layer_head(folder: Path, name: str, head: LayerHead) -> None:
    """Stores a head beside the backbone's weights, as `read_layer_head` finds it."""
    several = len(head.layers) > 1
    tensors: dict[str, Tensor] = {}
    for place, layer in enumerate(head.layers):
        prefix = f"{name}.{2 * place}" if several else name
        tensors[f"{prefix}.weight"] = layer.weight.detach().cpu().contiguous()
        if layer.bias is not None:
            tensors[f"{prefix}.bias"] = layer.bias.detach().cpu().contiguous()
    library: Any = safetensors.torch  # which tells no types
    library.save_file(tensors, folder / HEAD_FILE, {"format": "pt"})


def vocabulary_head(output: torch.nn.Linear, positive: int, negative: int) -> LayerHead:
    """The two rows of an output embedding, the positive token's first; gradients flow into it."""
    rows = [positive, negative]
    untyped: Any = output  # its type forgets that the bias may be missing
    bias: Tensor | None = untyped.bias
    return LayerHead((Layer(output.weight[rows].float(), None if bias is None else bias[rows].float()),))


def token_logprobs(hidden: Tensor, output: torch.nn.Linear, targets: Tensor) -> Tensor:
    """log softmax(hidden W^T + b)[targets] in fp32, a block of positions at a time.

    Args:
        hidden: (N, H).
        output: the output embedding.
        targets: (N,) int64.

    Returns:
        (N,) fp32.
    """
    parts: list[Tensor] = []
    for start in range(0, len(targets), _POSITIONS):
        block = slice(start, start + _POSITIONS)
        logits = output(hidden[block]).float()
        chosen = logits.gather(1, targets[block, None]).squeeze(1)
        parts.append(chosen - logits.logsumexp(dim=1))
    return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=torch.float32)


def activate(logits: Tensor, convention: Convention) -> Tensor:
    """(N, C) logits -> (N,) values in the convention's range."""
    positive = 0 if convention.head == "vocabulary" else convention.positive_index
    match convention.activation:
        case "none":
            return logits.squeeze(1)
        case "sigmoid":
            return logits.squeeze(1).sigmoid()
        case "softmax":
            return _probability(logits, positive, convention.negative_index)
        case "difference":
            return 2 * _probability(logits, positive, convention.negative_index) - 1


def _probability(logits: Tensor, positive: int, negative: int | None) -> Tensor:
    shares = logits.softmax(dim=1)
    return shares[:, positive] if negative is None else 1 - shares[:, negative]


def _check_shapes(folder: Path, convention: Convention, weights: Sequence[Tensor], width: int) -> None:
    needed = 1 if convention.head == "scalar" else None
    classes = len(weights[-1])
    if any(after.shape[1] != len(before) for before, after in pairwise(weights)):
        raise ConfigError(
            f"{folder}: the layers of the head {convention.head_name} do not fit together (weights of "
            f"{', '.join(str(tuple(weight.shape)) for weight in weights)}): expected the whole head"
        )
    if weights[0].shape[1] != width:
        raise ConfigError(
            f"{folder}: the head {convention.head_name} takes {weights[0].shape[1]} numbers, the backbone "
            f"gives {width}: expected the head of this backbone"
        )
    highest = max(1, convention.positive_index, convention.negative_index or 0)
    if (needed is not None and classes != needed) or (needed is None and not highest < classes <= 16):
        expected = "1" if needed else f"{highest + 1} to 16"
        raise ConfigError(
            f"{folder}: the head {convention.head_name} gives {classes} numbers, head={convention.head} "
            f"needs {expected}: choose the convention that this model was trained in"
        )


def _read_tensors(folder: Path, prefix: str) -> Mapping[str, Tensor]:
    """The tensors of a head, from the checkpoint that transformers loads, else from one file beside it.

    Other files, such as those of an earlier checkpoint, count for nothing where the checkpoint has the head.
    """
    found = {
        file.name: {
            key.removeprefix(prefix): tensors.get_tensor(key).float()
            for key in tensors.keys()  # noqa: SIM118 (not a mapping)
            if key.startswith(prefix)
        }
        for file, tensors in open_tensors(folder)
    }
    holding = [name for name, tensors in found.items() if tensors]
    checkpoint = _checkpoint_files(folder)
    own = [name for name in holding if name in checkpoint]
    beside = [name for name in holding if name not in checkpoint]
    doubled = sum(len(found[name]) for name in own) > len({key for name in own for key in found[name]})
    if doubled or (own and HEAD_FILE in beside) or (not own and len(beside) > 1):
        raise ConfigError(
            f"{folder}: {' and '.join(holding)} each have a head {prefix.removesuffix('.')}: expected one; "
            "take the files away that are not this model's"
        )
    return {key: tensor for name in own or beside for key, tensor in found[name].items()}


def _checkpoint_files(folder: Path) -> frozenset[str]:
    """The names of the files that transformers loads: model.safetensors, or the shards of an index."""
    if (folder / "model.safetensors").exists():
        return frozenset({"model.safetensors"})
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return frozenset()
    try:
        return frozenset(map(str, json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(f"{index}: is damaged ({error}): copy or download it again, whole") from error


def _head_names(folder: Path) -> str:
    """Tensors outside of the layers, for a message."""
    names = {
        key
        for _, tensors in open_tensors(folder)
        for key in tensors.keys()  # noqa: SIM118 (not a mapping)
        if "layers." not in key
    }
    return "it has " + (", ".join(sorted(names)[:8]) or "nothing but layers")
