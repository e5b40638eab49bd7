"""`python -m grpo.train` as people start it, at sizes that take seconds: for the end-to-end tests.

Every run of a test session shares one cache of data and cold starts, as runs of a sweep do.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from grpo.metrics import read_metrics
from grpo.names import is_timing

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900
"""After which a run counts as hung: many times what it takes, also on a machine with much else to do."""

TINY = (
    "device=cpu",
    "steps=4",
    "optim.warmup_steps=1",
    "model.hidden_size=64",
    "model.layers=2",
    "data.max_operand=39",
    "data.train_size=600",
    "data.eval_size=16",
    "coldstart.steps=300",
    "coldstart.batch_size=32",
    "coldstart.learning_rate=5e-3",
    "rollout.prompts_per_step=4",
    "rollout.max_completion_tokens=40",
    "eval.samples=2",
)
"""A policy that keeps the format and adds right every second time: most groups have something to learn."""
ROUNDS = (
    "iterate=deepseekmath",
    "iterate.steps=2",
    "rollout.group_size=8",
    "rollout.prompts_per_step=8",
    "iterate.reward_model.heldout_share=0.3",
    "iterate.reward_model.tolerance=1",  # every refit is taken: what it brings is not the question here
    "iterate.reward_model.examples=64",
    "iterate.reward_model.completions=2",
    "iterate.reward_model.batch_size=16",
    "iterate.reward_model.probes=2",
    "iterate.reward_model.first.problems=48",
    "iterate.reward_model.first.samples=4",
    "log.completions=0",
    "eval.every=0",
)
"""Algorithm 1 in rounds of two steps; every refit is taken."""


class Trainer:
    """Starts runs in a folder. The runs of one `output` folder see each other."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)
        self.output = folder / "outputs"

    def command(self, *arguments: str, tiny: bool = True, output: Path | None = None) -> list[str]:
        """The command line; flags such as -m come first."""
        flags = [argument for argument in arguments if argument.startswith("-")]
        overrides = [argument for argument in arguments if not argument.startswith("-")]
        return [
            sys.executable,
            "-m",
            "grpo.train",
            *flags,
            *(TINY if tiny else ()),
            f"output_dir={output or self.output}",
            *overrides,
        ]

    def run(
        self, *arguments: str, tiny: bool = True, output: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs to the end, whatever the exit status."""
        return self.call(self.command(*arguments, tiny=tiny, output=output))

    def call(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Any command, in the folder."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def finish(self, *arguments: str, tiny: bool = True, output: Path | None = None) -> Path:
        """Runs, asserts success, and returns the one run directory that is new."""
        target = output or self.output
        before = run_folders(target)
        done = self.run(*arguments, tiny=tiny, output=output)
        assert done.returncode == 0, done.stdout + done.stderr
        (new,) = set(run_folders(target)) - set(before)
        return new

    @contextmanager
    def started(self, *arguments: str, output: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A run in the background, killed with all it started at the end of the block."""
        with (self.folder / "background.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(*arguments, output=output),
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_folders(output: Path) -> list[Path]:
    """The run directories of an output folder, oldest name first."""
    return sorted(path.parent for path in output.glob("*/manifest.json"))


def metrics_of(run: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl."""
    return read_metrics(run / "metrics.jsonl")


def computed(run: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl without what depends on the machine and its load."""
    return [{name: x for name, x in line.items() if not is_timing(name)} for line in metrics_of(run)]


def completions_of(run: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every completions file."""
    return {path.name: pq.read_table(path).to_pylist() for path in sorted(run.glob("completions/*.parquet"))}


def summary_of(run: Path) -> dict[str, Any]:
    """What a finished run leaves."""
    return json.loads((run / "summary.json").read_text())


def assert_same_run(one: Path, other: Path) -> None:
    """Two runs are equal to the bit: metrics, samples, and every weight of the end."""
    assert computed(one) == computed(other)
    assert completions_of(one) == completions_of(other)
    weights = [load_file(run / "model" / "model.safetensors") for run in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    differing = [name for name, tensor in weights[0].items() if not torch.equal(tensor, weights[1][name])]
    assert differing == []


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = SECONDS
) -> bool:
    """Waits, looking often, until the condition holds (True) or the process has ended (False)."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return condition()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)
    return True
