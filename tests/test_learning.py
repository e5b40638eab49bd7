"""The reward is what raises accuracy: a small run rises on it, the same run on random numbers does not.

`tests/bench/bench_learning.py` shows the same at the shipped sizes, with three seeds.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from training_runs import Trainer, metrics_of, summary_of

SMALL = (
    "steps=40",
    "model.hidden_size=96",
    "data.eval_size=64",
    # A teacher who forgets most carries: what the policy has to find out is rare in its samples, but there.
    "data.slip_rate=0.75",
    "coldstart.steps=400",
    "coldstart.batch_size=64",
    "coldstart.learning_rate=4e-3",
    "rollout.prompts_per_step=16",
    "optim.learning_rate=3e-4",
    "eval.samples=4",
    "log.completions=0",
)
ACCURACY, GREEDY = "eval/heldout/accuracy", "eval/heldout/greedy"


@pytest.mark.slow
def test_accuracy_rises_on_the_reward_and_not_on_random_numbers(
    tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    trainer = Trainer(tmp_path, program_env)
    paid = trainer.finish(*SMALL, "reward=verifiable+format")
    control = trainer.finish(*SMALL, "reward=random")
    learned, drifted = summary_of(paid), summary_of(control)
    assert learned["before"][ACCURACY] == drifted["before"][ACCURACY]  # one cold start
    assert learned["after"][ACCURACY] >= learned["before"][ACCURACY] + 0.1
    assert learned["after"][GREEDY] >= learned["before"][GREEDY] + 0.1
    assert learned["after"]["eval/heldout/format"] >= 0.95
    assert drifted["after"][ACCURACY] <= drifted["before"][ACCURACY] + 0.03
    rewards = [line["reward"] for line in metrics_of(paid)[1:]]
    assert sum(rewards[-10:]) > sum(rewards[:10]) + 0.5  # 0.05 a step
