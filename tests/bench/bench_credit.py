"""Does process credit learn the embedded task in fewer steps than outcome credit? Three seeds, made sparse.

    python tests/bench/bench_credit.py            # three cold starts and nine short runs
    python tests/bench/bench_credit.py seeds=0 steps=20 data.eval_size=64 folder=somewhere

Every run is paid the same, verifiable+format: the equations are judged and have weight 0, so that what they
say reaches the policy through credit alone. The task is the embedded one where credit could matter:

- Sums of four digits and a teacher who forgets 19 carries of 20: several slips a completion, so that few
  groups hold a right answer while most hold a right equation. With two digits the only slip is in the last
  equation, and process and outcome credit pay the same tokens.
- 8 prompts a step. With 32 either gradient is known well and the learning rate alone sets the pace.
- A gradient bound out of reach. Advantages summed over steps are some four times larger, so that the shipped
  bound of 1 cuts the process credit's gradients at nearly every step and the outcome's at few. Adam does not
  undo that: gradients that were all cut to one norm cannot grow while the policy learns.

- Half the shipped learning rate: at the whole one every credit falls back after some 20 steps.

Prints, for every credit and seed, the first step at which held-out accuracy (pass@1 at the sampling
temperature, measured every 5 steps) reaches twice what it was at the start, and accuracy at some steps.

Measured with seeds 0, 1, 2, a minute or two of processor time a run: outcome credit gets there at steps 30,
30, 30, process credit at 15, 10, 10, both at 15, 10, 10. Accuracy at steps 10, 20, 40, mean of the seeds:
outcome .094 .131 .204, process .168 .200 .221, both .155 .201 .219. On seed 2 process credit falls behind
from step 30 on. At the whole learning rate: .092 .112 .094, .116 .147 .124 and .155 .176 .160; there process
credit alone leaves hard equations out on seed 1, both does not.

Other arguments are overrides of every run. Runs go to `folder`, by default one of their own that is named at
the end; one that is given again is gone on with.
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
TASK = (
    "data.max_operand=9999",
    "data.slip_rate=0.95",
    "reward=verifiable+format+arithmetic_steps",
    "reward.components.arithmetic_steps.weight=0",
    "rollout.prompts_per_step=8",
    "steps=40",
    "optim.schedule=constant",
    "optim.max_grad_norm=100",
    "optim.learning_rate=1e-4",
)
"""What all runs share; why is said above."""
EVERY, TIMES = 5, 2.0
ACCURACY = "eval/heldout/accuracy"


@dataclass(frozen=True)
class Curve:
    """Held-out accuracy of one run by step."""

    credit: str
    seed: int
    accuracy: dict[int, float]

    def reached(self) -> int | None:
        """The first measured step at `TIMES` the accuracy of the start, None where no step is."""
        aim = TIMES * self.accuracy[0]
        return next((step for step, value in self.accuracy.items() if value >= aim), None)


def run(folder: Path, credit: str, seed: int, overrides: Sequence[str]) -> Curve:
    output = folder / f"{credit}-{seed}"
    if not list(output.glob("*/summary.json")):
        settings = [*TASK, f"credit={credit}", f"seed={seed}", f"eval.every={EVERY}"]
        command = [sys.executable, "-m", "grpo.train", *settings, f"output_dir={output}", "log.completions=0"]
        subprocess.run([*command, *overrides], check=True)
    (finished,) = output.glob("*/summary.json")
    lines = read_metrics(finished.parent / "metrics.jsonl")
    return Curve(credit, seed, {int(line["step"]): line[ACCURACY] for line in lines if ACCURACY in line})


def table_of(curves: Sequence[Curve]) -> Table:
    table = Table(
        title=f"first step with {TIMES:g} times the held-out accuracy of the start", title_justify="left"
    )
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
