"""The schema of conf/data_prep.yaml, where every setting is explained; loads neither torch nor datasets."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewards.errors import ConfigError
from rewards.options import MISSING, option
from rewards.types import ANSWER_TYPES

PROBLEM_SETS = ("gsm8k", "math", "jsonl")
"""Rows become problems."""
LABELLED_SETS = ("gsm8k_solutions", "prm800k", "math_shepherd", "processbench", "preference")
"""Rows become labelled completions."""
DATASETS = ("arithmetic", *PROBLEM_SETS, *LABELLED_SETS)
WITHOUT_HUB = ("jsonl", "gsm8k_solutions", "prm800k", "preference")
"""Sets without a place of their own on the hub, or with several."""


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
class LabelledConfig:
    """How sets of labelled completions are read."""

    alternatives: bool = option()
    rated_margin: bool = option()


@dataclass
class DataPrepConfig:
    """The whole."""

    dataset: str = option(*DATASETS)
    output: str = MISSING
    source: str | None = MISSING
    subset: str | None = MISSING
    split: str = MISSING
    limit: int | None = option(at_least=1)
    answer_type: str | None = option(*ANSWER_TYPES)
    evaluation: list[str] = field(default_factory=list[str])
    seed: int = option(at_least=0)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    labelled: LabelledConfig = field(default_factory=LabelledConfig)


def check(config: DataPrepConfig) -> None:
    """Refuses settings that contradict each other.

    Raises:
        ConfigError: naming the setting and the remedy.
    """
    if config.dataset == "arithmetic":
        if config.source is not None:
            raise ConfigError(f"source={config.source}: dataset=arithmetic is made on the spot, leave it out")
        if config.evaluation:
            raise ConfigError(
                "evaluation: dataset=arithmetic parts its own evaluation sums off, leave it out"
            )
    elif config.source is None and config.dataset in WITHOUT_HUB:
        raise ConfigError(f"source: dataset={config.dataset} needs source=FILE or the name of a hub set")
    if config.answer_type is not None and config.dataset not in PROBLEM_SETS:
        raise ConfigError(f"answer_type={config.answer_type}: dataset={config.dataset} has no golds")
    if not all(config.fields.prompt.split("+")):
        raise ConfigError(f"fields.prompt={config.fields.prompt}: expected NAME or NAME+NAME")
