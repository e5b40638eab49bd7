"""The schema of the node `credit`, explained in conf/credit, and what it asks of the reward.

Importable without torch. What it asks of the algorithm: `grpo.algorithm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewards.build import build
from rewards.config import RewardConfig
from rewards.errors import ConfigError
from rewards.options import option
from rewards.scorer import gives_steps


@dataclass
class CreditConfig:
    """Who gets the advantage: every token of a completion, or each by the steps that end at or after it."""

    source: str = option("outcome", "process", "both")
    form: str | None = option("sum", "mean", "min", "difference")
    baseline: str | None = option("pool", "position")


def credit_problems(credit: CreditConfig) -> Iterator[str]:
    """What is wrong with the node alone."""
    own = {
        "form": (credit.form, "sum, mean, min, difference"),
        "baseline": (credit.baseline, "pool, position"),
    }
    for key, (value, choices) in own.items():
        if credit.source == "outcome" and value is not None:
            yield f"credit.{key}={value}: credit=outcome credits no steps; set credit.{key}=null"
        if credit.source != "outcome" and value is None:
            yield f"credit.{key}=null: credit={credit.source} needs one of {choices}"
    if credit.form == "min" and credit.baseline == "position":
        yield (
            "credit.baseline=position: credit.form=min compares the minima of whole completions; set "
            "credit.baseline=pool"
        )


def check_steps(credit: CreditConfig, reward: RewardConfig) -> None:
    """Refuses a reward whose steps cannot be credited: none, of two components, or of a negative weight.

    Raises:
        ConfigError: with the remedy; or from the constructor of a scorer.
    """
    if credit.source == "outcome":
        return
    names = stepped_components(reward)
    if not names:
        raise ConfigError(
            f"credit={credit.source}: no component of the reward ({', '.join(reward.components)}) gives "
            "steps; add one that does, e.g. reward=verifiable+arithmetic_steps, or set credit=outcome (a "
            "scorer of your own says that it does: gives_steps = True)"
        )
    if len(names) > 1:
        raise ConfigError(
            f"credit={credit.source}: {' and '.join(names)} both give steps, and a token is credited by the "
            f"steps of one component; leave {' or '.join(names)} out of reward, or set credit=outcome"
        )
    weight = reward.components[names[0]].weight
    if weight < 0:
        raise ConfigError(
            f"reward.components.{names[0]}.weight={weight:g}: credit={credit.source} pays its steps, a "
            "negative weight would not turn them round; expected 0 (paid through steps only) or more"
        )


def stepped_components(reward: RewardConfig) -> list[str]:
    """The names of the components that give steps, in order."""
    return [
        name
        for name, component in reward.components.items()
        if gives_steps(build(component.scorer, f"reward.components.{name}.scorer"))
    ]


def credit_notes(credit: CreditConfig, reward: RewardConfig) -> list[str]:
    """What of an accepted configuration decides nothing because tokens are paid by steps alone."""
    if credit.source != "process":
        return []
    (paid,) = stepped_components(reward)
    gate = reward.components[paid].gate
    unpaid = [name for name in reward.components if name not in (paid, gate)]
    notes: list[str] = []
    if gate is not None or unpaid:
        closed = f", and by none where {gate} did not pass" if gate is not None else ""
        others = f"; {', '.join(unpaid)}: logged, not paid" if unpaid else ""
        notes.append(
            f"credit=process: tokens are paid by the steps of {paid} alone{closed}{others}; weights decide "
            "nothing (credit=both pays the whole reward as well)"
        )
    return notes
