"""The settings of `python -m rewards.fit`: the schema of conf/fit/fit.yaml. Loads no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rewards.config import Program
from rewards.errors import ConfigError
from rewards.labelled import SETS
from rewards.models.conventions import CONVENTION_FILE, Convention, read_convention
from rewards.models.fit_settings import FitSettings, LoraSettings, LossSettings
from rewards.models.presets import preset
from rewards.options import option, suggest

_DEFAULTS = {"orm": "sequence-classifier", "prm": "trl-prm"}
_KINDS = {"orm": "outcome", "prm": "process"}
_ALIKE = (
    "max_length",
    "precision",
    "device",
    "attention",
    "gradient_checkpointing",
    "seed",
    "calibration",
    "checkpoint_every",
)
"""Settings that have the same name here and in `FitSettings`."""


@dataclass
class LossConfig:
    """The node `loss`; `rewards.models.fit_settings.LossSettings` checks it."""

    centring: float = option(at_least=0)
    balance: str = option("none", "classes", "question")
    mean: str = option("step", "sequence")
    after_error: str = option("keep", "mask", "wrong")
    neutral: str = option("right", "wrong", "half", "mask", "class")


@dataclass
class OptimConfig:
    """The node `optim`."""

    learning_rate: float = option(above=0)
    head_learning_rate: float | None = option(above=0)
    epochs: float = option(above=0)
    batch_size: int = option(at_least=1)
    micro_batch: int = option(at_least=1)
    warmup: float = option(at_least=0, at_most=0.99)
    schedule: str = option("linear", "cosine", "constant")
    weight_decay: float = option(at_least=0)
    max_grad_norm: float = option(at_least=0)


@dataclass
class FitConfig:
    """The schema of conf/fit/fit.yaml, where each key is explained."""

    model: str = option("orm", "prm")
    data: str = option()
    source: str | None = option()
    heldout: str | None = option()
    heldout_share: float = option(at_least=0, at_most=0.9)
    base: str = option()
    output: str = option()
    convention: str | None = option()
    beta: float | None = option(above=0)
    device: str = option("auto", "cpu", "cuda")
    precision: str = option("fp32", "bf16")
    attention: str | None = option("eager", "sdpa", "flash_attention_2")
    gradient_checkpointing: bool = option()
    lora_rank: int = option(at_least=0)
    max_length: int = option(at_least=64)
    seed: int = option(at_least=0)
    calibration: str = option("none", "temperature", "platt")
    checkpoint_every: int | None = option(at_least=1)
    trackers: list[str] = field(default_factory=list[str])
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)

    def settings(self, *, progress: bool) -> FitSettings:
        """The settings as the record that training works with."""
        rank = self.lora_rank
        alike = {name: vars(self)[name] for name in _ALIKE}
        return FitSettings(
            **asdict(self.optim),
            **alike,
            loss=LossSettings(**asdict(self.loss)),
            lora=LoraSettings(rank=rank, alpha=2.0 * rank) if rank else None,
            progress=progress,
            trackers=tuple(self.trackers),
        )

    def names_file(self) -> bool:
        """Whether `data` is a file and not the name of a set."""
        return self.data.endswith((".jsonl", ".jsonl.gz", ".parquet")) or Path(self.data).exists()

    def convention_of(self, base: Path | None) -> Convention:
        """The convention named, else the base's own, else that of the kind of model.

        Args:
            base: the folder of the base, None while it is not known.

        Raises:
            ConfigError: for a convention of the other kind, or without the log-ratio that beta is for.
        """
        if self.convention is not None:
            found = preset(self.convention)
        elif base is not None and (base / CONVENTION_FILE).exists():
            found, _ = read_convention(base / CONVENTION_FILE)
        else:
            found = preset(_DEFAULTS[self.model])
        if found.kind != _KINDS[self.model]:
            raise ConfigError(
                f"model={self.model}: the convention {self.convention or f'of base={self.base}'} is of kind "
                f"{found.kind}; expected {_KINDS[self.model]}"
            )
        if self.beta is None:
            return found
        if found.head != "log_ratio":
            raise ConfigError(
                f"beta={self.beta}: has an effect on a log-ratio (convention=implicit-prm) only"
            )
        return replace(found, beta=self.beta)


def check(config: FitConfig) -> None:
    """Raises ConfigError for settings that cannot be kept together; loads nothing."""
    config.settings(progress=False)
    if not config.names_file() and config.data not in SETS:
        raise ConfigError(
            f"data={config.data}: no such file; expected a .jsonl, .jsonl.gz or .parquet file of labelled "
            f"completions, or one of {', '.join(SETS)}{suggest(config.data, SETS)}"
        )
    if config.names_file() and config.source is not None:
        raise ConfigError(f"source={config.source}: is for the name of a set; data={config.data} is a file")
    if config.convention is not None or not Path(config.base).exists():
        config.convention_of(None)


FIT = Program("fit", FitConfig, check, folder="conf.fit")
