"""Which reward model is loaded, and how it runs: validated settings, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewards.errors import ConfigError
from rewards.models.presets import preset

Precision = Literal["fp32", "bf16", "fp16"]
ATTENTION = ("eager", "sdpa", "flash_attention_2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A reward model and the way it is run. Equal settings share one copy of the weights in a process.

    Args:
        path: a local folder or a hub name.
        convention: a name of `rewards.models.presets`; None reads the model folder's own.
        reference: path of the reference model (head=log_ratio only); None takes FOLDER/reference, where the
            convention is the folder's own.
        dtype: of the backbone's weights and arithmetic; the head is always fp32.
        device: auto, cpu, cuda or cuda:N; auto takes an accelerator when there is one.
        attention: eager, sdpa or flash_attention_2; None is the model's default, except that models which
            soft-cap their attention get eager, because sdpa leaves the cap out.
        max_length: most tokens of one input; longer ones keep their first whole steps.
        calibrated: give probabilities by the calibration in the model's folder instead of its own values.
        tokens_per_batch: most tokens, padding included, of one forward pass; at least one input runs. None:
            16,384 on an accelerator, 1,024 on a CPU, where more only pads more and leaves the caches.
    """

    path: str
    convention: str | None = None
    reference: str | None = None
    dtype: Precision = "fp32"
    device: str = "auto"
    attention: str | None = None
    calibrated: bool = False
    max_length: int = 4096
    tokens_per_batch: int | None = None

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("model.path: expected a local folder or a hub name")
        if self.convention is not None:
            named = preset(self.convention)
            if (named.head == "log_ratio") != (self.reference is not None):
                raise ConfigError(
                    f"model.reference={self.reference}: expected a path exactly where the convention "
                    f"compares with a reference model (convention={self.convention}, head={named.head})"
                )
        if self.dtype not in ("fp32", "bf16", "fp16"):
            raise ConfigError(f"model.dtype={self.dtype}: expected fp32, bf16 or fp16")
        kind, _, number = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
            raise ConfigError(f"model.device={self.device}: expected auto, cpu, cuda or cuda:N")
        if self.attention is not None and self.attention not in ATTENTION:
            raise ConfigError(f"model.attention={self.attention}: expected {', '.join(ATTENTION)} or null")
        if self.max_length < 64:
            raise ConfigError(f"model.max_length={self.max_length}: expected 64 tokens or more")
        if self.tokens_per_batch is not None and self.tokens_per_batch < 1:
            raise ConfigError(f"model.tokens_per_batch={self.tokens_per_batch}: expected 1 or more")
