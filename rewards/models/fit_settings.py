"""How a reward model is trained: validated settings, no tensors.

The loss follows from the data and the convention's head: pairs are compared (Bradley-Terry), outcomes and
steps are classified, log-ratio heads are trained on outcomes or pairs alone (an implicit process reward
model). What is set here are the choices that remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from rewards.errors import ConfigError
from rewards.labelled import Example, OutcomeExample, PreferenceExample, ProcessExample
from rewards.models.conventions import Convention
from rewards.models.settings import ATTENTION

Balance = Literal["none", "classes", "question"]
Mean = Literal["step", "sequence"]
AfterError = Literal["keep", "mask", "wrong"]
Neutral = Literal["right", "wrong", "half", "mask", "class"]
Schedule = Literal["linear", "cosine", "constant"]
FitPrecision = Literal["fp32", "bf16"]
CalibrationMethod = Literal["none", "temperature", "platt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The choices of the losses; each has an effect for one kind of data only, and is refused for others.

    Args:
        centring: pairs: weight of mean((chosen + rejected)^2), which keeps scores around 0.
        balance: outcomes: none; classes: right and wrong weigh the same in all; question: they weigh the same
            within each question, and questions with one kind only are left out, so that what is learnt is not
            how hard a question is.
        mean: steps: over all labelled steps, or over the solutions' own means, so that long ones do not
            dominate.
        after_error: steps behind the first wrong one: keep their labels, mask them, or count all as wrong.
        neutral: what a neutral step counts as: right, wrong, half, mask (no label), or class: a third class.
    """

    centring: float = 0.0
    balance: Balance = "none"
    mean: Mean = "step"
    after_error: AfterError = "keep"
    neutral: Neutral = "right"

    def __post_init__(self) -> None:
        _refuse(
            [
                *_choice("loss.balance", self.balance, get_args(Balance)),
                *_choice("loss.mean", self.mean, get_args(Mean)),
                *_choice("loss.after_error", self.after_error, get_args(AfterError)),
                *_choice("loss.neutral", self.neutral, get_args(Neutral)),
                *_at_least("loss.centring", self.centring, 0),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters (Hu and others 2021, 2106.09685) on every linear layer, merged before saving.

    Args:
        rank: of the update.
        alpha: the update is scaled by alpha / rank.
    """

    rank: int = 16
    alpha: float = 32.0

    def __post_init__(self) -> None:
        _refuse([*_at_least("lora.rank", self.rank, 1), *_above("lora.alpha", self.alpha, 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """A training run. The same settings, data and base give the same weights on the same machine.

    Args:
        loss: the choices of the losses.
        lora: train adapters and the head; None trains all weights.
        learning_rate: peak, AdamW.
        head_learning_rate: of a head's own layers; None: the same.
        epochs: passes over the examples, also a part of one.
        batch_size: examples (or pairs) of an optimiser step, over all processes.
        micro_batch: examples of one forward pass; divides batch_size and changes no gradient.
        warmup: share of the steps in which the learning rate rises.
        schedule: of the learning rate behind the warm-up: linear or cosine to 0, or constant.
        weight_decay: of AdamW, on matrices.
        max_grad_norm: gradients are clipped to this norm; 0 clips nothing.
        max_length: tokens of an input. Longer solutions keep their first whole steps, longer outcomes and
            pairs are left out.
        precision: of the arithmetic; weights and head are fp32 either way.
        device: auto, cpu or cuda.
        attention: as of ModelSettings. On a CPU the gradient of sdpa is slow in bf16: eager takes three
            quarters of the time, and memory that grows with the square of the length.
        gradient_checkpointing: recompute activations in the backward pass: less memory, more time.
        seed: of new heads and the order of the examples.
        calibration: fitted on the held-out examples: temperature, platt, or none.
        checkpoint_every: optimiser steps between two checkpoints, from which a fit that was interrupted goes
            on; None keeps none.
        progress: shows a bar on the terminal; off, nothing is written there.
        trackers: names that transformers' Trainer reports to, such as tensorboard.
    """

    loss: LossSettings = field(default_factory=LossSettings)
    lora: LoraSettings | None = None
    learning_rate: float = 2e-5
    head_learning_rate: float | None = None
    epochs: float = 1.0
    batch_size: int = 32
    micro_batch: int = 8
    warmup: float = 0.05
    schedule: Schedule = "linear"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_length: int = 1024
    precision: FitPrecision = "fp32"
    device: str = "auto"
    attention: str | None = None
    gradient_checkpointing: bool = False
    seed: int = 0
    calibration: CalibrationMethod = "temperature"
    checkpoint_every: int | None = None
    progress: bool = False
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        head_rate = self.learning_rate if self.head_learning_rate is None else self.head_learning_rate
        every = 1 if self.checkpoint_every is None else self.checkpoint_every
        problems = [
            *_above("learning_rate", self.learning_rate, 0),
            *_above("head_learning_rate", head_rate, 0),
            *_above("epochs", self.epochs, 0),
            *_at_least("batch_size", self.batch_size, 1),
            *_at_least("micro_batch", self.micro_batch, 1),
            *_at_least("warmup", self.warmup, 0),
            *_at_least("weight_decay", self.weight_decay, 0),
            *_at_least("max_grad_norm", self.max_grad_norm, 0),
            *_at_least("max_length", self.max_length, 64),
            *_at_least("checkpoint_every", every, 1),
            *_choice("schedule", self.schedule, get_args(Schedule)),
            *_choice("precision", self.precision, get_args(FitPrecision)),
            *_choice("calibration", self.calibration, get_args(CalibrationMethod)),
            *_choice("device", self.device, ("auto", "cpu", "cuda")),
        ]
        if self.attention is not None:
            problems += _choice("attention", self.attention, ATTENTION)
        if self.warmup >= 1:
            problems.append(f"warmup={self.warmup}: expected a share of the steps, below 1")
        if self.micro_batch >= 1 and self.batch_size % self.micro_batch:
            problems.append(
                f"micro_batch={self.micro_batch}: expected a divisor of batch_size={self.batch_size}"
            )
        _refuse(problems)


def check_fit(convention: Convention, examples: Iterable[Example], settings: FitSettings) -> type[Example]:
    """The one kind of the examples, which the convention can be trained on with these settings.

    Raises:
        ConfigError: for no or mixed kinds, a head that they cannot train, or settings without an effect.
    """
    kinds = {type(example) for example in examples}
    if not kinds:
        raise ConfigError("data: there are no examples to train on")
    if len(kinds) != 1:
        found = ", ".join(sorted(_NAMES[kind] for kind in kinds))
        raise ConfigError(f"data: expected examples of one kind, got {found}")
    (kind,) = kinds
    _check_head(convention, kind)
    default = LossSettings()
    own = _OPTIONS[kind]
    _refuse(
        f"loss.{name}={getattr(settings.loss, name)}: has no effect on {_NAMES[kind]} examples; leave it out"
        for options in _OPTIONS.values()
        for name in options
        if name not in own and getattr(settings.loss, name) != getattr(default, name)
    )
    if settings.loss.neutral == "class" and convention.head != "classes":
        raise ConfigError(
            f"loss.neutral=class: needs a convention with head=classes, this one has {convention.head}"
        )
    if kind is PreferenceExample and settings.calibration == "platt":
        raise ConfigError(
            "calibration=platt: pairs tell differences of scores only, which have no shift; use temperature"
        )
    return kind


_NAMES: dict[type[Example], str] = {
    OutcomeExample: "outcome",
    PreferenceExample: "preference",
    ProcessExample: "process",
}
_OPTIONS: dict[type[Example], tuple[str, ...]] = {
    OutcomeExample: ("balance",),
    PreferenceExample: ("centring",),
    ProcessExample: ("mean", "after_error", "neutral"),
}


def _check_head(convention: Convention, kind: type[Example]) -> None:
    steps, ratio = kind is ProcessExample, convention.head == "log_ratio"
    if steps and convention.kind == "outcome":
        raise ConfigError(
            "data: step labels train a process model, but the convention is an outcome model's: "
            "use model=prm, or data with outcomes or pairs"
        )
    if steps and ratio:
        raise ConfigError(
            "data: a log-ratio head (an implicit process reward model) is trained on outcomes or pairs: give "
            "such data, or a convention with another head, such as trl-prm"
        )
    if not steps and convention.kind == "process" and not ratio:
        raise ConfigError(
            f"data: {_NAMES[kind]} examples have no step labels, which a process model with "
            f"head={convention.head} is trained on: use model=orm, convention=implicit-prm or data with steps"
        )


def _choice(name: str, value: str, valid: tuple[str, ...]) -> list[str]:
    return [] if value in valid else [f"{name}={value}: expected one of {', '.join(valid)}"]


def _at_least(name: str, value: float, least: float) -> list[str]:
    return [] if math.isfinite(value) and value >= least else [f"{name}={value}: expected {least} or more"]


def _above(name: str, value: float, limit: float) -> list[str]:
    return [] if math.isfinite(value) and value > limit else [f"{name}={value}: expected more than {limit}"]


def _refuse(problems: Iterable[str]) -> None:
    told = list(problems)
    if told:
        raise ConfigError("\n".join(told))
