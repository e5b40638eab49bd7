"""The table of a multirun: made from what jobs left, through Hydra itself and with failing jobs."""

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf
from rich.console import Console

from grpo.rundir import RunRecord, RunSummary, open_job
from grpo.sweep import JobRecord, JobRow, SweepTable, print_rows, read_rows, report_job, to_markdown

ROOT = Path(__file__).resolve().parents[2]

APP = """
import hashlib
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from grpo.rundir import RunRecord, RunSummary, open_job, open_run
from grpo.sweep import report_job


@hydra.main(version_base="1.3", config_path=".", config_name="app")
def main(config: DictConfig) -> None:
    text = OmegaConf.to_yaml(config)
    record = RunRecord("job", text, hashlib.sha256(text.encode()).hexdigest()[:8], config.seed)
    out = Path(config.output_dir)
    job = HydraConfig.get().mode is RunMode.MULTIRUN
    with (open_job(out, record) if job else open_run(out, record)) as run:
        report_job(run)
        print(run.note)
        if run.summary() is not None:
            return
        if config.seed in config.fails and not Path("mended").exists():
            raise ValueError(f"seed {config.seed} | fails\\nsecond line")
        accuracy = 0.5 + config.seed / 8
        run.mark_finished(
            RunSummary(3, 90.0, {"eval/heldout/accuracy": 0.5}, {"eval/heldout/accuracy": accuracy}, 1.25)
        )


main()
"""
CONFIG = """
seed: 0
fails: []
output_dir: outputs
hydra:
  output_subdir: null
  run: {dir: .}
  sweep: {dir: "${output_dir}", subdir: .}
  callbacks: {table: {_target_: grpo.sweep.SweepTable}}
defaults:
  - _self_
  - override hydra/job_logging: disabled
  - override hydra/hydra_logging: disabled
"""


def _app(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(APP)
    (folder / "app.yaml").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _tables(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("outputs/sweep-*/table.json"))]


def test_a_multirun_ends_with_a_table_and_skips_what_is_finished(tmp_path: Path) -> None:
    first = _app(tmp_path, "-m", "seed=0,2", "+note=x")
    assert first.returncode == 0, first.stderr
    assert "2 jobs, all with +note=x" in first.stdout
    again = _app(tmp_path, "-m", "seed=2,4", "+note=x")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("finished earlier, skipped") == 1
    assert len(list((tmp_path / "outputs").glob("job-*"))) == 3
    second_table = _tables(tmp_path)[1]
    assert second_table["common"] == ["+note=x"]
    jobs = second_table["jobs"]
    assert isinstance(jobs, list)
    assert [(job["overrides"], job["status"], job["accuracy_after"], job["minutes"]) for job in jobs] == [
        (["seed=2"], "finished earlier", 0.75, 1.5),
        (["seed=4"], "finished", 1.0, 1.5),
    ]


def test_the_table_comes_also_when_a_job_fails_and_the_job_is_resumed(tmp_path: Path) -> None:
    broken = _app(tmp_path, "-m", "seed=0,1,2", "fails=[1]")
    assert broken.returncode != 0
    assert "seed 1 | fails" in broken.stderr
    assert "3 jobs" in broken.stdout
    assert "failed: ValueError: seed 1 | fails" in broken.stdout
    (tmp_path / "mended").touch()
    mended = _app(tmp_path, "-m", "seed=0,1,2", "fails=[1]")
    assert mended.returncode == 0, mended.stderr
    assert "found unfinished, continued" in mended.stdout
    statuses = [[job["status"] for job in table["jobs"]] for table in _tables(tmp_path)]  # type: ignore[attr-defined]
    assert statuses == [
        ["finished", "failed: ValueError: seed 1 | fails", "finished"],
        ["finished earlier", "finished", "finished earlier"],
    ]


def test_a_refused_multirun_leaves_no_folder(tmp_path: Path) -> None:
    refused = _app(tmp_path, "-m", "seed=0,1", "unknown=1")
    assert refused.returncode != 0
    assert "unknown" in refused.stderr
    assert not list(tmp_path.glob("outputs/sweep-*"))


