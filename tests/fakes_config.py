"""Scorers and programs for the tests of configuration: small, real, and importable by a dotted path."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rewards.config import SCORER, ScorerConfig, hydra_entry
from rewards.errors import ConfigError, DataError
from rewards.format import FormatSpec
from rewards.types import Reason, Sample, Score


@dataclass(frozen=True)
class Constant:
    """Scores every sample alike."""

    value: float
    format: FormatSpec = field(default_factory=FormatSpec)
    mode: Literal["plain", "fancy"] = "plain"
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.value > 1:
            raise ConfigError(f"value={self.value}: expected <= 1")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [Score.scored(self.value, Reason.MODEL) for _ in samples]


@hydra_entry(SCORER)
def main(settings: ScorerConfig) -> None:
    """Prints what it was given; a weight of 13 is bad data."""
    components = settings.reward.components
    if any(component.weight == 13 for component in components.values()):
        raise DataError("problems.jsonl: line 3: no gold")
    if any(component.weight == 99 for component in components.values()):
        raise RuntimeError("a bug")
    print("ran", {name: component.weight for name, component in components.items()}, "torch" in sys.modules)


if __name__ == "__main__":
    main()
