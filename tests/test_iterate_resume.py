"""A run with an outer loop, killed inside a round and during a refit, ends as one that was left alone."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from training_runs import Trainer, assert_same_run, metrics_of, run_folders, wait_for

from rewards.replay import ReplayBuffer, ReplaySettings

RUN = (
    "reward=orm",
    "iterate=deepseekmath",
    "steps=12",
    "iterate.steps=3",
    "iterate.reference.follow=round",
    "rollout.group_size=8",
    "rollout.prompts_per_step=8",
    "iterate.replay.capacity=40",  # of 24 a round: older groups are evicted, and shards deleted
    "iterate.reward_model.heldout_share=0.3",
    "iterate.reward_model.tolerance=1",
    "iterate.reward_model.examples=96",
    "iterate.reward_model.batch_size=16",
    "iterate.reward_model.probes=2",
    "iterate.reward_model.first.problems=48",
    "iterate.reward_model.first.samples=4",
    "checkpoint.every=2",  # most lie inside a round
    "log.completions=0",
    "eval.every=0",
)
TOO_EARLY = "the run ended before it was killed"


def steps_written(output: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in output.glob("*/metrics.jsonl"))


def fits_since(output: Path, begun: int) -> bool:
    """Whether a fit of a reward model has written since a time in ns; one that was given up may lie there."""
    with contextlib.suppress(FileNotFoundError):  # one was renamed between being listed and being looked at
        return any(path.stat().st_mtime_ns > begun for path in output.glob("*/reward_models/.*"))
    return False


def resumptions(output: Path) -> int:
    return sum(len(json.loads(path.read_text())["resumed"]) for path in output.glob("*/manifest.json"))


def kill_when(trainer: Trainer, condition: Callable[[], bool], seconds: float, kills: int) -> None:
    """Starts the run again after so many kills, kills it some time after the condition first holds."""

    def goes_on() -> bool:  # what a killed run has left may meet the condition before this one has begun
        return resumptions(trainer.output) == kills and condition()

    with trainer.started(*RUN) as process:
        assert wait_for(goes_on, process), TOO_EARLY
        time.sleep(seconds)
        assert process.poll() is None, TOO_EARLY
        os.killpg(process.pid, signal.SIGKILL)


def test_a_run_killed_in_its_rounds_and_refits_equals_one_left_alone(
    tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    trainer = Trainer(tmp_path, program_env)
    left_alone = trainer.finish(*RUN, output=tmp_path / "left_alone")
    draw = random.Random()
    kill_when(trainer, lambda: steps_written(trainer.output) >= 3, draw.uniform(0, 0.2), 0)
    first = time.time_ns()
    kill_when(trainer, lambda: fits_since(trainer.output, first), draw.uniform(0, 0.3), 1)
    kill_when(trainer, lambda: steps_written(trainer.output) >= 8, draw.uniform(0, 0.2), 2)
    second = time.time_ns()
    kill_when(trainer, lambda: fits_since(trainer.output, second), draw.uniform(0, 0.3), 3)
    trainer.run(*RUN)
    (killed,) = run_folders(trainer.output)
    assert_same_run(killed, left_alone)
    assert len(json.loads((killed / "manifest.json").read_text())["resumed"]) == 4
    one, other = (ReplayBuffer(run / "replay", ReplaySettings(capacity=40)) for run in (killed, left_alone))
    assert list(one.groups()) == list(other.groups())
    names = [{path.name for path in (run / "reward_models").iterdir()} for run in (killed, left_alone)]
    assert names == [{"round_000003"}] * 2
    weights = [
        load_file(run / "reward_models" / "round_000003" / "model.safetensors")
        for run in (killed, left_alone)
    ]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    # The comparison means something: every round had a refit that was taken, and the reference moved.
    lines = metrics_of(left_alone)
    assert [line["step"] for line in lines if line.get("refit/accepted") == 1] == [3, 6, 9, 12]
    assert [line["step"] for line in lines if line.get("iterate/reference_moved") == 1] == [3, 6, 9, 12]
    assert max(line.get("kl", 0.0) for line in lines) > 0
