"""Runs transformers' Trainer over encoded examples, and leaves the process as it was.

The Trainer's own are: the loop, accumulation, clipping, the schedule, checkpoints and resuming, trackers, and
distribution (`accelerate launch`). Ours is the order of the examples, which depends on the seed alone. Global
random states, Accelerate's state and transformers' verbosity are those of the caller again afterwards, who
may be training something else. Knows nothing of text, labels or what is saved in the end.
"""

from __future__ import annotations

import importlib
import json
import math
import random
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PrinterCallback, Trainer, TrainingArguments

from rewards.errors import ConfigError, EngineError
from rewards.models.collating import Item, collate, training_order
from rewards.models.fit_settings import FitSettings
from rewards.models.loading import quiet
from rewards.models.trainable import Trainable

_STATES: Any = importlib.import_module("accelerate.state")  # has no types
_LOGGED = 50  # points of the loss curve, about
_STATE = "trainer_state.json"


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a run.

    steps: of the optimiser. losses: (step, mean loss since the one before). writes: whether this process is
    the one of a distributed run that saves.
    """

    steps: int
    losses: tuple[tuple[int, float], ...]
    writes: bool


def run_trainer(
    module: Trainable, items: Sequence[Item], pad: int, settings: FitSettings, checkpoints: Path
) -> Trained:
    """Trains the module's parameters that ask for a gradient, in place, with a fresh AdamW.

    Args:
        module: on any device; it is on the one it was trained on afterwards.
        items: the examples.
        pad: token id that fills batches.
        settings: of the run.
        checkpoints: a folder for them; a whole one in it is gone on from.

    Raises:
        ConfigError: for a batch size that the processes cannot share.
        EngineError: when the loss is no longer finite.
    """
    lengths = [item.length for item in items]
    order = training_order(lengths, settings.epochs, settings.batch_size, settings.seed)
    with _left_as_found(), quiet(progress=settings.progress):
        arguments = _arguments(settings, len(order), checkpoints)
        collating: Any = partial(collate, pad=pad)  # typed more closely than the Trainer knows
        trainer: Any = Trainer(
            model=module,
            args=arguments,
            data_collator=collating,
            train_dataset=_Ordered(items, order),
            optimizers=(_optimiser(module, settings), None),
        )
        trainer.remove_callback(PrinterCallback)
        whole = float(trainer.train(resume_from_checkpoint=_last_whole(checkpoints)).training_loss)
        history: list[Mapping[str, Any]] = trainer.state.log_history
        steps, writes = int(trainer.state.global_step), bool(trainer.is_world_process_zero())
    losses = tuple((int(entry["step"]), float(entry["loss"])) for entry in history if "loss" in entry)
    for step, loss in (*losses, (steps, whole)):  # the last steps are in the mean of all alone
        if not math.isfinite(loss):
            raise EngineError(
                f"the loss is {loss} at step {step}: lower learning_rate, or use precision=fp32"
            )
    return Trained(steps, losses, writes)


class _Ordered(torch.utils.data.Dataset[Item]):
    """The items in the order in which they are learnt from."""

    def __init__(self, items: Sequence[Item], order: Sequence[int]) -> None:
        self._items = items
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Item:
        return self._items[self._order[place]]


def _arguments(settings: FitSettings, examples: int, checkpoints: Path) -> TrainingArguments:
    steps = math.ceil(examples / settings.batch_size)
    every = settings.checkpoint_every
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        per_device_train_batch_size=settings.micro_batch,
        warmup_steps=math.ceil(settings.warmup * steps),
        lr_scheduler_type=settings.schedule,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.precision == "bf16",
        use_cpu=settings.device == "cpu" or not torch.cuda.is_available(),
        seed=settings.seed,
        save_strategy="no" if every is None else "steps",
        save_steps=every or 500,
        save_total_limit=1,
        logging_steps=max(1, steps // _LOGGED),
        logging_nan_inf_filter=False,
        report_to=list(settings.trackers) or "none",
        disable_tqdm=not settings.progress,
        log_level="error",
        remove_unused_columns=False,
    )
    untyped: Any = arguments
    untyped._n_gpu = min(untyped.n_gpu, 1)  # several devices are several processes, never threads of one
    processes: int = untyped.world_size
    share = settings.micro_batch * processes
    if settings.batch_size % share:
        raise ConfigError(
            f"batch_size={settings.batch_size}: expected a multiple of micro_batch={settings.micro_batch} "
            f"times the {processes} processes"
        )
    arguments.gradient_accumulation_steps = settings.batch_size // share
    return arguments


def _optimiser(module: Trainable, settings: FitSettings) -> torch.optim.Optimizer:
    """AdamW; matrices decay, the head may have a learning rate of its own."""
    head_rate = settings.head_learning_rate or settings.learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            rate = settings.learning_rate if name.startswith("model.") else head_rate
            decay = settings.weight_decay if parameter.ndim >= 2 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ]
    )


def _last_whole(checkpoints: Path) -> str | None:
    """The newest checkpoint whose last file is there; what a killed run left half written is removed."""
    found = sorted(checkpoints.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    for folder in reversed(found):
        try:
            json.loads((folder / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(folder)
        else:
            return str(folder)
    return None


@contextmanager
def _left_as_found() -> Generator[None]:
    """Restores the random states of Python, NumPy and torch, and what Accelerate shares in a process."""
    states = (_STATES.PartialState, _STATES.AcceleratorState, _STATES.GradientState)
    shared: list[dict[str, Any]] = [state._shared_state for state in states]
    kept = [dict(state) for state in shared]
    python, numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    shared[2].clear()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(of_torch)
        torch.cuda.set_rng_state_all(cuda)
        for state, before in zip(shared, kept, strict=True):
            state.clear()
            state.update(before)
