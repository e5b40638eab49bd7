"""A loaded reward model: requests -> values, in batches by length under a token budget, right-padded.

Values do not depend on order, batch or padding beyond the rounding of fp32 (1e-5). Knows inputs that are too
long and machines that fail; knows nothing of scores, verdicts or samples.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rewards.errors import ConfigError
from rewards.models.backbone import Backbone, fingerprint, load_backbone, padded, padding_id
from rewards.models.calibrating import log_odds, read_calibration
from rewards.models.conventions import (
    CONVENTION_FILE,
    FIT_FILE,
    Convention,
    WorkedExample,
    differences,
    read_convention,
)
from rewards.models.loading import load_tokenizer, local_folder
from rewards.models.presets import preset
from rewards.models.rendering import Rendered, Renderer
from rewards.models.selfcheck import (
    check_example,
    check_padding,
    check_rendering,
    check_vocabulary,
    example_of,
)
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Fitted, Request, fit_steps

_TOKENS_PER_BATCH = (1024, 16384)  # on a CPU, on an accelerator
ROOM = 16
"""Tokens that a prompt must leave to the completion."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the model said.

    values: one a kept step (process) or one (outcome). kept: leading steps that the model read. cut: the only
    kept step had to be cut short. prompt_tokens: set where the question leaves no room, and nothing else is.
    failure: set where our machinery failed.
    """

    values: tuple[float, ...] = ()
    kept: int = 0
    cut: bool = False
    prompt_tokens: int | None = None
    failure: str | None = None


class RewardModel:
    """A reward model in memory, checked; safe to use from any thread.

    Raises:
        ConfigError: for a folder, convention or weights that would score wrongly.
    """

    def __init__(self, settings: ModelSettings) -> None:
        folder = local_folder(settings.path)
        self.settings = settings
        self.convention, example = _convention_to_load(settings, folder)
        tokenizer = load_tokenizer(folder)
        self._lock = threading.Lock()  # tokenizers keep settings of a call in themselves
        self._renderer = Renderer(tokenizer, self.convention)
        check_rendering(self._renderer)
        self._backbone = load_backbone(folder, self.convention, settings, tokenizer)
        self.max_length = min(settings.max_length, self._backbone.positions or settings.max_length)
        few, many = _TOKENS_PER_BATCH
        usual = few if self._backbone.device.type == "cpu" else many
        self._tokens_per_batch = settings.tokens_per_batch or usual
        self._pad = padding_id(tokenizer, self._backbone.rows)
        check_vocabulary(self._renderer, self._backbone.rows)
        check_padding(self._renderer, self._read, settings.dtype)
        check_example(self._renderer, self._read, example, settings.dtype)
        shown = self._renderer.render(*example_of(self.convention))
        self.version = fingerprint(self._backbone, self.convention, shown)
        self._calibration = read_calibration(folder) if settings.calibrated else None
        if self._calibration is not None:
            self.version += f"+{self._calibration.scale:.6g},{self._calibration.shift:.6g}"

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One Judgement a request, in order."""
        with self._lock:
            fitted = self._fit_all(requests)
            rows = [fit.row for fit in fitted if isinstance(fit, Fitted)]
            found = iter(self._read_batched(rows))
            return [
                fit if isinstance(fit, Judgement) else self._judgement(fit, next(found)) for fit in fitted
            ]

    @property
    def floor(self) -> float | None:
        """The lowest value that this model gives; None where there is no bound."""
        return self.convention.floor if self._calibration is None else 0.0

    def log_odds(self, value: float) -> float:
        """The log-odds that a value of this model, calibrated or not, stands for; a raw score stays."""
        return log_odds(value, self.convention.activation if self._calibration is None else "sigmoid")

    def worked_example(self) -> WorkedExample:
        """What `save_convention` stores beside the weights for later loads to check against."""
        question, steps = example_of(self.convention)
        with self._lock:
            (values,) = self._read([self._renderer.render(question, steps)])
        return WorkedExample(question, steps, values)

    def _fit_all(self, requests: Sequence[Request]) -> list[Fitted | Judgement]:
        prompts = {
            question: len(self._renderer.render(question, [""]).ids)
            for question in {request.question for request in requests}
        }
        return [
            Judgement(prompt_tokens=prompts[request.question])
            if prompts[request.question] + ROOM > self.max_length
            else fit_steps(self._renderer, request, self.max_length)
            for request in requests
        ]

    def _judgement(self, fitted: Fitted, found: tuple[float, ...] | str) -> Judgement:
        if isinstance(found, str):
            return Judgement(failure=found)
        calibration = self._calibration
        if calibration is not None and all(map(math.isfinite, found)):
            found = tuple(calibration.probability(value, self.convention.activation) for value in found)
        return Judgement(found, fitted.kept, fitted.cut)

    def _read_batched(self, rows: Sequence[Rendered]) -> list[tuple[float, ...] | str]:
        """The values of every row, or what went wrong with it."""
        found: dict[int, tuple[float, ...] | str] = {}
        for batch in batches([len(row.ids) for row in rows], self._tokens_per_batch):
            read = self._read_or_fail([rows[place] for place in batch])
            found |= zip(batch, read, strict=True)
        return [found[place] for place in range(len(rows))]

    def _read_or_fail(self, rows: Sequence[Rendered]) -> list[tuple[float, ...] | str]:
        """Halves a batch that cannot be read, for want of memory or by one row's fault, until it can."""
        try:
            return list(self._read(rows))
        except (RuntimeError, IndexError) as error:  # out of memory is one; an id without a row the other
            if len(rows) == 1:
                return [str(error)]
        half = len(rows) // 2
        return [*self._read_or_fail(rows[:half]), *self._read_or_fail(rows[half:])]

    def _read(self, rows: Sequence[Rendered]) -> list[tuple[float, ...]]:
        return read_rows(self._backbone, self._pad, rows)


