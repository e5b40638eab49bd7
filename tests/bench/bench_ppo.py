"""What GRPO saves: memory, step time and accuracy against steps beside PPO, on the embedded task.

    python tests/bench/bench_ppo.py                  # some minutes a run on two idle cores
    python tests/bench/bench_ppo.py seeds=0,1,2 steps=80

Arguments other than seeds=... are overrides of every run. All runs sample the same prompts in groups of the
same size, start from the same cold start and hold a reference of the same coefficient; they differ in what a
completion is compared with. The first two take one update a rollout, the third PPO's usual four. Memory is
what a process held at most beyond its state after the imports, and what a checkpoint keeps of weights and
optimisers; seconds are medians over the steps. Runs go to a folder of their own, which is named at the end.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

KL = 0.04
CONTENDERS = {
    "GRPO": ("algorithm=grpo",),
    "PPO": ("algorithm=ppo", "algorithm.updates_per_rollout=1", "algorithm.value.clip=null"),
    "PPO, 4 updates": ("algorithm=ppo",),
}
ACCURACY = "eval/heldout/accuracy"
PHASES = ("gen", "values", "adv", "update_critic", "update_actor")
CHILD = """
import resource, sys
import grpo.training
from grpo.config import TRAIN
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
grpo.training.train(TRAIN.load(sys.argv[2:]))
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""
"""Peak memory of a run beyond its imports, in KiB, into the file that is the first argument."""


@dataclass(frozen=True)
class Outcome:
    """One run. lines: its metrics. peak, kept: MiB held at most, and of a checkpoint."""

    contender: str
    seed: int
    lines: list[dict[str, float]]
    peak: float
    kept: float

    def seconds(self, phase: str) -> float:
        """Median over the steps, the first left out."""
        return statistics.median(line.get(f"timing_s/{phase}", 0.0) for line in self.lines[2:])

    def accuracy(self) -> dict[int, float]:
        """Held-out accuracy by step, where it was measured."""
        return {int(line["step"]): line[ACCURACY] for line in self.lines if ACCURACY in line}


def run(folder: Path, contender: str, seed: int, overrides: Sequence[str]) -> Outcome:
    output = folder / f"{contender.replace(', ', '-').replace(' ', '-')}-{seed}"
    output.mkdir()
    arguments = (*CONTENDERS[contender], f"algorithm.kl_coefficient={KL}", f"seed={seed}")
    command = [sys.executable, "-c", CHILD, str(output / "peak"), f"output_dir={output}"]
    subprocess.run(
        [*command, "log.completions=0", "eval.every=20", *arguments, *overrides],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
    )
    (metrics,) = output.glob("*/metrics.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    last = max((metrics.parent / "checkpoints").glob("step_*"))
    kept = sum((last / name).stat().st_size for name in ("model.safetensors", "training.pt"))
    return Outcome(contender, seed, lines, int((output / "peak").read_text()) / 1024, kept / 2**20)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """A row a run; accuracy in the columns at the right, by step."""
    steps = sorted({step for outcome in outcomes for step in outcome.accuracy()})
    table = Table(title="one step of GRPO and of PPO, and what it teaches", title_justify="left")
    for heading in ("algorithm", "seed", "peak MiB", "kept MiB", "step s", *PHASES, *map(str, steps)):
        table.add_column(heading)
    for outcome in outcomes:
        table.add_row(
            outcome.contender,
            str(outcome.seed),
            f"{outcome.peak:.0f}",
            f"{outcome.kept:.1f}",
            f"{outcome.seconds('step'):.3f}",
            *(f"{outcome.seconds(phase):.3f}" for phase in PHASES),
            *(
                f"{value:.2f}" if (value := outcome.accuracy().get(step)) is not None else ""
                for step in steps
            ),
        )
    return table


def main(arguments: Sequence[str]) -> None:
    seeds = next((a.removeprefix("seeds=") for a in arguments if a.startswith("seeds=")), "0")
    overrides = [argument for argument in arguments if not argument.startswith("seeds=")]
    folder = Path(tempfile.mkdtemp(prefix="bench-ppo-"))
    outcomes = [
        run(folder, contender, int(seed), overrides) for seed in seeds.split(",") for contender in CONTENDERS
    ]
    console = Console(width=180)
    console.print(table_of(outcomes))
    console.print(f"runs: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
