"""Trains a reward model and leaves a folder that scores as it was trained.

`fit` loads a base, encodes the examples, lets transformers' Trainer run (rewards.models.training), and saves
weights, tokenizer, convention, a worked example, the calibration and a report. Then the folder is loaded as
any reward model is: its self-check compares the example's values with those of the weights in memory, and
what is measured on the held-out examples is what a user of the folder will get.

Adapters are merged into the weights before saving: the folder needs no peft. The reference model of a
log-ratio is the base, and lies in the folder with it.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rewards.errors import ConfigError, DataError, EngineError
from rewards.labelled import Example
from rewards.models.backbone import REFERENCE, Backbone, assemble, find_device, padding_id
from rewards.models.calibrating import Calibration, save_calibration
from rewards.models.collating import encode
from rewards.models.conventions import Convention, WorkedExample, save_convention
from rewards.models.engine import RewardModel, read_rows
from rewards.models.fit_report import FitReport, data_hash, fit_key, read_report, write_report
from rewards.models.fit_settings import FitSettings, check_fit
from rewards.models.heads import write_layer_head
from rewards.models.loading import embedding_rows, load_tokenizer, local_folder, quiet, settings_of
from rewards.models.measuring import Metrics, measure_and_calibrate
from rewards.models.preparing import Prepared, convention_to_train, prepare, with_reference
from rewards.models.rendering import Renderer
from rewards.models.selfcheck import check_rendering, check_vocabulary, example_of
from rewards.models.settings import ModelSettings
from rewards.models.training import Trained, run_trainer
from rewards.questions import question_hash


def fit(
    base: str,
    convention: Convention,
    train: Sequence[Example],
    heldout: Sequence[Example],
    settings: FitSettings,
    output: Path,
) -> FitReport:
    """Trains a reward model on the examples, with a fresh optimiser; returns what came of it.

    The same base, data and settings give the same weights. What an interrupted fit has left in checkpoints
    (beside the output) is gone on from; a fit that is done already is not done again, and its report is
    returned. The random states of the process stay as they were. In a distributed run every process calls
    it; the first one writes.

    Args:
        base: folder or hub name of a causal language model, a transformer, or an earlier reward model, whose
            head is kept.
        convention: how the model is fed and read.
        train: examples of one kind, which with the convention's head decides the loss.
        heldout: examples of other questions for calibration and metrics; may be empty.
        settings: of the run.
        output: the folder to write; appears whole, by a rename.

    Raises:
        ConfigError: for settings that do not go together, a base that cannot be trained so, or an output that
            is something else.
        DataError: when no example is left to train on, or held-out questions are trained on.
        EngineError: when training diverged.
    """
    started = time.monotonic()
    check_fit(convention, train, settings)
    convention = convention_to_train(convention, settings)
    _check_heldout(train, heldout)
    folder = local_folder(base)
    facts = _Facts(
        base, data_hash(train), data_hash(heldout), len({question_hash(e.question) for e in train})
    )
    key = fit_key(folder, convention, (facts.train_hash, facts.heldout_hash), settings)
    work = output.parent / f"{_work_prefix(output)}{key}"
    if output.exists():
        return _finished(output, key)
    try:
        done = _train(folder, convention, train, settings, work / "checkpoints")
    except EngineError:  # it would diverge again, from any checkpoint
        shutil.rmtree(work, ignore_errors=True)
        raise
    if done.trained.writes:
        saved = work / "model"
        done.save(saved)
        report = _report(key, facts, done, _measure(saved, heldout, settings))
        write_report(saved, replace(report, seconds=round(time.monotonic() - started, 1)))
        saved.rename(output)
        _clear_up(output)
    if torch.distributed.is_initialized():
        processes: Any = torch.distributed
        processes.barrier()
    return read_report(output)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a report tells of the input."""

    base: str
    train_hash: str
    heldout_hash: str
    questions: int


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a report tells of the model as it is loaded."""

    version: str
    heldout: int
    metrics: Metrics
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class _Done:
    """A trained model in memory, and what it was trained on."""

    prepared: Prepared
    renderer: Renderer
    pad: int
    examples: int
    left_out: Mapping[str, int]
    empty: int
    trained: Trained

    def save(self, folder: Path) -> None:
        """Writes all that scoring loads, with an example worked by the weights in memory."""
        shutil.rmtree(folder, ignore_errors=True)
        convention = self.renderer.convention
        head = self.prepared.module.head()
        # Their types are less than they take.
        model: Any = self.prepared.module.model
        tokenizer: Any = self.renderer.tokenizer
        reference: Any = self.prepared.reference
        with quiet():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            if reference is not None:
                reference.save_pretrained(folder / REFERENCE)
        if convention.head in ("scalar", "classes"):
            assert head is not None
            write_layer_head(folder, convention.head_name, head)
        save_convention(folder, convention, self.worked_example())

    def worked_example(self) -> WorkedExample:
        """The example of the load-time check."""
        question, steps = example_of(self.renderer.convention)
        (values,) = read_rows(self.backbone(), self.pad, [self.renderer.render(question, steps)])
        return WorkedExample(question, steps, values)

    def backbone(self) -> Backbone:
        """The parts as what scores."""
        return assemble(self.renderer.convention, self.prepared.models(), self.prepared.module.head())


def _train(
    folder: Path,
    convention: Convention,
    examples: Sequence[Example],
    settings: FitSettings,
    checkpoints: Path,
) -> _Done:
    tokenizer = load_tokenizer(folder)
    renderer = Renderer(tokenizer, convention)
    check_rendering(renderer)
    with quiet(progress=settings.progress):
        prepared = prepare(folder, convention, tokenizer, settings)
    rows = embedding_rows(prepared.models())
    check_vocabulary(renderer, rows)
    positions = settings_of(prepared.module.model).get("max_position_embeddings")
    items, left_out = encode(renderer, examples, settings, min(settings.max_length, positions or sys.maxsize))
    if not items:
        raise DataError(f"data: none of {len(examples)} examples can be trained on ({_in_words(left_out)})")
    pad = padding_id(tokenizer, rows)
    if prepared.reference is not None:
        items = with_reference(items, prepared.reference, pad, settings.precision)
    trained = run_trainer(prepared.module, items, pad, settings, checkpoints)
    prepared.merge()
    prepared.module.eval()
    empty = sum(item.empty for item in items)
    return _Done(prepared, renderer, pad, len(items), left_out, empty, trained)


def _measure(folder: Path, heldout: Sequence[Example], settings: FitSettings) -> _Measured:
    """Loads the folder as any reward model, measures it, and stores its calibration.

    Weights are fp32 in the self-check, whose tolerance is small, and stay so: the figures are in the numbers
    trained in, and weights rounded to bf16 may give values that the self-check takes for another model's.
    """
    loading = ModelSettings(path=str(folder), device=settings.device, max_length=settings.max_length)
    model = RewardModel(loading)
    device = find_device(settings.device).type
    with torch.autocast(device, torch.bfloat16, enabled=settings.precision == "bf16"):
        metrics, calibration = measure_and_calibrate(model, heldout, settings.calibration, settings.loss)
    if calibration is not None:
        save_calibration(folder, calibration)
    return _Measured(model.version, len(heldout), metrics, calibration)


def _report(key: str, facts: _Facts, done: _Done, measured: _Measured) -> FitReport:
    return FitReport(
        key=key,
        base=facts.base,
        version=measured.version,
        head=done.prepared.head,
        train_hash=facts.train_hash,
        heldout_hash=facts.heldout_hash,
        examples=done.examples,
        questions=facts.questions,
        heldout=measured.heldout,
        left_out=done.left_out,
        empty=done.empty,
        steps=done.trained.steps,
        losses=done.trained.losses,
        metrics=measured.metrics,
        calibration=measured.calibration,
        seconds=0.0,
    )


def _check_heldout(train: Sequence[Example], heldout: Sequence[Example]) -> None:
    kinds = {type(example) for example in (*train, *heldout)}
    if len(kinds) > 1:
        raise ConfigError("heldout: its examples are of another kind than those trained on")
    learnt = {question_hash(example.question) for example in train}
    shared = {question_hash(example.question) for example in heldout} & learnt
    if shared:
        raise DataError(
            f"heldout: {len(shared)} of its questions are trained on; split by question "
            "(rewards.questions.split_by_question)"
        )


def _finished(output: Path, key: str) -> FitReport:
    report = read_report(output)
    if report.key != key:
        raise ConfigError(
            f"output={output}: is there, from other data, settings or base; give another name or remove it"
        )
    _clear_up(output)
    return report


def _work_prefix(output: Path) -> str:
    """How the folders begin that fits of this output work in."""
    return f".{output.name}.fit-"


def _clear_up(output: Path) -> None:
    """Removes what fits of this output have left, also those of settings that were given up."""
    for left in output.parent.iterdir():
        if left.name.startswith(_work_prefix(output)):
            shutil.rmtree(left, ignore_errors=True)


def _in_words(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.items())
