"""What the fit benches share: labelled data by data_prep, a budgeted subset of questions, settings, rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from shared_cases import SHARED

from rewards.intervals import bootstrap_bounds
from rewards.labelled import Example, read_labelled
from rewards.questions import hash64, question_hash

E = TypeVar("E", bound=Example)


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
