"""The schema of conf/data_prep.yaml, where every setting is explained; loads neither torch nor datasets."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewards.errors import ConfigError
from rewards.options import MISSING, option
from rewards.types import ANSWER_TYPES


@dataclass
class ArithmeticConfig:
    """What dataset=arithmetic draws; `data_prep.arithmetic.ArithmeticSettings` checks it as a whole."""

    max_operand: int = option(at_least=1)
    terms: int = option(at_least=2, at_most=8)
    train_size: int = option(at_least=1)
    eval_size: int = option(at_least=1)
    coldstart_size: int = option(at_least=0)
    slip_rate: float = option(at_least=0.0, at_most=1.0)


@dataclass
class FieldsConfig:
    """Names of the fields of dataset=jsonl."""

    prompt: str = MISSING
    gold: str = MISSING
    gold_style: str = option("plain", "hashes", "boxed")
    id: str | None = MISSING


@dataclass
class DataPrepConfig:
    """The whole."""

    dataset: str = option("arithmetic", "gsm8k", "math", "jsonl")
    output: str = MISSING
    source: str | None = MISSING
    subset: str | None = MISSING
    split: str = MISSING
    limit: int | None = option(at_least=1)
    answer_type: str | None = option(*ANSWER_TYPES)
    seed: int = option(at_least=0)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)


def check(config: DataPrepConfig) -> None:
    """Refuses settings that contradict each other.

    Raises:
        ConfigError: naming the setting and the remedy.
    """
    if config.dataset == "arithmetic" and config.source is not None:
        raise ConfigError(f"source={config.source}: dataset=arithmetic is made on the spot, leave source out")
    if config.dataset == "jsonl" and config.source is None:
        raise ConfigError("source: dataset=jsonl needs source=FILE or the name of a hub set")
    if not all(config.fields.prompt.split("+")):
        raise ConfigError(f"fields.prompt={config.fields.prompt}: expected NAME or NAME+NAME")