def read_rows(backbone: Backbone, pad: int, rows: Sequence[Rendered]) -> list[tuple[float, ...]]:
    """The values of rows padded on the right, by one forward pass."""
    ids, mask = padded([row.ids for row in rows], pad)
    with torch.inference_mode():
        values = backbone.values(ids.to(backbone.device), mask.to(backbone.device), rows)
    return [tuple(float(value) for value in row) for row in values]


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of rows, longest first, in batches whose padded size keeps the budget; a longer row runs alone.

    >>> list(batches([3, 9, 4, 3], 9))
    [[1], [2, 0], [3]]
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def reward_model(settings: ModelSettings) -> RewardModel:
    """The reward model of these settings, loaded by the first call of a process and kept.

    Raises:
        ConfigError: when it cannot be loaded or would score wrongly.
    """
    with _loading:
        if settings not in _loaded:
            _loaded[settings] = RewardModel(settings)
        return _loaded[settings]


def release(settings: ModelSettings) -> None:
    """Forgets a loaded model; its memory is freed once nobody holds it."""
    with _loading:
        _loaded.pop(settings, None)


def convention_of(settings: ModelSettings) -> Convention:
    """How the model of these settings is fed and read; nothing is loaded.

    Raises:
        ConfigError: neither a preset is named nor does the folder tell its own.
    """
    if settings.convention is not None:
        return preset(settings.convention)
    return _own_convention(settings, local_folder(settings.path))[0]


_loading = threading.Lock()
_loaded: dict[ModelSettings, RewardModel] = {}


def _convention_to_load(settings: ModelSettings, folder: Path) -> tuple[Convention, WorkedExample | None]:
    """The named preset, which must not contradict the folder's own convention, or that; and its example."""
    if settings.convention is None:
        return _own_convention(settings, folder)
    named = preset(settings.convention)
    if not (folder / CONVENTION_FILE).exists():
        return named, None
    own, example = _own_convention(settings, folder)
    other = differences(named, own)
    if other:
        raise ConfigError(
            f"model.convention={settings.convention}: {folder / CONVENTION_FILE} says that this model is fed "
            f"and read in another way ({', '.join(other)}): leave model.convention out"
        )
    return named, example


def _own_convention(settings: ModelSettings, folder: Path) -> tuple[Convention, WorkedExample | None]:
    file = folder / CONVENTION_FILE
    if not file.exists():
        raise ConfigError(
            f"model.convention: {settings.path} has no {CONVENTION_FILE} that says how the model is fed and "
            "read; name a preset, such as convention=qwen2.5-math-prm"
        )
    own, example = read_convention(file)
    if example is None and (folder / FIT_FILE).exists():
        raise ConfigError(
            f"{file}: has no worked example, which rewards.fit writes: nothing would tell whether weights, "
            "tokenizer and convention belong together; take the file that it wrote"
        )
    if example is None:
        warnings.warn(
            f"{file}: has no worked example: whether weights, tokenizer and convention belong together is "
            "not checked; save_convention(folder, model.convention, model.worked_example()) writes one",
            stacklevel=1,
        )
    return own, example
