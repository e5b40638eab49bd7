"""The settings of `python -m rewards.score`: the schema of conf/score.yaml. Loads no scorer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rewards.columns import Fields
from rewards.config import Program, RewardConfig
from rewards.errors import ConfigError
from rewards.options import option


@dataclass
class FieldsConfig:
    """The node `fields`: names of the fields of an input record."""

    completion: str = option()
    gold: str = option()
    prompt: str = option()
    id: str = option()
    prefill: str = option()
    truncated: str = option()
    answer_type: str = option()

    def names(self) -> Fields:
        """The names as the record that scoring works with."""
        return Fields(
            completion=self.completion,
            gold=self.gold,
            prompt=self.prompt,
            id=self.id,
            prefill=self.prefill,
            truncated=self.truncated,
            answer_type=self.answer_type,
        )


@dataclass
class ScoreConfig:
    """The schema of conf/score.yaml, where each key is explained."""

    input: str = option()
    output: str = option()
    overwrite: bool = option()
    on_error: str = option("stop", "skip")
    limit: int | None = option(at_least=1)
    workers: int = option(at_least=1)
    engine: str = option("local", "ray")
    max_failed_share: float = option(at_least=0, at_most=1)
    compare: str | None = option()
    fields: FieldsConfig = field(default_factory=FieldsConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])


def check(config: ScoreConfig) -> None:
    """Raises ConfigError for settings that cannot be kept together."""
    if config.output == config.input and config.output != "-":
        raise ConfigError(f"output={config.output}: is the input; give another name")
    if config.output != "-" and not config.output.endswith(".jsonl"):
        raise ConfigError(
            f"output={config.output}: expected a name ending in .jsonl (it is appended to), or - for stdout"
        )
    if config.engine == "ray" and config.input == "-":
        raise ConfigError("engine=ray: input=- cannot be read elsewhere; give a file all machines can read")
    if config.compare is not None and "-" in (config.input, config.output):
        raise ConfigError("compare: needs input and output to be files, because both are read again")


SCORE = Program("score", ScoreConfig, check)
