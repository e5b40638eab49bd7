"""A run that watches itself: an alarm that stops it, one that is only told, and what is refused."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from training_runs import Trainer, metrics_of, run_folders

from grpo import checkpoint
from grpo.config import TRAIN
from grpo.report import write_report
from grpo.watch import needs_start_policy
from rewards.errors import ConfigError

# A few steps of the tiny policy are enough for a group that is paid alike.
EASILY_ALARMED = ("reward=verifiable", "watch.window=2", "watch.silent_share=0", "eval.every=0")


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


def test_an_alarm_stops_the_run_where_it_is_asked_to(trainer: Trainer) -> None:
    steps: set[int] = set()
    for _ in range(2):  # the same command goes on after the checkpoint and meets the same alarm
        done = trainer.run(*EASILY_ALARMED, "watch.on_alarm=stop", "checkpoint.every=1")
        assert done.returncode == 2, done.stdout
        (run,) = run_folders(trainer.output)
        last = metrics_of(run)[-1]
        assert last["watch/alarm/signal"] == 1
        steps.add(int(last["step"]))
        assert "of the groups of the last 2 steps are in no gradient" in done.stdout
        told = done.stderr.splitlines()[-1]
        assert told.startswith(f"error: step {last['step']:g}: stopped by watch.on_alarm=stop: ")
        assert max(checkpoint.list_steps(run / "checkpoints")) == last["step"] - 1
        assert not (run / "summary.json").exists()
    assert len(steps) == 1


def test_a_reward_that_likes_length_is_caught(tmp_path: Path, program_env: Mapping[str, str]) -> None:
    path = f"{program_env['PYTHONPATH']}{os.pathsep}{Path(__file__).parent}"
    trainer = Trainer(tmp_path, {**program_env, "PYTHONPATH": path})
    options = ("steps=40", "optim.learning_rate=1e-3", "rollout.prompts_per_step=8", "eval.every=0")
    flawed = "reward.components.random.scorer._target_=fakes_scorers.LikesLength"
    done = trainer.run("reward=random", flawed, *options, "watch.on_alarm=stop")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "stopped by watch.on_alarm=stop:" in done.stderr
    assert "completions grew from" in done.stderr
    (run,) = run_folders(trainer.output)
    first, last = metrics_of(run)[1], metrics_of(run)[-1]
    assert last["reward"] > first["reward"]
    assert last["watch/gold"] < first["watch/gold"]
    assert last["watch/kl_completion"] > 1 > first["watch/kl_completion"]
    # The page of a run that was stopped says why.
    assert "completions grew from" in write_report(run).read_text(encoding="utf-8")


def test_an_alarm_is_told_and_the_run_goes_on(trainer: Trainer) -> None:
    done = trainer.run(*EASILY_ALARMED)
    assert done.returncode == 0, done.stderr
    assert "alarm: " in done.stdout
    (run,) = run_folders(trainer.output)
    raised = [line["step"] for line in metrics_of(run) if "watch/alarm/signal" in line]
    assert raised
    assert done.stdout.count("alarm: ") == len(raised)


def test_what_the_watch_needs_not_it_leaves_out(trainer: Trainer) -> None:
    run = trainer.finish("steps=2", "watch.kl_rows=0", "watch.probe_problems=0")
    names = {name for line in metrics_of(run) for name in line}
    assert not {name for name in names if name.startswith(("watch/kl", "probe/"))}
    assert {"watch/gold", "watch/format", "watch/silent_groups"} <= names


def test_a_refit_needs_a_reward_model_that_trains_on() -> None:
    with pytest.raises(ConfigError, match=r"watch\.on_alarm=refit: this run has no reward model"):
        TRAIN.load(["watch.on_alarm=refit"])
    with pytest.raises(ConfigError, match=r"watch\.window=1: expected a finite number >= 2"):
        TRAIN.load(["watch.window=1"])


@pytest.mark.parametrize(
    ("overrides", "own"),
    [
        ([], True),
        (["watch.kl_rows=0"], False),
        (["algorithm.kl_coefficient=0.04"], False),
        (["iterate=deepseekmath", "reward=orm"], True),
        (["iterate=deepseekmath", "reward=orm", "iterate.reference.follow=never"], False),
    ],
    ids=[
        "no reference",
        "not measured",
        "a reference that stays",
        "one that moves",
        "an outer loop without it",
    ],
)
def test_a_start_policy_is_kept_where_no_reference_is_it(overrides: list[str], own: bool) -> None:
    assert needs_start_policy(TRAIN.load(overrides)) is own
