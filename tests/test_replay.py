"""`rollout.dump`, `rollout.replay` and `optim.on_nonfinite` from a person's side."""

import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from training_runs import Trainer, assert_same_run, metrics_of, run_folders, summary_of

REFUSED = 2
SHORT = ("steps=3", "optim.warmup_steps=1", "coldstart.steps=0", "reward=random")
"""An untrained policy paid at random: every group has something to learn, nothing has to be made first."""
INFINITE = (*SHORT, "algorithm=dr_grpo", "reward.components.random.weight=1e38")
"""Unscaled advantages near 1e38: the squares of their gradient have no float32."""


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


def test_a_run_replayed_from_its_own_rollouts_is_the_same_run(trainer: Trainer) -> None:
    first = trainer.finish("rollout.dump=true", *SHORT)
    kept = sorted((first / "rollouts").iterdir())
    assert [path.name for path in kept] == [f"step_{step:06d}.parquet" for step in (1, 2, 3)]
    assert pq.read_table(kept[0]).num_rows == 4 * 8
    replay = f"rollout.replay={first / 'rollouts'}"
    again = trainer.finish(replay, *SHORT)
    assert_same_run(first, again)
    assert not (again / "rollouts").exists()

    # The same samples, paid otherwise.
    other = trainer.finish(replay, *SHORT, "reward.components.random.weight=-1.0")
    assert metrics_of(other)[1]["completions/mean_length"] == metrics_of(first)[1]["completions/mean_length"]
    assert metrics_of(other)[1]["reward"] != metrics_of(first)[1]["reward"]
    assert metrics_of(other)[3]["sampling/sampling_logp_difference/mean"] > 0

    longer = trainer.run(replay, *SHORT, "steps=4")
    assert longer.returncode == REFUSED
    assert "step 4 is missing, 3 steps between 1 and 3" in longer.stderr
    for wrong, said in (
        ("seed=1", "is not among its 4: a replay needs the data, seed"),
        ("rollout.temperature=0.5", "was sampled at temperature 1.0, not 0.5: set rollout.temperature=1.0"),
    ):
        refused = trainer.run(replay, *SHORT, "coldstart.steps=300", wrong)
        assert refused.returncode == REFUSED
        assert said in refused.stderr
        assert "cold start" not in refused.stdout  # said before anything is trained


def test_a_gradient_that_is_not_finite_stops_the_run(trainer: Trainer) -> None:
    done = trainer.run(*INFINITE)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "not finite, the update was left out" in done.stderr
    (run,) = run_folders(trainer.output)
    (kept,) = (run / "rollouts").iterdir()
    assert kept.name == f"step_{int(metrics_of(run)[-1]['step']) + 1:06d}.parquet"
    assert str(kept) in done.stderr
    assert not (run / "summary.json").exists()


def test_a_gradient_that_is_not_finite_can_be_left_out(trainer: Trainer) -> None:
    run = trainer.finish(*INFINITE, "optim.on_nonfinite=skip")
    skipped = [line for line in metrics_of(run)[1:] if not math.isfinite(line["grad_norm"])]
    assert skipped
    assert all(line["update/skipped"] == 1 for line in skipped)
    assert len(list((run / "rollouts").iterdir())) == len(skipped)
    assert summary_of(run)["after"]["eval/heldout/greedy"] == summary_of(run)["before"]["eval/heldout/greedy"]
