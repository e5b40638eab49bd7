"""Builds the loop around the steps from a configuration: buffer, reference, reward model and its trainer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import gcd
from pathlib import Path
from typing import cast

from accelerate import Accelerator

from grpo.collect import Collector
from grpo.config import TrainConfig, cold_start_hash
from grpo.data import ProblemOrder
from grpo.iterate import FOLDER as REPLAY
from grpo.iterate import Iteration
from grpo.iterate_config import IterateConfig
from grpo.labelling import Labeller, OutcomeLabeller, StepLabeller
from grpo.learned import LearnedPart, learned_parts, with_weights
from grpo.materials import Materials
from grpo.own_reward import OwnReward, own_convention
from grpo.probes import make_probes
from grpo.reference import Follow, Following, FrozenReference, Reference
from grpo.refit import FOLDER as REWARD_MODELS
from grpo.refit import Fit, RewardTrainer
from grpo.rollout.completing import LocalCompleter
from grpo.rollout.local import LocalEngine, Sampling
from rewards.build import build, build_scorer
from rewards.errors import ConfigError
from rewards.models.conventions import Convention
from rewards.models.engine import convention_of
from rewards.models.fit_settings import FitPrecision, FitSettings, LossSettings
from rewards.models.fitting import fit
from rewards.prepared import cache_folder
from rewards.replay import ReplayBuffer, ReplaySettings, is_held_out
from rewards.replay_draw import Spread
from rewards.replay_evict import Eviction
from rewards.step_estimates import StepLabelSettings
from rewards.steps import Strategy


@dataclass(frozen=True, slots=True)
class RoundParts:
    """What of a session the loop around its steps works with.

    engine: samples with the policy. collector: its scorer is the one that pays. reference: of the KL.
    directory: the run's. say: takes a sentence for the log.
    """

    engine: LocalEngine
    collector: Collector
    reference: Reference | None
    directory: Path
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """What of a fit differs between the first one and the later ones."""

    convention: Convention
    learning_rate: float
    epochs: int


def make_iteration(
    config: TrainConfig,
    iterate: IterateConfig,
    materials: Materials,
    parts: RoundParts,
    accelerator: Accelerator,
) -> Iteration:
    """The loop around the steps of a run.

    Raises:
        ConfigError: a reward model would have to be refitted by several processes.
    """
    follow = iterate.reference
    learned = learned_parts(config.reward)
    if learned and _refits(config, iterate) and accelerator.num_processes > 1:
        raise ConfigError(
            f"iterate.reward_model.refit={iterate.reward_model.refit}: a reward model is refitted in a run "
            f"of one process, here are {accelerator.num_processes}: start one, or set "
            "iterate.reward_model.refit=off and watch.on_alarm=warn"
        )
    return Iteration(
        iterate.steps,
        _open_buffer(config.seed, iterate, materials, parts.directory)
        if accelerator.is_main_process
        else None,
        parts.engine.policy,
        parts.reference if isinstance(parts.reference, FrozenReference) else None,
        Following(cast(Follow, follow.follow), follow.every, follow.decay),
        _trainer(config, iterate, materials, parts) if learned else None,
        accelerator,
    )


def with_own_reward(
    config: TrainConfig, materials: Materials, accelerator: Accelerator, say: Callable[[str], None]
) -> Materials:
    """The materials with a reward model fitted on the policy as it is now, where the run was given none.

    Raises:
        ConfigError: there is one to be fitted, and there are several processes, or a policy whose weights
            are partly an adapter's.
    """
    part = next((part for part in learned_parts(config.reward) if part.is_fitted_here), None)
    if part is None or config.iterate is None:
        return materials
    cache = cache_folder() / "reward_models" / _own_reward_hash(config, config.iterate, part)
    if accelerator.num_processes > 1 and not cache.exists():
        raise ConfigError(
            f"reward.components.{part.name}.scorer.model.path: a reward model is fitted in a run of one "
            "process: make one such run (its model is kept for later ones), or give a path"
        )
    if config.model.lora_rank and config.coldstart.steps:
        raise ConfigError(
            f"model.lora_rank={config.model.lora_rank}: what an adapter learned in the cold start cannot be "
            "the start of a reward model; set coldstart.steps=0, or give reward.components."
            f"{part.name}.scorer.model.path"
        )
    if not cache.exists():
        say(f"fitting the reward model {part.name!r} on completions of the policy, judged by the verifier")
    folder = _own_reward(config, config.iterate, materials, part, accelerator).ensure(cache)
    say(f"reward model {part.name!r}: {folder}")
    reward = with_weights(config.reward, part.name, folder)
    return replace(materials, reward=reward, scorer=build_scorer(reward))


def _own_reward(
    config: TrainConfig,
    iterate: IterateConfig,
    materials: Materials,
    part: LearnedPart,
    accelerator: Accelerator,
) -> OwnReward:
    first = iterate.reward_model.first
    convention = own_convention(
        part.kind,
        materials.tokenizer,
        whole_chat=config.model.kind == "hub",
        strategy=cast(Strategy, first.strategy),
        step_join=first.step_join,
    )
    policy = materials.policy.to(accelerator.device)
    engine = LocalEngine(policy, materials.tokenizer, decode_rows=config.rollout.decode_rows)
    count = len(materials.train_prompts)
    chosen = ProblemOrder(config.seed, count, "first_fit").batch(0, min(first.problems, count))
    replay = _replay_settings(config.seed, iterate)
    return OwnReward(
        engine,
        config.model.name if config.coldstart.steps == 0 else None,
        [materials.train_prompts[place] for place in chosen],
        materials.judges.accuracy,
        _labeller(config, iterate, materials, engine, convention),
        _fit(config, iterate, part, Pace(convention, first.learning_rate, first.epochs)),
        Sampling(f"{config.seed}/first_fit", first.samples, config.rollout.max_completion_tokens),
        lambda prompt: is_held_out(prompt, replay),
    )


def _own_reward_hash(config: TrainConfig, iterate: IterateConfig, part: LearnedPart) -> str:
    """12 hexadecimal digits that name what a first fit is made from."""
    settings = iterate.reward_model
    facts = {
        "coldstart": cold_start_hash(config),
        "kind": part.kind,
        "first": asdict(settings.first),
        "heldout_share": settings.heldout_share,
        "batch_size": settings.batch_size,
        "completions": settings.completions if part.kind == "process" else None,
        "sampling": [config.rollout.temperature, config.rollout.max_completion_tokens],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _trainer(
    config: TrainConfig, iterate: IterateConfig, materials: Materials, parts: RoundParts
) -> RewardTrainer:
    settings = iterate.reward_model
    (part,) = learned_parts(materials.reward)
    convention = convention_of(build(part.settings))
    problems = (*materials.data.coldstart, *materials.data.train)
    prefill = materials.train_prompts[0].prefill
    probes = make_probes(problems, materials.spec, prefill, count=settings.probes, seed=config.seed)
    return RewardTrainer(
        part,
        materials.reward,
        settings,
        _labeller(config, iterate, materials, parts.engine, convention),
        _fit(config, iterate, part, Pace(convention, settings.learning_rate, settings.epochs)),
        parts.collector,
        [probe.sample for probe in probes],
        parts.directory / REWARD_MODELS,
        parts.say,
    )


def _fit(config: TrainConfig, iterate: IterateConfig, part: LearnedPart, pace: Pace) -> Fit:
    """Trains as the policy is trained, on inputs as long as the reward model reads."""
    convention, batch = pace.convention, iterate.reward_model.batch_size
    has_steps = convention.kind == "process" and convention.head != "log_ratio"
    settings = FitSettings(
        loss=LossSettings() if has_steps else LossSettings(balance="classes"),
        learning_rate=pace.learning_rate,
        epochs=pace.epochs,
        batch_size=batch,
        micro_batch=gcd(batch, config.optim.micro_batch_rows),
        max_length=part.settings["max_length"],
        precision=cast(FitPrecision, config.model.precision),
        device=str(part.settings["device"]).partition(":")[0],
        gradient_checkpointing=config.model.gradient_checkpointing,
        seed=config.seed,
    )
    return lambda base, train, held_out, target: fit(base, convention, train, held_out, settings, target)


def _labeller(
    config: TrainConfig,
    iterate: IterateConfig,
    materials: Materials,
    engine: LocalEngine,
    convention: Convention,
) -> Labeller:
    if convention.kind == "outcome" or convention.head == "log_ratio":
        return OutcomeLabeller()  # an implicit process reward model is trained on outcomes
    completer = LocalCompleter(
        engine, materials.tokenizer, materials.spec, config.rollout.max_completion_tokens
    )
    labels = StepLabelSettings(method="soft", completions=iterate.reward_model.completions, seed=config.seed)
    return StepLabeller(completer, materials.judges.accuracy, labels, materials.spec, convention.strategy)


def _refits(config: TrainConfig, iterate: IterateConfig) -> bool:
    return iterate.reward_model.refit != "off" or config.watch.on_alarm == "refit"


def _open_buffer(seed: int, iterate: IterateConfig, materials: Materials, directory: Path) -> ReplayBuffer:
    held_out = [problem.prompt for problem in materials.data.evaluation]
    return ReplayBuffer(directory / REPLAY, _replay_settings(seed, iterate), held_out)


def _replay_settings(seed: int, iterate: IterateConfig) -> ReplaySettings:
    replay = iterate.replay
    return ReplaySettings(
        seed,
        replay.capacity,
        cast(Eviction, replay.eviction),
        cast(Spread, replay.spread),
        replay.per_question,
        iterate.reward_model.heldout_share,
    )
