"""Does process credit learn the embedded task in fewer steps than outcome credit? Three seeds, as shipped.

    python tests/bench/bench_credit.py            # nine runs, a few minutes each on two idle cores
    python tests/bench/bench_credit.py seeds=0 steps=40 data.eval_size=64 folder=somewhere

All credits are paid the same reward, verifiable+format+arithmetic_steps; only who gets the advantage
differs. Prints, for every credit and seed, the first step at which held-out accuracy (pass@1 at the sampling
temperature, measured every 10 steps) reaches 0.8, and accuracy at some steps. Other arguments are overrides
of every run. Runs go to `folder`, by default one of their own that is named at the end; one that is given
again is gone on with.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from grpo.metrics import read_metrics

CREDITS = ("outcome", "process", "both")
REWARD = "verifiable+format+arithmetic_steps"
EVERY, REACHED = 10, 0.8
ACCURACY = "eval/heldout/accuracy"


@dataclass(frozen=True)
class Curve:
    """Held-out accuracy of one run by step."""

    credit: str
    seed: int
    accuracy: dict[int, float]

    def reached(self) -> int | None:
        """The first measured step at the threshold, None where no step is."""
        return next((step for step, value in self.accuracy.items() if value >= REACHED), None)


def run(folder: Path, credit: str, seed: int, overrides: Sequence[str]) -> Curve:
    output = folder / f"{credit}-{seed}"
    if not list(output.glob("*/summary.json")):
        settings = [f"credit={credit}", f"seed={seed}", f"reward={REWARD}", f"eval.every={EVERY}"]
        command = [sys.executable, "-m", "grpo.train", *settings, f"output_dir={output}", "log.completions=0"]
        subprocess.run([*command, *overrides], check=True)
    (finished,) = output.glob("*/summary.json")
    lines = read_metrics(finished.parent / "metrics.jsonl")
    return Curve(credit, seed, {int(line["step"]): line[ACCURACY] for line in lines if ACCURACY in line})


def table_of(curves: Sequence[Curve]) -> Table:
    table = Table(title=f"first step with held-out accuracy >= {REACHED}", title_justify="left")
    steps = list(curves[0].accuracy)
    shown = sorted({steps[round(i * (len(steps) - 1) / 5)] for i in range(6)})
    for heading in ("credit", "seed", "step", *(f"at {step}" for step in shown)):
        table.add_column(heading, justify="left" if heading == "credit" else "right")
    for credit in CREDITS:
        own = [curve for curve in curves if curve.credit == credit]
        for curve in own:
            values = [f"{curve.accuracy[step]:.3f}" for step in shown]
            table.add_row(credit, str(curve.seed), in_words(curve.reached(), steps[-1]), *values)
        # A run that never got there counts as one step beyond the last measured one.
        reached = [curve.reached() for curve in own]
        middle = median(steps[-1] + EVERY if step is None else step for step in reached)
        means = [f"{sum(curve.accuracy[step] for curve in own) / len(own):.3f}" for step in shown]
        table.add_row(credit, "median", in_words(middle, steps[-1]), *means, end_section=True)
    return table


def in_words(step: float | None, last: int) -> str:
    return f"> {last}" if step is None or step > last else f"{step:g}"


def main(arguments: Sequence[str]) -> None:
    own = dict(a.split("=", 1) for a in arguments if a.startswith(("seeds=", "folder=")))
    overrides = [argument for argument in arguments if argument.split("=", 1)[0] not in own]
    seeds = [int(seed) for seed in own.get("seeds", "0,1,2").split(",")]
    folder = Path(own["folder"]) if "folder" in own else Path(tempfile.mkdtemp(prefix="bench-credit-"))
    curves = [run(folder, credit, seed, overrides) for seed in seeds for credit in CREDITS]
    console = Console(width=140)
    console.print(table_of(curves))
    console.print(f"runs: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
