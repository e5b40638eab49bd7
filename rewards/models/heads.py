"""Hidden states at the read positions -> logits -> values, always in fp32.

Knows the layers that stand on a backbone and the activations of conventions; knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional

from rewards.errors import ConfigError
from rewards.models.conventions import Convention

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
    name = convention.head_name
    tensors = _read_tensors(folder, name + ".")
    numbers = sorted({int(key.split(".")[0]) for key in tensors if key.split(".")[0].isdecimal()})
    prefixes = [f"{number}." for number in numbers] or [""]
    layers: list[Layer] = []
    for prefix in prefixes:
        weight = tensors.get(prefix + "weight")
        if weight is None or weight.ndim != 2:
            raise ConfigError(
                f"{folder}: the checkpoint has no head {name}.{prefix}weight: the model was saved without "
                f"its head, or its head has another name ({_head_names(folder)}); set head_name"
            )
        layers.append(Layer(weight, tensors.get(prefix + "bias")))
    _check_shapes(folder, convention, [layer.weight for layer in layers], width)
    return LayerHead(tuple(layers))


def vocabulary_head(output: torch.nn.Linear, positive: int, negative: int) -> LayerHead:
    """The two rows of an output embedding, the positive token's first."""
    rows = [positive, negative]
    untyped: Any = output  # its type forgets that the bias may be missing
    bias: Tensor | None = untyped.bias
    return LayerHead(
        (Layer(output.weight.detach()[rows].float(), None if bias is None else bias.detach()[rows].float()),)
    )


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
            return logits.softmax(dim=1)[:, positive]
        case "difference":
            return 2 * logits.softmax(dim=1)[:, positive] - 1


def _check_shapes(folder: Path, convention: Convention, weights: Sequence[Tensor], width: int) -> None:
    needed = 1 if convention.head == "scalar" else None
    classes = len(weights[-1])
    if weights[0].shape[1] != width:
        raise ConfigError(
            f"{folder}: the head {convention.head_name} takes {weights[0].shape[1]} numbers, the backbone "
            f"gives {width}: expected the head of this backbone"
        )
    if (needed is not None and classes != needed) or (
        needed is None and not max(1, convention.positive_index) < classes <= 16
    ):
        expected = "1" if needed else f"2 to 16, more than positive_index={convention.positive_index}"
        raise ConfigError(
            f"{folder}: the head {convention.head_name} gives {classes} numbers, head={convention.head} "
            f"needs {expected}: choose the convention that this model was trained in"
        )


def _read_tensors(folder: Path, prefix: str) -> Mapping[str, Tensor]:
    return {
        key.removeprefix(prefix): file.get_tensor(key).float()
        for file in _open_all(folder)
        for key in file.keys()  # noqa: SIM118 (not a mapping)
        if key.startswith(prefix)
    }


def _head_names(folder: Path) -> str:
    """Tensors outside of the layers, for a message."""
    names = {key for file in _open_all(folder) for key in file.keys() if "layers." not in key}  # noqa: SIM118
    return "it has " + ", ".join(sorted(names)[:8]) if names else "it has no *.safetensors"


def _open_all(folder: Path) -> Iterator[Any]:
    opening: Any = safe_open  # the library tells no types
    for file in sorted(folder.glob("*.safetensors")):
        with opening(file, framework="pt") as tensors:
            yield tensors
