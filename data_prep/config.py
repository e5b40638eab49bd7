"""The schema of conf/data_prep.yaml, where every setting is explained; loads neither torch nor datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from data_prep.drops import OnError
from rewards.errors import ConfigError
from rewards.labelled import SETS
from rewards.options import MISSING, option
from rewards.step_estimates import Method, Repair
from rewards.steps import STRATEGIES
from rewards.types import ANSWER_TYPES

PROBLEM_SETS = ("gsm8k", "math", "jsonl")
"""Rows become problems."""
STEP_LABELS = "step_labels"
"""Problems or completions become labelled steps, by completions of a model."""
DATASETS = ("arithmetic", *PROBLEM_SETS, *SETS, STEP_LABELS)
WITHOUT_HUB = ("jsonl", "gsm8k_solutions", "prm800k", "preference", STEP_LABELS)
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
class StepLabelsConfig:
    """How dataset=step_labels asks a model for completions, and what it makes of them."""

    model: str | None = MISSING
    solutions: int = option(at_least=1)
    method: str = option(*get_args(Method))
    completions: int = option(at_least=1)
    wave: int = option(at_least=1)
    width: float = option(at_least=0.0, at_most=0.9999)
    repair: str = option(*get_args(Repair))
    confidence: float = option(above=0.0, at_most=0.9999)
    strategy: str = option(*STRATEGIES)
    budget: int | None = option(at_least=0)
    max_tokens: int = option(at_least=1)
    temperature: float = option(above=0.0)
    rows: int = option(at_least=1)
    part: int = option(at_least=1)
    dtype: str = option("fp32", "bf16", "fp16")
    device: str = MISSING


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
    on_error: str = option(*get_args(OnError))
    evaluation: list[str] = field(default_factory=list[str])
    seed: int = option(at_least=0)
    arithmetic: ArithmeticConfig = field(default_factory=ArithmeticConfig)
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    labelled: LabelledConfig = field(default_factory=LabelledConfig)
    step_labels: StepLabelsConfig = field(default_factory=StepLabelsConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])


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
    if config.dataset == STEP_LABELS:
        _check_step_labels(config)
    if not all(config.fields.prompt.split("+")):
        raise ConfigError(f"fields.prompt={config.fields.prompt}: expected NAME or NAME+NAME")


def _check_step_labels(config: DataPrepConfig) -> None:
    if config.step_labels.model is None:
        raise ConfigError("step_labels.model: dataset=step_labels needs a model: a folder or a hub name")
    if not config.output.endswith(".jsonl"):
        raise ConfigError(
            f"output={config.output}: expected a name ending in .jsonl, since it is appended to"
        )
    if config.step_labels.repair != "none" and config.step_labels.method != "hard":
        raise ConfigError(f"step_labels.repair={config.step_labels.repair}: is for step_labels.method=hard")
    if config.step_labels.width and config.step_labels.method != "soft":
        raise ConfigError(
            f"step_labels.width={config.step_labels.width:g}: is for step_labels.method=soft; "
            f"{config.step_labels.method} stops at the first right completion"
        )
