"""What the rewards whose yaml leaves a value open (`???`) are given in tests.

A new reward of that kind has an entry in REWARD_NEEDS, and in reward_overrides where the value must exist.
"""

from __future__ import annotations

from pathlib import Path

from tiny_reward_models import tiny_folder

PRESET_OF = {"orm": "skywork-reward", "prm": "qwen2.5-math-prm"}
"""The learned rewards, and the public model whose convention the contract test gives to each."""
LEARNED = frozenset(PRESET_OF)
REWARD_NEEDS = {name: [f"reward.components.{name}.scorer.model.path=some/model"] for name in PRESET_OF}
"""Overrides with which each composes; nothing is loaded."""


def reward_overrides(reward: str, folder: Path) -> list[str]:
    """Overrides with which a reward can also score: a tiny random model is made in the folder."""
    if reward not in PRESET_OF:
        return []
    place = f"reward.components.{reward}.scorer.model"
    preset = PRESET_OF[reward]
    return [
        f"{place}.path='{tiny_folder(preset, folder / 'model')}'",
        f"{place}.convention={preset}",
        f"{place}.device=cpu",
        f"{place}.max_length=256",
    ]
