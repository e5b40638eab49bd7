"""What the fit benches share: arguments, labelled data by data_prep, a budgeted subset, settings, rows."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from shared_cases import SHARED
from smollm import smollm_folder

from rewards.intervals import bootstrap_bounds
from rewards.labelled import Example, read_labelled
from rewards.models.conventions import Convention
from rewards.models.fit_settings import FitSettings
from rewards.models.fitting import fit
from rewards.questions import hash64, question_hash

E = TypeVar("E", bound=Example)
SETTINGS = FitSettings(head_learning_rate=1e-3, warmup=0.1, precision="bf16", device="cpu")
"""Of every fit; the rest a bench states itself."""


def fit_arguments(description: str | None, train: int) -> argparse.ArgumentParser:
    """A parser of what every fit bench takes; train: its number of training questions by default."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--train", type=int, default=train, help="training questions at most")
    arguments.add_argument("--epochs", type=float, default=1.0)
    arguments.add_argument("--learning-rate", type=float, default=3e-5)
    return arguments


def fit_smollm(
    convention: Convention,
    train: Sequence[Example],
    dev: Sequence[Example],
    settings: FitSettings,
    output: Path,
) -> None:
    """Fits SmolLM2-135M and prints what came of it."""
    fitted = fit(str(smollm_folder()), convention, train, dev, settings, output)
    print(f"trained on {fitted.examples} solutions of {fitted.questions} questions, {fitted.steps} steps")
    print(f"losses {[round(loss, 3) for _, loss in fitted.losses]}")
    print(f"held out of training: {fitted.metrics}", flush=True)


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

    def mean(places: Sequence[int]) -> dict[str, float | None]:
        return {"mean": sum(by_question[place] for place in places) / len(places)}

    low, high = bootstrap_bounds(mean, len(by_question))["mean"]
    return f"{name:28} {sum(by_question) / len(by_question):.3f} [{low:.3f}, {high:.3f}]"
