"""Builds everything a run needs from its configuration: the one place where settings become objects.

Classes below it take plain values and never see the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from grpo.collect import Collector
from grpo.config import TrainConfig
from grpo.data import ProblemOrder, RunData, load_run_data
from grpo.evaluation import Judges
from grpo.learners import Learners, make_learners
from grpo.loop import GrpoLoop
from grpo.models import load_policy
from grpo.policy import Policy
from grpo.prepared import cache_folder
from grpo.prompt import EncodedPrompt, encode_prompts
from grpo.rollout.local import LocalEngine, pad_id
from grpo.rollout.saved import Recorder, SavedRollouts, check_rollouts
from rewards.build import build, build_scorer
from rewards.errors import ConfigError, DataError
from rewards.format import FormatSpec
from rewards.scorer import Scorer
from rewards.types import Problem
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.think_format import ThinkFormatVerifier


@dataclass(frozen=True, slots=True)
class Materials:
    """What is loaded before anything is trained.

    A dry run stops here. notes: for the user, one sentence each.
    """

    spec: FormatSpec
    policy: Policy
    tokenizer: PreTrainedTokenizerBase
    scorer: Scorer
    judges: Judges
    data: RunData
    train_prompts: tuple[EncodedPrompt, ...]
    heldout_prompts: tuple[EncodedPrompt, ...]
    notes: tuple[str, ...]


def make_accelerator(config: TrainConfig) -> Accelerator:
    """Accelerate's view of the machine: one process is the case of one rank."""
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={config.device}: no CUDA device here; use device=auto or device=cpu")
    return Accelerator(
        cpu=config.device == "cpu",
        mixed_precision="bf16" if config.model.precision == "bf16" else "no",
        log_with=list(config.log.trackers) or None,
    )


def gather_materials(config: TrainConfig) -> Materials:
    """Loads data, tokenizer, model and scorers; checks them against each other.

    Raises:
        ConfigError, DataError: naming the option or the row and the fix.
    """
    if config.rollout.replay is not None:
        check_rollouts(Path(config.rollout.replay), 1, config.steps)
    spec: FormatSpec = build(config.format)
    scorer = build_scorer(config.reward)
    data = load_run_data(config.data, config.seed, cache_folder())
    loaded = load_policy(
        config.model,
        spec,
        temperature=config.rollout.temperature,
        seed=config.seed,
        entropy_gradient=config.algorithm.entropy_coefficient > 0,
    )
    train, train_notes = _encode(
        data.train, "training", loaded.tokenizer, spec, config.data.max_prompt_tokens
    )
    heldout, heldout_notes = _encode(
        data.evaluation, "held-out", loaded.tokenizer, spec, config.data.max_prompt_tokens
    )
    ProblemOrder(config.seed, len(train)).batch(
        0, config.rollout.prompts_per_step
    )  # refuses too few problems
    return Materials(
        spec,
        loaded.policy,
        loaded.tokenizer,
        scorer,
        Judges(AccuracyVerifier(spec), ThinkFormatVerifier(spec)),
        data,
        train,
        heldout,
        (*data.faults, *loaded.notes, *train_notes, *heldout_notes),
    )


def _encode(
    problems: Sequence[Problem],
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    spec: FormatSpec,
    max_tokens: int,
) -> tuple[tuple[EncodedPrompt, ...], list[str]]:
    kept, too_long = encode_prompts(problems, tokenizer, spec, max_tokens=max_tokens)
    if not kept:
        raise DataError(
            f"all {len(problems)} {name} prompts are longer than data.max_prompt_tokens={max_tokens}: "
            f"raise it (the first has {len(too_long[0].ids)} tokens)"
        )
    note = f"{len(too_long)} of {len(problems)} {name} prompts left out: over {max_tokens} tokens"
    return tuple(kept), [f"{note} (data.max_prompt_tokens)"] if too_long else []


@dataclass(frozen=True, slots=True)
class Session:
    """A run ready to step. engine: samples held-out problems. recorder: holds what the last step sampled."""

    loop: GrpoLoop
    engine: LocalEngine
    recorder: Recorder
    learners: Learners
    order: ProblemOrder
    reserve: ProblemOrder


def make_session(config: TrainConfig, materials: Materials, accelerator: Accelerator) -> Session:
    """Engine, learners and loop around the policy as it is now (after any cold start)."""
    policy = materials.policy.to(accelerator.device)
    engine = LocalEngine(policy, materials.tokenizer, decode_rows=config.rollout.decode_rows)
    learners = make_learners(
        config, policy, accelerator, decode=engine.decode, pad=pad_id(materials.tokenizer)
    )
    replay = config.rollout.replay
    recorder = Recorder(engine if replay is None else SavedRollouts(Path(replay), engine.decode))
    collector = Collector(
        recorder,
        materials.scorer,
        seed=config.seed,
        group_size=config.rollout.group_size,
        max_tokens=config.rollout.max_completion_tokens,
        extra_rounds=config.algorithm.dynamic_sampling_rounds,
    )
    loop = GrpoLoop(
        collector, learners.advantager, learners.updater, max_failed_share=config.max_failed_share
    )
    order = ProblemOrder(config.seed, len(materials.train_prompts))
    reserve = ProblemOrder(config.seed, len(materials.train_prompts), "reserve")
    return Session(loop, engine, recorder, learners, order, reserve)
