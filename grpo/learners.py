"""Builds what learns in a run from its configuration: optimisers, updater, advantager, value model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from accelerate import Accelerator
from torch import nn
from transformers import get_scheduler

from grpo.advantage import advantage_settings
from grpo.advantager import Advantager, GroupAdvantager, GroupSettings
from grpo.assign import credit_plan
from grpo.config import TrainConfig
from grpo.credit import CreditForm, StepBaseline
from grpo.critic import Critic, CriticSettings
from grpo.loss import loss_settings
from grpo.offsets import Decode
from grpo.penalty import KlPenalty
from grpo.policy import Policy
from grpo.ppo import GaeSettings, ValueAdvantager
from grpo.reference import AdapterReference, FrozenReference, Reference
from grpo.update import Trainable, Updater, UpdateSettings
from grpo.value_head import ValueModel

_SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


@dataclass(frozen=True, slots=True)
class Learners:
    """What changes from step to step, and what changes it.

    penalty: the KL in the reward, None where there is none. critic: PPO's value model, None without one.
    """

    updater: Updater
    advantager: Advantager
    reference: Reference | None
    penalty: KlPenalty | None
    critic: Critic | None


def make_learners(
    config: TrainConfig, policy: Policy, accelerator: Accelerator, *, decode: Decode, pad: int
) -> Learners:
    """Everything around the policy as it is now (after any cold start), which is on its device."""
    algorithm = config.algorithm
    # Copies are made before Accelerate wraps the policy.
    reference = _reference(config, policy)
    value_model = ValueModel(policy) if algorithm.value is not None else None
    updater = Updater(
        _trainable(config, policy, accelerator),
        UpdateSettings(
            algorithm.aggregation,
            config.rollout.max_completion_tokens,
            config.optim.micro_batch_rows,
            algorithm.updates_per_rollout,
            config.optim.max_grad_norm,
            keep_silent=algorithm.silent_groups == "keep",
            micro_batch_tokens=config.optim.micro_batch_tokens,
        ),
        loss_settings(algorithm),
        accelerator=accelerator,
        reference=reference if algorithm.kl_in == "loss" else None,
        pad_id=pad,
    )
    penalty = _penalty(config, reference, pad=pad, accelerator=accelerator)
    if algorithm.value is None or value_model is None:
        group = GroupAdvantager(
            _group_settings(config), decode=decode, accelerator=accelerator, penalty=penalty
        )
        return Learners(updater, group, reference, penalty, None)
    critic = Critic(
        value_model,
        _trainable(config, value_model, accelerator, algorithm.value.learning_rate_ratio),
        CriticSettings(
            algorithm.aggregation,
            config.rollout.max_completion_tokens,
            config.optim.micro_batch_rows,
            algorithm.updates_per_rollout,
            config.optim.max_grad_norm,
            algorithm.value.clip,
            config.optim.micro_batch_tokens,
        ),
        accelerator=accelerator,
        pad_id=pad,
    )
    advantager = ValueAdvantager(
        critic,
        GaeSettings(
            algorithm.value.gamma,
            algorithm.value.gae_lambda,
            algorithm.scale == "whiten",
            algorithm.mask_truncated,
        ),
        accelerator=accelerator,
        penalty=penalty,
    )
    return Learners(updater, advantager, reference, penalty, critic)


def _trainable(
    config: TrainConfig, module: nn.Module, accelerator: Accelerator, learning_rate_ratio: float = 1.0
) -> Trainable:
    """A model with its optimiser and its schedule, of one step an update."""
    updates = config.algorithm.updates_per_rollout
    optimizer = torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=config.optim.learning_rate * learning_rate_ratio,
        weight_decay=config.optim.weight_decay,
        fused=True,  # one pass in place; the default makes several temporary copies of all weights
    )
    scheduler = get_scheduler(
        _SCHEDULES[config.optim.schedule],
        optimizer,
        num_warmup_steps=config.optim.warmup_steps * updates,
        num_training_steps=config.steps * updates,
    )
    prepared, optimizer = accelerator.prepare(module, optimizer)
    return Trainable(prepared, optimizer, scheduler)


def _reference(config: TrainConfig, policy: Policy) -> Reference | None:
    if config.algorithm.kl_coefficient == 0:
        return None
    follow = "never" if config.iterate is None else config.iterate.reference.follow
    if config.model.lora_rank and follow == "never":
        return AdapterReference(policy)  # no second copy; one that moves has an adapter of its own
    return FrozenReference(policy, whole=follow == "ema")


def _group_settings(config: TrainConfig) -> GroupSettings:
    return GroupSettings(
        advantage_settings(config.algorithm),
        credit_plan(
            config.credit.source,
            cast(CreditForm | None, config.credit.form),
            cast(StepBaseline | None, config.credit.baseline),
        ),
        {name: part.weight for name, part in config.reward.components.items()},
        mask_truncated=config.algorithm.mask_truncated,
    )


def _penalty(
    config: TrainConfig, reference: Reference | None, *, pad: int, accelerator: Accelerator
) -> KlPenalty | None:
    algorithm = config.algorithm
    if reference is None or algorithm.kl_in == "loss":
        return None
    return KlPenalty(
        reference,
        algorithm.kl_estimator,
        algorithm.kl_coefficient,
        config.optim.micro_batch_rows,
        pad,
        accelerator,
        algorithm.kl_target,
        config.optim.micro_batch_tokens,
    )