def test_a_single_run_has_no_table(tmp_path: Path) -> None:
    single = _app(tmp_path, "seed=2")
    assert single.returncode == 0, single.stderr
    assert "new run" in single.stdout
    assert not list(tmp_path.glob("outputs/sweep-*"))


def test_a_job_in_another_process_knows_the_folder(tmp_path: Path) -> None:
    """Launchers such as joblib and submitit pickle the callback and call it where the job runs."""
    config = OmegaConf.create(
        {"hydra": {"sweep": {"dir": str(tmp_path)}, "job": {"num": 7}, "overrides": {"task": ["seed=7"]}}}
    )
    table = SweepTable()
    table.on_multirun_start(config)
    elsewhere: SweepTable = pickle.loads(pickle.dumps(table))
    elsewhere.on_job_start(config, task_function=lambda config: None)
    with open_job(tmp_path, RunRecord("a", "", "11111111", 0)) as run:
        report_job(run)
    elsewhere.on_job_end(config, JobReturn(status=JobStatus.COMPLETED))
    (folder,) = tmp_path.glob("sweep-*")
    assert read_rows(folder)[0] == [JobRow(7, ("seed=7",), "unfinished", str(run.path))]
    table.on_multirun_end(config)
    assert (folder / "table.md").exists()


def _record(folder: Path, number: int, record: JobRecord) -> None:
    content = {
        "overrides": record.overrides,
        "directory": record.directory,
        "earlier": record.earlier,
        "error": record.error,
    }
    (folder / f"job-{number:04d}.json").write_text(json.dumps(content))


def test_rows_say_how_far_each_job_came(tmp_path: Path) -> None:
    with open_job(tmp_path, RunRecord("a", "", "11111111", 0)) as finished:
        finished.mark_finished(RunSummary(1, 30.0, {}, {}, None))
    with open_job(tmp_path, RunRecord("b", "", "22222222", 0)) as killed:
        pass
    _record(tmp_path, 0, JobRecord(["x=1", "seed=0"], str(finished.path)))
    _record(tmp_path, 2, JobRecord(["x=1", "seed=1"], str(killed.path)))
    _record(tmp_path, 10, JobRecord(["x=1", "seed=2"], None))
    rows, common = read_rows(tmp_path)
    assert common == ("x=1",)
    assert rows == [
        JobRow(0, ("seed=0",), "finished", str(finished.path), minutes=0.5),
        JobRow(2, ("seed=1",), "unfinished", str(killed.path)),
        JobRow(10, ("seed=2",), "no run directory", None),
    ]
    report_job(killed)  # outside a multirun: nothing happens
    assert read_rows(tmp_path) == (rows, common)


def test_one_job_shows_all_its_overrides(tmp_path: Path) -> None:
    _record(tmp_path, 0, JobRecord(["seed=0"]))
    assert read_rows(tmp_path) == ([JobRow(0, ("seed=0",), "no run directory", None)], ())
    assert read_rows(tmp_path / "nothing") == ([], ())


@pytest.mark.parametrize("status", ["failed: [red]a|b[/red]"])
def test_the_table_shows_text_as_text(status: str) -> None:
    rows = [JobRow(0, ("reward=a|b", "seed=0"), status, "/out/job-1", 0.5, 0.75, 1.0, 2.0)]
    assert to_markdown(rows, ("x=1",)) == (
        "# 1 job, all with x=1\n\n"
        "| job | overrides | accuracy before | after | reward | minutes | status | directory |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| 0 | reward=a\\|b seed=0 | 0.500 | 0.750 | 1.000 | 2.0 | failed: [red]a\\|b[/red] | job-1 |\n"
    )
    console = Console(file=io.StringIO(), width=200)
    print_rows(console, rows, ())
    assert isinstance(console.file, io.StringIO)
    assert "[red]a|b[/red]" in console.file.getvalue()
