"""A run killed at random moments, also while it saves, ends as one that was left alone: to the bit."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from training_runs import Trainer, assert_same_run, metrics_of, run_folders, wait_for

RUN = (
    "steps=60",  # so many saves that a poller which misses some still finds one
    "checkpoint.every=2",
    "eval.every=8",
    # A reference, a schedule and a second update: whatever could be lost by a stop matters to the weights.
    "algorithm.kl_coefficient=0.05",
    "algorithm.updates_per_rollout=2",
    "optim.schedule=cosine",
    "log.completions=0",
)
KILLS, WHILE_SAVING = 5, 2
"""At least so many, and so many of them with a checkpoint half written."""
TOO_EARLY = "the run ended before it was killed"


def written(output: Path) -> int:
    """Lines in the run's metrics.jsonl so far."""
    return sum(path.read_bytes().count(b"\n") for path in output.glob("*/metrics.jsonl"))


def half_written(output: Path) -> set[int]:
    """The inodes of the checkpoints that are not whole: being written, or left so by a kill."""
    with contextlib.suppress(FileNotFoundError):  # one was renamed between being listed and being looked at
        return {path.stat().st_ino for path in output.glob("*/checkpoints/.writing-*")}
    return set()


def kill_while_saving(trainer: Trainer) -> bool:
    """Starts the run, kills it once a checkpoint is being written; True when one is left half written."""
    left = half_written(trainer.output)  # by an earlier kill, until the run has started
    with trainer.started(*RUN) as process:
        assert wait_for(lambda: bool(half_written(trainer.output) - left), process), TOO_EARLY
        os.killpg(process.pid, signal.SIGKILL)
    return bool(half_written(trainer.output) - left)


def kill_after(trainer: Trainer, lines: int, seconds: float) -> None:
    """Starts the run, kills it some time after it has written its first so many new lines."""
    before = written(trainer.output)
    with trainer.started(*RUN) as process:
        # What a kill left beyond the last checkpoint is cut off first, so the count may fall and rise again.
        assert wait_for(lambda: written(trainer.output) >= before + lines, process), (
            "ended without being killed"
        )
        time.sleep(seconds)
        assert process.poll() is None, TOO_EARLY
        os.killpg(process.pid, signal.SIGKILL)


def test_trap_34_a_run_killed_again_and_again_equals_one_left_alone(
    tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    trainer = Trainer(tmp_path, program_env)
    draw = random.Random()
    kills = while_saving = 0
    with trainer.started(*RUN) as process:  # before its first step, perhaps before its first checkpoint
        assert wait_for(lambda: run_folders(trainer.output) != [], process)
        time.sleep(draw.uniform(0, 3))
        os.killpg(process.pid, signal.SIGKILL)
        kills += 1
    while kills < KILLS or while_saving < WHILE_SAVING:
        assert kills < 12, "no kill found a checkpoint half written"
        if kills % 2:
            while_saving += kill_while_saving(trainer)
        else:
            # One line: with more, a late kill can ask for more steps than the run has left.
            kill_after(trainer, 1, draw.uniform(0, 0.2))
        kills += 1
    trainer.run(*RUN)
    (killed,) = run_folders(trainer.output)
    left_alone = trainer.finish(*RUN, output=tmp_path / "left_alone")
    assert_same_run(killed, left_alone)
    assert len(json.loads((killed / "manifest.json").read_text())["resumed"]) == kills
    assert not half_written(trainer.output)
    # The comparison means something: the weights moved, and the run was long enough to be killed in.
    lines = metrics_of(left_alone)
    assert [line["step"] for line in lines] == list(range(61))
    assert sum(line.get("grad_norm", 0.0) > 0 for line in lines) > 40
    assert max(line.get("kl", 0.0) for line in lines) > 0
