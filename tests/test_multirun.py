"""`python -m grpo.train -m ...`: four jobs, one table; finished jobs are skipped, a broken one goes on."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_runs import Trainer, computed, run_folders, summary_of

from grpo import checkpoint

JOBS = ("reward=verifiable,verifiable+format", "seed=0,1")
SWEEP = ("-m", *JOBS, "steps=3", "checkpoint.every=1", "checkpoint.keep_last=2")


def table_of(output: Path) -> list[dict[str, Any]]:
    """The jobs in the table of the newest sweep."""
    newest = max(output.glob("sweep-*/table.json"), key=lambda path: path.stat().st_mtime_ns)
    return json.loads(newest.read_text())["jobs"]


def break_off(run: Path) -> None:
    """Leaves a run as a kill in its last step would."""
    (run / "summary.json").unlink()
    shutil.rmtree(checkpoint.list_steps(run / "checkpoints")[3])


def test_a_sweep_is_done_once_and_mended_where_it_broke(
    tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    trainer = Trainer(tmp_path, program_env)
    first = trainer.run(*SWEEP)
    assert first.returncode == 0, first.stdout + first.stderr
    runs = run_folders(trainer.output)
    assert len(runs) == 4
    for run in runs:
        assert re.fullmatch(r"run-[0-9a-f]{12}", run.name)
        assert json.loads((run / "manifest.json").read_text())["config_hash"] in run.name
    jobs = table_of(trainer.output)
    assert [job["overrides"] for job in jobs] == [
        ["reward=verifiable", "seed=0"],
        ["reward=verifiable", "seed=1"],
        ["reward=verifiable+format", "seed=0"],
        ["reward=verifiable+format", "seed=1"],
    ]
    assert [job["status"] for job in jobs] == ["finished"] * 4
    assert all(
        job["accuracy_after"] == summary_of(Path(job["directory"]))["after"]["eval/heldout/accuracy"]
        for job in jobs
    )
    assert first.stdout.count("4 jobs, all with") == 1
    # Equal cold starts are made once: two jobs of a seed begin with the same policy.
    assert first.stdout.count("(cached)") >= 2

    numbers = [computed(run) for run in runs]
    broken = Path(jobs[2]["directory"])
    break_off(broken)
    again = trainer.run(*SWEEP)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("finished earlier, skipped") == 3
    assert f"{broken}: found unfinished, continued" in again.stdout
    assert "step_000002: going on after step 2" in again.stdout
    assert run_folders(trainer.output) == runs
    assert [computed(run) for run in runs] == numbers
    statuses = [job["status"] for job in table_of(trainer.output)]
    assert statuses == ["finished earlier", "finished earlier", "finished", "finished earlier"]
