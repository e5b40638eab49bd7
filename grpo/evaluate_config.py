"""The settings of `python -m grpo.evaluate`: the schema of conf/evaluate.yaml. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grpo.config import DataConfig, data_problems, place_problems
from rewards.build import build, check_reward
from rewards.config import Program, RewardConfig
from rewards.errors import ConfigError
from rewards.options import option


@dataclass
class MeasuredConfig:
    """The model that is measured."""

    path: str = option()
    precision: str = option("fp32", "bf16")


@dataclass
class SamplingConfig:
    """What is sampled of each problem, beside one greedy completion."""

    samples: int = option(at_least=1)
    temperature: float = option(above=0)
    max_completion_tokens: int = option(at_least=1)
    decode_rows: int = option(at_least=1)


@dataclass
class EstimateConfig:
    """How samples become figures."""

    level: float = option(above=0)
    resamples: int = option(at_least=1)


@dataclass
class EvaluateConfig:
    """The schema of conf/evaluate.yaml, where each key is explained."""

    seed: int = option(at_least=0)
    output_dir: str = option()
    label: str = option()
    device: str = option()
    show: int = option(at_least=0)
    model: MeasuredConfig = field(default_factory=MeasuredConfig)
    data: DataConfig = field(default_factory=DataConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    estimate: EstimateConfig = field(default_factory=EstimateConfig)


def check(config: EvaluateConfig) -> None:
    """Refuses settings that contradict each other.

    Raises:
        ConfigError: one line for each, with the remedy.
    """
    problems = [*data_problems(config.data), *place_problems(config.device, config.label)]
    if config.estimate.level >= 1:
        problems.append(f"estimate.level={config.estimate.level:g}: expected below 1, such as 0.95")
    if problems:
        raise ConfigError("\n".join(problems))
    build(config.format, "format")
    if config.reward.components:
        check_reward(config.reward)


EVALUATE = Program("evaluate", EvaluateConfig, check)
