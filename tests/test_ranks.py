"""Two ranks over gloo do what one process does."""

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from training_runs import Trainer, completions_of, computed, metrics_of, run_folders, summary_of

from rewards.replay import ReplayBuffer, ReplaySettings


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(trainer: Trainer, output: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """A run of two processes, whatever comes of it."""
    # Not by `accelerate launch --cpu`: without MPI that starts one process, whatever number is asked for.
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    entry = trainer.command(*overrides, output=output)[2:]  # without `python -m`
    return trainer.call([sys.executable, *ranks, "--module", *entry])


def run_on_two_ranks(trainer: Trainer, output: Path, *overrides: str) -> Path:
    """The directory of a run of two processes."""
    done = launch(trainer, output, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = run_folders(output)
    return run


def test_two_ranks_take_the_steps_of_one(trainer: Trainer) -> None:
    options = ("steps=3", "checkpoint.every=1", "algorithm.kl_coefficient=0.05", "optim.micro_batch_rows=5")
    alone = trainer.finish(*options)
    together = run_on_two_ranks(trainer, trainer.folder / "together", *options)
    assert [line["step"] for line in metrics_of(together)] == [0, 1, 2, 3]
    # Whole groups in the order of one process: the same samples, the same rewards.
    assert completions_of(together).keys() == completions_of(alone).keys()
    first = "step_000001.parquet"
    assert completions_of(together)[first] == completions_of(alone)[first]
    one, two = (computed(run) for run in (alone, together))
    assert one[0].keys() == two[0].keys()
    assert one[0] == pytest.approx(two[0])  # the policy before any step, measured by halves
    for name in (
        "loss",
        "grad_norm",
        "kl",
        "entropy",
        "reward",
        "num_tokens",
        "watch/gold",
        "watch/correlation",
    ):
        assert two[1][name] == pytest.approx(one[1][name], abs=1e-6, rel=1e-6), name
    assert summary_of(together)["steps"] == 3


def test_a_rank_without_signal_does_not_keep_the_other_waiting(trainer: Trainer) -> None:
    # One prompt a rank, two completions of it: now and then one rank has both right or both wrong, alone.
    options = ("reward=verifiable", "steps=8", "rollout.prompts_per_step=2", "rollout.group_size=2")
    run = run_on_two_ranks(trainer, trainer.output, *options)
    signals = [
        (any(row["advantage"] for row in rows[:2]), any(row["advantage"] for row in rows[2:]))
        for rows in completions_of(run).values()
    ]
    assert len(signals) == 8
    assert any(first != second for first, second in signals)
    assert summary_of(run)["steps"] == 8


def test_credit_to_steps_is_of_two_ranks_and_none_waits_for_the_other(trainer: Trainer) -> None:
    # As above: now and then the steps of both completions of a rank's prompt are worth the same.
    options = ("reward=verifiable+arithmetic_steps", "credit=process", "steps=8", "eval.every=0")
    options += ("rollout.prompts_per_step=2", "rollout.group_size=2")
    alone = trainer.finish(*options)
    together = run_on_two_ranks(trainer, trainer.folder / "together", *options)
    signals = [
        (any(row["advantage"] for row in rows[:2]), any(row["advantage"] for row in rows[2:]))
        for rows in completions_of(together).values()
    ]
    assert len(signals) == 8
    assert any(first != second for first, second in signals)
    one, two = (computed(run) for run in (alone, together))
    names = [name for name in one[1] if name.startswith(("prm/", "advantages/", "groups/", "watch/"))]
    assert {"prm/steps_mean", "prm/step_reward_mean", "prm/unscored_token_frac"} <= set(names)
    for name in ("loss", "grad_norm", *names):
        assert two[1][name] == pytest.approx(one[1][name], abs=1e-6, rel=1e-6), name


def test_two_ranks_fit_one_value_model(trainer: Trainer) -> None:
    options = ("algorithm=ppo_penalty", "steps=2", "optim.warmup_steps=1", "optim.micro_batch_rows=5")
    alone = trainer.finish(*options)
    together = run_on_two_ranks(trainer, trainer.folder / "together", *options)
    one, two = (computed(run) for run in (alone, together))
    names = ("grad_norm", "critic/loss", "critic/grad_norm", "critic/return_mean", "reward/kl")
    for name in ("loss", "advantages/std", "advantages/max", "reward/kl_coefficient", *names):
        assert two[1][name] == pytest.approx(one[1][name], abs=1e-5, rel=1e-4), name
    assert two[2]["critic/value_mean"] == pytest.approx(one[2]["critic/value_mean"], abs=1e-4)
    assert two[2]["critic/value_mean"] != 0


def test_two_ranks_fill_one_replay_buffer(trainer: Trainer) -> None:
    options = ("reward=verifiable", "iterate=deepseekmath", "iterate.reward_model.refit=off", "steps=3")
    options += ("iterate.steps=2", "iterate.reference.follow=ema", "iterate.reference.decay=0.5")
    options += ("rollout.group_size=4", "rollout.prompts_per_step=4")
    alone = trainer.finish(*options)
    together = run_on_two_ranks(trainer, trainer.folder / "together", *options)
    kept = [list(ReplayBuffer(run / "replay", ReplaySettings()).groups()) for run in (alone, together)]
    assert [group.round for group in kept[1]] == [0] * 8 + [1] * 4
    # Of the first step: later weights round apart. A sample's place in its group is the same on any rank.
    first = [[([s.text for s in g.samples], g.labels, g.scores) for g in groups[:4]] for groups in kept]
    assert first[0] == first[1]
    assert [group.problem for group in kept[0]] == [group.problem for group in kept[1]]
    one, two = (computed(run) for run in (alone, together))
    assert two[3]["kl"] == pytest.approx(one[3]["kl"], abs=1e-6, rel=1e-3)
    assert one[3]["kl"] > 0


def test_a_reward_model_is_refitted_by_one_process(trainer: Trainer) -> None:
    launched = launch(trainer, trainer.output, "reward=orm", "iterate=deepseekmath", "iterate.steps=2")
    assert launched.returncode != 0
    assert "a reward model is fitted in a run of one process" in launched.stdout + launched.stderr
