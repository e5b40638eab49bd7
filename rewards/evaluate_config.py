"""The settings of `python -m rewards.evaluate`: the schema of conf/measure.yaml. Loads no scorer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from rewards.aggregate import AGGREGATIONS
from rewards.build import build, check_reward
from rewards.config import Program, RewardConfig, lend_model
from rewards.errors import ConfigError
from rewards.evaluation.files import stem
from rewards.evaluation.settings import PROTOCOLS
from rewards.options import MISSING, option


@dataclass
class EstimateConfig:
    """The node `estimate`: how intervals are made."""

    level: float = option(above=0)
    resamples: int = option(at_least=1)
    seed: int = option(at_least=0)


@dataclass
class EvaluationFieldsConfig:
    """The node `fields`: names of the fields of an input line; null finds them."""

    question: str | None = option()
    prompt: str | None = option()
    gold: str | None = option()
    completion: str | None = option()
    score: str | None = option()
    correct: str | None = option()
    answer: str | None = option()
    steps: str | None = option()
    values: str | None = option()
    labels: str | None = option()
    chosen: str | None = option()
    rejected: str | None = option()
    chosen_score: str | None = option()
    rejected_score: str | None = option()
    subset: str | None = option()

    def names(self) -> dict[str, str | None]:
        """The names by role."""
        return asdict(self)


@dataclass
class EvaluationConfig:
    """The schema of conf/measure.yaml, where each key is explained."""

    protocol: str = option(*PROTOCOLS)
    input: Any = field(default=MISSING)
    scores: str | None = option()
    output: str | None = option()
    limit: int | None = option(at_least=1)
    right: str = option("auto", "field", "first", "verify")
    aggregation: str | None = option(*AGGREGATIONS)
    ties: str = option("share", "first", "lose")
    scale: str = option("auto", "logit", "probability")
    threshold: float = option()
    threshold_set: str | None = option()
    bins: int = option(at_least=1)
    draws: int = option(at_least=1)
    estimate: EstimateConfig = field(default_factory=EstimateConfig)
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    fields: EvaluationFieldsConfig = field(default_factory=EvaluationFieldsConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])

    def paths(self) -> tuple[str, ...]:
        """The input files."""
        return (self.input,) if isinstance(self.input, str) else tuple(cast("list[str]", self.input))

    def has_scorer(self) -> bool:
        """Whether completions are scored, rather than scores read."""
        return self.model["path"] is not None or bool(self.reward.components)


def check(config: EvaluationConfig) -> None:
    """Refuses settings that cannot be kept together.

    Raises:
        ConfigError: one line for each, with the remedy.
    """
    problems: list[str] = []
    given: object = config.input
    entries = cast("list[object]", given) if isinstance(given, list) else [given]
    if not entries or not all(isinstance(entry, str) and entry for entry in entries):
        problems.append(f"input={given}: expected a file, or files as [a.jsonl,b.jsonl]")
    elif len(stems := [stem(path) for path in config.paths()]) > len(set(stems)):
        problems.append(f"input={given}: files of one name: they are told apart by it")
    if config.estimate.level >= 1:
        problems.append(f"estimate.level={config.estimate.level:g}: expected below 1, such as 0.95")
    models = [component.scorer.get("model") for component in config.reward.components.values()]
    if config.model["path"] is not None and models and config.model not in models:
        problems.append(
            f"model.path={config.model['path']}: the reward given too needs no model: leave out one of both"
        )
    if config.scores is not None:
        problems += [f"scores={config.scores}: {fault}" for fault in _score_file_faults(config)]
    if config.threshold_set is not None and config.protocol != "processbench":
        problems.append(f"threshold_set={config.threshold_set}: only protocol=processbench has sets")
    if problems:
        raise ConfigError("\n".join(problems))
    build(config.format, "format")
    if config.model["path"] is not None:
        build(config.model, "model")
    if config.reward.components:
        check_reward(config.reward)


def _score_file_faults(config: EvaluationConfig) -> Iterator[str]:
    if config.protocol not in ("best_of_n", "auc", "calibration"):
        yield f"protocol={config.protocol} reads no score file"
    if config.has_scorer():
        yield "the completions would be scored anew: leave out model.path and reward"
    if not isinstance(config.input, str):
        yield "expected one input file"


EVALUATION = Program("measure", EvaluationConfig, check, lend_model)
