"""The learned component of a reward: found in a configuration, and pointed at other weights.

A component whose weights nobody gave has the path FITTED: the training program fits them itself before the
first step. Plain values only, importable without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewards.config import RewardConfig
from rewards.models.conventions import Kind

FITTED = "fitted"
"""The path of a reward model that this run fits from its own policy."""

KIND_OF: Mapping[str, Kind] = {
    "rewards.models.outcome.OutcomeScorer": "outcome",
    "rewards.models.process.ProcessScorer": "process",
}
"""The classes that pay what a reward model says."""


@dataclass(frozen=True, slots=True)
class LearnedPart:
    """A component paid by a reward model.

    name: the component's. settings: those of `rewards.models.settings.ModelSettings`, as plain values.
    """

    name: str
    kind: Kind
    settings: Mapping[str, Any]

    @property
    def is_fitted_here(self) -> bool:
        """Whether its weights come from this run's own policy."""
        return self.settings["path"] == FITTED


def learned_parts(reward: RewardConfig) -> list[LearnedPart]:
    """The components of a reward that a reward model pays, in order."""
    return [
        LearnedPart(name, KIND_OF[component.scorer["_target_"]], component.scorer["model"])
        for name, component in reward.components.items()
        if component.scorer.get("_target_") in KIND_OF
    ]


def with_weights(reward: RewardConfig, name: str, folder: Path) -> RewardConfig:
    """The reward with the weights of a component taken from a folder, as `rewards.models.fitting` leaves it.

    It tells its convention itself, and holds the reference model where there is one.
    """
    component = reward.components[name]
    model = component.scorer["model"] | {"path": str(folder), "convention": None}
    if model["reference"] is not None:
        model["reference"] = str(folder / "reference")
    other = replace(component, scorer=component.scorer | {"model": model})
    return replace(reward, components=reward.components | {name: other})
