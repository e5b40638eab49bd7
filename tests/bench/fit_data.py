"""What the fit benches share: arguments, labelled data by data_prep, a budgeted subset, settings, rows."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from shared_cases import SHARED
from smollm import smollm_folder

from rewards.intervals import bootstrap_bounds
from rewards.labelled import Example, read_labelled
from rewards.models.backbone import completion_logprobs, padded
from rewards.models.conventions import Convention
from rewards.models.engine import RewardModel, batches
from rewards.models.fit_settings import FitSettings
from rewards.models.fitting import fit
from rewards.models.loading import load_tokenizer, load_weights
from rewards.models.rendering import Renderer
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request
from rewards.questions import hash64, question_hash

E = TypeVar("E", bound=Example)
SETTINGS = FitSettings(head_learning_rate=1e-3, warmup=0.1, precision="bf16", device="cpu", attention="eager")
"""Of every fit; the rest a bench states itself."""
TOKENS = 1024
"""Of a forward pass of the untrained model."""


def fit_arguments(description: str | None, train: int) -> argparse.ArgumentParser:
    """A parser of what every fit bench takes; train: its number of training questions by default."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--train", type=int, default=train, help="training questions at most")
    arguments.add_argument("--epochs", type=float, default=2.0)
    arguments.add_argument("--learning-rate", type=float, default=1e-4)
    arguments.add_argument(
        "--validate", action="store_true", help="test on some training questions, to choose settings by"
    )
    return arguments


def settings_of(given: argparse.Namespace) -> FitSettings:
    """SETTINGS with those of the command line."""
    return replace(SETTINGS, learning_rate=given.learning_rate, epochs=given.epochs)


def fit_smollm(
    convention: Convention,
    train: Sequence[Example],
    dev: Sequence[Example],
    settings: FitSettings,
    output: Path,
) -> None:
    """Fits SmolLM2-135M and prints what came of it."""
    fitted = fit(str(smollm_folder()), convention, train, dev, settings, output)
    print(f"trained on {fitted.examples} examples of {fitted.questions} questions, {fitted.steps} steps")
    print(f"losses {[round(loss, 3) for _, loss in fitted.losses]}")
    print(f"held out of training: {fitted.metrics}", flush=True)


def values_of(
    folder: Path, texts: Sequence[tuple[str, Sequence[str]]], max_length: int
) -> list[tuple[float, ...]]:
    """What a trained model says of (question, steps), in the numbers trained in; cut where it is too long."""
    model = RewardModel(ModelSettings(path=str(folder), device="cpu", max_length=max_length))
    with torch.autocast("cpu", torch.bfloat16):
        judged = model.judge([Request(question, tuple(steps)) for question, steps in texts])
    return [judgement.values for judgement in judged]


def untrained_logprobs(
    convention: Convention, texts: Sequence[tuple[str, Sequence[str]]], max_length: int
) -> list[list[float]]:
    """What SmolLM2-135M thinks of each step of (question, steps): the mean log p of its tokens.

    A baseline that costs no training. Steps that begin beyond max_length tokens have no value.
    """
    folder = smollm_folder()
    tokenizer = load_tokenizer(folder)
    loading = ModelSettings(path=str(folder), dtype="bf16")
    model = load_weights("causal", folder, loading, torch.device("cpu"))
    renderer = Renderer(tokenizer, convention)
    rows = [renderer.render(question, steps) for question, steps in texts]
    found: dict[int, list[float]] = {}
    for places in batches([min(len(row.ids), max_length) for row in rows], TOKENS):
        ids, mask = padded([rows[place].ids[:max_length] for place in places], pad=0)
        ends = [min(rows[place].reads[-1] + 1, max_length) for place in places]
        spans = [(rows[place].start, end) for place, end in zip(places, ends, strict=True)]
        with torch.inference_mode():
            told = completion_logprobs(model, ids, mask, spans)
        for place, own in zip(places, told, strict=True):
            bounds = [0, *(read + 1 - rows[place].start for read in rows[place].reads)]
            found[place] = [float(own[a:b].mean()) for a, b in pairwise(bounds) if a < len(own)]
    return [found[place] for place in range(len(rows))]


def labelled(dataset: str, source: str, folder: Path) -> list[Example]:
    """A file of the shared data as `python -m data_prep.run` reads it."""
    output = folder / f"{dataset}-{Path(source).name.split('.')[0]}.jsonl"
    if not output.exists():
        command = [sys.executable, "-m", "data_prep.run", f"dataset={dataset}", f"output={output}"]
        subprocess.run(
            [*command, f"source={SHARED / 'data' / source}"], check=True, stdout=subprocess.DEVNULL
        )
    return read_labelled(output)


def some_questions(examples: Sequence[E], count: int) -> list[E]:
    """The examples of so many questions, chosen by their hash."""
    hashes = sorted({hash64(f"some:{question_hash(example.question)}") for example in examples})[:count]
    chosen = set(hashes)
    return [e for e in examples if hash64(f"some:{question_hash(e.question)}") in chosen]


def with_bounds(name: str, by_question: Sequence[float]) -> str:
    """`name value [low, high]` of the mean over questions, with a 95 % bootstrap interval."""

    values = np.array(by_question)

    def mean(places: NDArray[np.int64]) -> dict[str, float | None]:
        return {"mean": float(values[places].mean())}

    low, high = bootstrap_bounds(mean, len(values))["mean"]
    return f"{name:28} {values.mean():.3f} [{low:.3f}, {high:.3f}]"
