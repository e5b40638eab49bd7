"""`python -m rewards.score` as people call it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scoring_runs import Scoring, group_is_gone, rows, wait_until, write


@pytest.fixture
def scoring(tmp_path: Path) -> Scoring:
    return Scoring(tmp_path)


def test_reading_stdin_and_writing_stdout(scoring: Scoring) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rewards.score", "reward=format", "input=-", "output=-", "limit=150"],
        input=scoring.input.read_bytes(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"q{i}" for i in range(150)]
    assert b"150 lines scored" in done.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, rows(5000))
    command = f"{sys.executable} -m rewards.score reward=format input={scoring.input} output=- | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout)["id"] == "q0"
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr


def test_the_program_end_to_end_and_its_refusals(tmp_path: Path) -> None:
    records = [
        {"id": 1, "gold": "42", "completion": "<think>6*7</think>\\boxed{42}"},
        {"id": 2, "gold": "42", "completion": "<think>6*7</think>\\boxed{41}"},
        {"id": 3, "gold": "42", "completion": "no idea"},
    ]
    source = write(tmp_path / "in.jsonl", records)

    def score(*overrides: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "rewards.score", "reward=verifiable+format", f"input={source}"]
        return subprocess.run(
            [*command, *overrides], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
        )

    done = score("output=s.jsonl")
    assert done.returncode == 0, done.stderr
    scores = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    parts = [{part["name"]: part["value"] for part in score["parts"]} for score in scores]
    assert parts == [
        {"accuracy": 1.0, "format": 1.0},
        {"accuracy": 0.0, "format": 1.0},
        {"accuracy": 0.0, "format": 0.0},
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "s.jsonl", "s.jsonl.run.json"]

    refused = score("output=s.jsonl", "on_eror=skip")
    assert refused.returncode == 2
    assert "on_error" in refused.stderr
    source.write_text('{"completion": "a"\n')
    refused = score("output=t.jsonl")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "in.jsonl, line 1: not JSON at column" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_control_c_says_how_to_go_on(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, rows(20_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "rewards.score", "reward=format", f"input={scoring.input}",
         f"output={scoring.output}", "workers=2"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: scoring.output.exists() and scoring.output.stat().st_size > 0)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=180)
    if process.returncode == 0:
        pytest.skip("the machine had finished before the interrupt came")
    assert process.returncode == 130, said
    assert b"interrupted; the same command continues" in said
    assert b"Traceback" not in said
    wait_until(lambda: group_is_gone(process.pid))
    kept = scoring.bytes()
    state = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert state["lines"] == kept.count(b"\n")
