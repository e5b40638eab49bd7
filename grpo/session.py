"""Builds everything a run needs from its configuration, with grpo.materials, grpo.learners and grpo.outer.

Only these turn settings into objects; classes below take plain values and never see the configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator

from grpo.collect import Collector, DynamicSampling
from grpo.config import TrainConfig
from grpo.data import ProblemOrder
from grpo.iterate import Iteration
from grpo.learners import Learners, make_learners
from grpo.loop import GrpoLoop
from grpo.materials import Materials, saved_rollouts
from grpo.outer import RoundParts, make_iteration
from grpo.probes import make_probes
from grpo.rollout.local import LocalEngine, pad_id
from grpo.rollout.saved import Recorder
from grpo.watch import Watch, make_watch, needs_start_policy, start_policy
from rewards.errors import ConfigError


def make_accelerator(config: TrainConfig) -> Accelerator:
    """Accelerate's view of the machine: one process is the case of one rank.

    Raises:
        ConfigError: the device is not there, or the processes cannot share a step's prompts.
    """
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={config.device}: no CUDA device here; use device=auto or device=cpu")
    accelerator = Accelerator(
        cpu=config.device == "cpu",
        mixed_precision="bf16" if config.model.precision == "bf16" else "no",
        log_with=list(config.log.trackers) or None,
    )
    check_share(config.rollout.prompts_per_step, accelerator.num_processes)
    return accelerator


def check_share(prompts: int, ranks: int) -> None:
    """Refuses a number of prompts a step that the ranks cannot share equally, whole groups on each."""
    if prompts % ranks == 0:
        return
    below = prompts // ranks * ranks
    choices = f"{below} or {below + ranks}" if below else f"{ranks}"
    raise ConfigError(
        f"rollout.prompts_per_step={prompts}: expected a multiple of the {ranks} processes, each trains on "
        f"equally many whole groups; use {choices}"
    )


@dataclass(frozen=True, slots=True)
class Session:
    """A run ready to step.

    engine: samples held-out problems. recorder: holds what the last step sampled. watch: looks at every step.
    iteration: the loop around the steps, None without one.
    """

    loop: GrpoLoop
    engine: LocalEngine
    recorder: Recorder
    learners: Learners
    order: ProblemOrder
    reserve: ProblemOrder
    watch: Watch
    iteration: Iteration | None


def make_session(
    config: TrainConfig,
    materials: Materials,
    accelerator: Accelerator,
    directory: Path,
    say: Callable[[str], None],
) -> Session:
    """Engine, learners and loops around the policy as it is now (after any cold start).

    Args:
        config: checked.
        materials: loaded from it.
        accelerator: of the run.
        directory: the run's; read where the run was begun before.
        say: takes a sentence for the log.
    """
    policy = materials.policy.to(accelerator.device)
    pad = pad_id(materials.tokenizer)
    engine = LocalEngine(policy, materials.tokenizer, decode_rows=config.rollout.decode_rows)
    start = start_policy(config, policy) if needs_start_policy(config) else None
    learners = make_learners(config, policy, accelerator, decode=engine.decode, pad=pad)
    if start is None and config.watch.kl_rows:
        start = learners.reference
    saved = saved_rollouts(config, materials.tokenizer)
    recorder = Recorder(engine if saved is None else saved)
    rounds = config.algorithm.dynamic_sampling_rounds
    collector = Collector(
        recorder,
        materials.scorer,
        seed=config.seed,
        group_size=config.rollout.group_size,
        max_tokens=config.rollout.max_completion_tokens,
        dynamic=DynamicSampling(rounds, accelerator) if rounds else None,
    )
    loop = GrpoLoop(
        collector, learners.advantager, learners.updater, max_failed_share=config.max_failed_share
    )
    problems = (*materials.data.coldstart, *materials.data.train)
    prefill = materials.train_prompts[0].prefill
    probes = make_probes(
        problems, materials.spec, prefill, count=config.watch.probe_problems, seed=config.seed
    )
    iteration = None
    if config.iterate is not None:
        rounds = RoundParts(engine, collector, learners.reference, directory, say)
        iteration = make_iteration(config, config.iterate, materials, rounds, accelerator)
    return Session(
        loop,
        engine,
        recorder,
        learners,
        ProblemOrder(config.seed, len(materials.train_prompts)),
        ProblemOrder(config.seed, len(materials.train_prompts), "reserve"),
        make_watch(config, start, accelerator, probes=probes, pad=pad),
        iteration,
    )
