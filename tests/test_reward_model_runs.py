"""Programs paid by a process reward model: a file is scored, a policy is trained with credit to its steps."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from reward_needs import reward_overrides
from training_runs import Trainer, metrics_of, run_folders


@pytest.fixture(scope="module")
def needs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return reward_overrides("prm", tmp_path_factory.mktemp("prm"))


def test_a_file_is_scored_with_steps(
    needs: list[str], tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    texts = ("<think>6*7=42\n\nIndeed.</think>It is 42.", "", "42<|im_end|>")
    rows = [json.dumps({"prompt": "6*7=", "completion": text, "gold": "42"}) for text in texts]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
    command = [sys.executable, "-m", "rewards.score", "reward=verifiable+format+prm", "input=in.jsonl"]
    done = subprocess.run(
        [*command, "output=out.jsonl", *needs],
        cwd=tmp_path, env=dict(program_env), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    scores = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [score["verdict"] for score in scores] == ["scored"] * 3
    assert len(scores[0]["steps"]) == 3


def test_a_policy_is_trained_on_the_steps(
    needs: list[str], tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    trainer = Trainer(tmp_path, program_env)
    done = trainer.run("reward=verifiable+format+prm", "credit=process", "steps=2", *needs)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = run_folders(trainer.output)
    steps = [row for row in metrics_of(run) if "prm/steps_mean" in row]
    assert len(steps) == 2
    assert all(row["prm/steps_mean"] >= 1 and math.isfinite(row["grad_norm"]) for row in steps)
    assert all(row["verdict/prm/failed"] == 0 for row in steps)
