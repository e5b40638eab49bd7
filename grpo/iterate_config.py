"""The settings of Algorithm 1, the loop around the steps: the schema of conf/iterate, and its checks.

Importable without torch. Values come from the yaml files alone, where each is explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from grpo.learned import FITTED, learned_parts
from rewards.config import RewardConfig
from rewards.options import option
from rewards.steps import STRATEGIES


@dataclass
class ReferenceConfig:
    """When the reference of the KL becomes the policy."""

    follow: str = option("never", "round", "steps", "ema")
    every: int | None = option(at_least=1)
    decay: float | None = option(above=0, at_most=1)


@dataclass
class ReplayConfig:
    """What is kept of past rounds, and how it is drawn (see rewards.replay.ReplaySettings)."""

    capacity: int | None = option(at_least=1)
    eviction: str = option("age", "reservoir")
    spread: str = option("rounds", "samples")
    per_question: int = option(at_least=1)


@dataclass
class FirstFitConfig:
    """The fit of a reward model that the run starts without."""

    problems: int = option(at_least=2)
    samples: int = option(at_least=2)
    learning_rate: float = option(above=0)
    epochs: int = option(at_least=1)
    strategy: str = option(*STRATEGIES)
    step_join: str = option()


@dataclass
class RefitConfig:
    """How the reward model keeps up with its policy."""

    refit: str = option("off", "round", "gap")
    gap: float | None = option(above=0, at_most=1)
    examples: int = option(at_least=2)
    history_share: float = option(at_least=0, at_most=0.9)
    heldout_share: float = option(above=0, at_most=0.5)
    tolerance: float = option(at_least=0, at_most=1)
    learning_rate: float = option(above=0)
    epochs: int = option(at_least=1)
    batch_size: int = option(at_least=1)
    completions: int = option(at_least=1)
    probes: int = option(at_least=1)
    first: FirstFitConfig = field(default_factory=FirstFitConfig)


@dataclass
class IterateConfig:
    """The schema of the node `iterate`, which is null where there is no outer loop."""

    steps: int = option(at_least=1)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    reward_model: RefitConfig = field(default_factory=RefitConfig)


def iterate_problems(
    iterate: IterateConfig | None, reward: RewardConfig, *, steps: int, kl: float
) -> Iterator[str]:
    """One line for every setting that contradicts another or would have no effect.

    Args:
        iterate: the node.
        reward: what is paid.
        steps: of the run.
        kl: the coefficient of the KL to the reference.
    """
    fitted = [part.name for part in learned_parts(reward) if part.is_fitted_here]
    if iterate is None:
        for name in fitted:
            yield (
                f"reward.components.{name}.scorer.model.path={FITTED}: only a run with an outer loop fits "
                "its reward model; choose iterate=deepseekmath, or give a folder or a hub name"
            )
        return
    if iterate.steps > steps:
        yield f"iterate.steps={iterate.steps}: expected at most steps={steps}, no round would end"
    yield from _reference_problems(iterate.reference, kl)
    yield from _refit_problems(iterate.reward_model, reward)


def _reference_problems(reference: ReferenceConfig, kl: float) -> Iterator[str]:
    follow, every, decay = reference.follow, reference.every, reference.decay
    if follow != "never" and kl == 0:
        yield (
            f"iterate.reference.follow={follow}: algorithm.kl_coefficient=0 compares with no reference; set "
            "algorithm.kl_coefficient=0.04, or iterate.reference.follow=never"
        )
    if (follow == "steps") != (every is not None):
        yield f"iterate.reference.every={every}: expected a number of steps exactly with follow=steps"
    if (follow == "ema") != (decay is not None) or decay == 1:
        yield f"iterate.reference.decay={decay}: expected a number below 1 exactly with follow=ema"


def _refit_problems(settings: RefitConfig, reward: RewardConfig) -> Iterator[str]:
    learned = [part.name for part in learned_parts(reward)]
    if (settings.refit == "gap") != (settings.gap is not None):
        yield f"iterate.reward_model.gap={settings.gap}: expected a number exactly with refit=gap"
    if settings.refit != "off" and not learned:
        yield (
            f"iterate.reward_model.refit={settings.refit}: no reward model pays here; choose reward=orm, or "
            "set iterate.reward_model.refit=off"
        )
    if len(learned) > 1:
        yield (
            f"reward.components: {', '.join(learned)} are all learned; an outer loop trains one reward "
            "model: leave the others out"
        )
