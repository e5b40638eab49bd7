"""`python -m rewards.score` on recorded outputs of a real model."""

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from shared_cases import shared


def test_real_outputs_are_scored_where_they_lie(tmp_path: Path, program_env: Mapping[str, str]) -> None:
    source = shared("data/model_outputs/math500__Qwen2.5-Math-7B.jsonl.gz")
    command = [sys.executable, "-m", "rewards.score", "reward=verifiable+format", "format=optional"]
    command += [
        f"input={source}",
        "output=scores.jsonl",
        "fields.prompt=problem",
        "fields.id=idx",
        "limit=100",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(program_env), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    with gzip.open(source, "rt", encoding="utf-8") as file:
        recorded = [json.loads(line) for line in islice(file, 100)]
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [score["id"] for score in scores] == [row["idx"] for row in recorded]
    assert {score["verdict"] for score in scores} == {"scored"}
    accuracy = [part for score in scores for part in score["parts"] if part["name"] == "accuracy"]
    assert len(accuracy) == 100
    # The harness that recorded them judged by other rules; on nearly all of them the two agree.
    agreeing = [
        part["value"] == row["recorded_correct"] for part, row in zip(accuracy, recorded, strict=True)
    ]
    assert sum(agreeing) >= 95
    assert {part["reason"] for part in accuracy} >= {"match_string", "mismatch"}
