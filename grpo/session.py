"""Builds everything a run needs from its configuration: the one place where settings become objects.

Classes below it take plain values and never see the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase, get_scheduler

from grpo.advantage import advantage_settings
from grpo.advantager import GroupAdvantager, GroupSettings
from grpo.assign import credit_plan
from grpo.collect import Collector
from grpo.config import TrainConfig
from grpo.credit import CreditForm
from grpo.data import ProblemOrder, RunData, load_run_data
from grpo.evaluation import Judges
from grpo.loop import GrpoLoop
from grpo.loss import loss_settings
from grpo.models import load_policy
from grpo.penalty import KlPenalty
from grpo.policy import Policy
from grpo.prepared import cache_folder
from grpo.prompt import EncodedPrompt, encode_prompts
from grpo.reference import AdapterReference, FrozenReference, Reference
from grpo.rollout.local import LocalEngine, pad_id
from grpo.rollout.saved import Recorder, SavedRollouts, check_rollouts
from grpo.update import Trainable, Updater, UpdateSettings
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
    trainable: Trainable
    order: ProblemOrder
    reserve: ProblemOrder
    reference: Reference | None


def make_session(config: TrainConfig, materials: Materials, accelerator: Accelerator) -> Session:
    """Optimiser, schedule, reference.

    Engine and loop around the policy as it is now (after any cold start).
    """
    policy = materials.policy.to(accelerator.device)
    algorithm = config.algorithm
    reference = _reference(config, policy)
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=config.optim.learning_rate, weight_decay=config.optim.weight_decay
    )
    names = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
    scheduler = get_scheduler(
        names[config.optim.schedule],
        optimizer,
        num_warmup_steps=config.optim.warmup_steps * algorithm.updates_per_rollout,
        num_training_steps=config.steps * algorithm.updates_per_rollout,
    )
    prepared, optimizer = accelerator.prepare(policy, optimizer)
    trainable = Trainable(prepared, optimizer, scheduler)
    updater = Updater(
        trainable,
        UpdateSettings(
            algorithm.aggregation,
            config.rollout.max_completion_tokens,
            config.optim.micro_batch_rows,
            algorithm.updates_per_rollout,
            config.optim.max_grad_norm,
            keep_silent=algorithm.silent_groups == "keep",
        ),
        loss_settings(algorithm),
        accelerator=accelerator,
        reference=reference if algorithm.kl_in == "loss" else None,
        pad_id=pad_id(materials.tokenizer),
    )
    engine = LocalEngine(policy, materials.tokenizer, decode_rows=config.rollout.decode_rows)
    replay = config.rollout.replay
    recorder = Recorder(engine if replay is None else SavedRollouts(Path(replay), engine.decode))
    collector = Collector(
        recorder,
        materials.scorer,
        seed=config.seed,
        group_size=config.rollout.group_size,
        max_tokens=config.rollout.max_completion_tokens,
        extra_rounds=algorithm.dynamic_sampling_rounds,
    )
    penalty = _penalty(config, reference, pad=pad_id(materials.tokenizer), accelerator=accelerator)
    advantager = GroupAdvantager(
        _group_settings(config), decode=engine.decode, accelerator=accelerator, penalty=penalty
    )
    loop = GrpoLoop(collector, advantager, updater, max_failed_share=config.max_failed_share)
    order = ProblemOrder(config.seed, len(materials.train_prompts))
    reserve = ProblemOrder(config.seed, len(materials.train_prompts), "reserve")
    return Session(loop, engine, recorder, trainable, order, reserve, reference)


def _reference(config: TrainConfig, policy: Policy) -> Reference | None:
    if config.algorithm.kl_coefficient == 0:
        return None
    return AdapterReference(policy) if config.model.lora_rank else FrozenReference(policy)


def _group_settings(config: TrainConfig) -> GroupSettings:
    return GroupSettings(
        advantage_settings(config.algorithm),
        credit_plan(config.credit.source, cast(CreditForm | None, config.credit.form)),
        {name: part.weight for name, part in config.reward.components.items()},
        mask_truncated=config.algorithm.mask_truncated,
    )


def _penalty(
    config: TrainConfig, reference: Reference | None, *, pad: int, accelerator: Accelerator
) -> KlPenalty | None:
    if reference is None or config.algorithm.kl_in == "loss":
        return None
    return KlPenalty(
        reference,
        config.algorithm.kl_estimator,
        config.algorithm.kl_coefficient,
        config.optim.micro_batch_rows,
        pad,
        accelerator,
    )
