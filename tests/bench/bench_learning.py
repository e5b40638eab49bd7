"""Does the embedded default learn, and from the reward? Three seeds and the random control, as shipped.

    python tests/bench/bench_learning.py            # a few minutes a run on two idle cores
    python tests/bench/bench_learning.py seeds=0 steps=40 data.eval_size=64

Arguments other than seeds=... are overrides of every run. Prints a table of held-out accuracy (pass@1 at the
sampling temperature) before and after the reinforcement, and what is claimed of it; exit status 1 where a
claim does not hold. Runs go to a folder of their own, which is named at the end and kept.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ACCURACY, FORMAT = "eval/heldout/accuracy", "eval/heldout/format"
BEFORE_BELOW, AFTER_AT_LEAST, RISE_AT_LEAST, FORMAT_AT_LEAST = 0.5, 0.9, 0.3, 0.99
CONTROL_RISES_LESS = 0.05


@dataclass(frozen=True)
class Outcome:
    """One run. before, after: its held-out measurements."""

    reward: str
    seed: int
    before: dict[str, float]
    after: dict[str, float]
    minutes: float

    @property
    def rise(self) -> float:
        return self.after[ACCURACY] - self.before[ACCURACY]

    def broken_claims(self) -> list[str]:
        if self.reward == "random":
            return [] if self.rise < CONTROL_RISES_LESS else [f"random pay: rise < {CONTROL_RISES_LESS}"]
        claims = {
            f"before < {BEFORE_BELOW}": self.before[ACCURACY] < BEFORE_BELOW,
            f"after >= {AFTER_AT_LEAST}": self.after[ACCURACY] >= AFTER_AT_LEAST,
            f"rise >= {RISE_AT_LEAST}": self.rise >= RISE_AT_LEAST,
            f"format >= {FORMAT_AT_LEAST}": self.after[FORMAT] >= FORMAT_AT_LEAST,
        }
        return [claim for claim, holds in claims.items() if not holds]


def run(folder: Path, reward: str, seed: int, overrides: Sequence[str]) -> Outcome:
    output = folder / f"{reward}-{seed}"
    command = [sys.executable, "-m", "grpo.train", f"reward={reward}", f"seed={seed}", f"output_dir={output}"]
    subprocess.run([*command, "log.completions=0", *overrides], check=True)
    (path,) = output.glob("*/summary.json")
    summary = json.loads(path.read_text())
    return Outcome(reward, seed, summary["before"], summary["after"], summary["seconds"] / 60)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="held-out accuracy, pass@1 at the sampling temperature", title_justify="left")
    for heading in ("reward", "seed", "before", "after", "rise", "format", "RL minutes", "does not hold"):
        table.add_column(heading)
    for outcome in outcomes:
        table.add_row(
            outcome.reward,
            str(outcome.seed),
            _with_interval(outcome.before),
            _with_interval(outcome.after),
            f"{outcome.rise:+.3f}",
            f"{outcome.after[FORMAT]:.3f}",
            f"{outcome.minutes:.1f}",
            ", ".join(outcome.broken_claims()) or "-",
        )
    return table


def _with_interval(metrics: dict[str, float]) -> str:
    return f"{metrics[ACCURACY]:.3f} ({metrics[f'{ACCURACY}_low']:.3f} to {metrics[f'{ACCURACY}_high']:.3f})"


def main(arguments: Sequence[str]) -> int:
    seeds = next((a.removeprefix("seeds=") for a in arguments if a.startswith("seeds=")), "0,1,2")
    overrides = [argument for argument in arguments if not argument.startswith("seeds=")]
    chosen = [int(seed) for seed in seeds.split(",")]
    jobs = [("verifiable+format", seed) for seed in chosen] + [("random", chosen[0])]
    folder = Path(tempfile.mkdtemp(prefix="bench-learning-"))
    outcomes = [run(folder, reward, seed, overrides) for reward, seed in jobs]
    console = Console(width=140)
    console.print(table_of(outcomes))
    console.print(f"runs: {folder}")
    return int(any(outcome.broken_claims() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
