"""Run directories: exclusive, locked, found again; finished jobs skipped, broken ones continued."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grpo.output_dir import check_folder
from grpo.rundir import (
    RunRecord,
    RunSummary,
    find_resumable,
    open_job,
    open_run,
    read_manifest,
    read_summary,
)
from rewards.errors import ConfigError, EngineError

RECORD = RunRecord(
    label="verifiable+format",
    config_text="seed: 0\n",
    config_hash="6a5a163c",
    seed=0,
    scorer_versions={"accuracy": "accuracy/1"},
)
OTHER = RunRecord(label="verifiable", config_text="seed: 1\n", config_hash="90ab12cd", seed=1)

SUMMARY = RunSummary(60, 90.5, {"eval/heldout/accuracy": 0.5}, {"eval/heldout/accuracy": 0.75}, 1.1)

HOLDER = """
import sys, time
from pathlib import Path
from grpo.rundir import RunRecord, open_run
run = open_run(Path(sys.argv[1]), RunRecord("verifiable+format", "seed: 0\\n", "6a5a163c", 0))
print(run.path, flush=True)
time.sleep(600)
"""


def test_a_new_run_holds_config_and_manifest(tmp_path: Path) -> None:
    with open_run(tmp_path / "outputs", RECORD) as run:
        assert run.path.parent == tmp_path / "outputs"
        assert run.path.name.startswith("verifiable+format-20")
        assert run.path.name.endswith(RECORD.config_hash)
        assert (run.path / "config.yaml").read_text() == "seed: 0\n"
        manifest = read_manifest(run.path)
        assert manifest is not None
        assert manifest["seed"] == 0
        assert manifest["config_hash"] == RECORD.config_hash
        assert manifest["scorer_versions"] == {"accuracy": "accuracy/1"}
        assert set(manifest["versions"]) == {
            "python",
            "plumbline",
            "torch",
            "transformers",
            "math-verify",
            "sympy",
        }
        assert "pytest" in manifest["command"] or "python" in manifest["command"]
        assert manifest["resumed"] == []
        assert not run.resumed
        assert "new run" in run.note


def test_two_runs_of_one_second_get_two_directories(tmp_path: Path) -> None:
    runs = [open_run(tmp_path, RECORD, resume="never") for _ in range(4)]
    assert len({run.path for run in runs}) == 4
    assert all(read_manifest(run.path) for run in runs)
    for run in runs:
        run.close()


def test_auto_continues_the_newest_unfinished_run_of_this_config(tmp_path: Path) -> None:
    old, newest, other = (open_run(tmp_path, record, "never") for record in (RECORD, RECORD, OTHER))
    for run in (old, newest, other):
        run.close()
    with open_run(tmp_path, RECORD) as run:
        assert run.path == newest.path
        assert run.resumed
        assert "unfinished" in run.note
        manifest = read_manifest(run.path)
        assert manifest is not None
        assert len(manifest["resumed"]) == 1


def test_never_and_another_config_start_anew(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as first:
        first_path = first.path
    with open_run(tmp_path, RECORD, "never") as run:
        assert run.path != first_path
        assert not run.resumed
    with open_run(tmp_path, OTHER) as run:
        assert not run.resumed
        assert f"no unfinished run of config {OTHER.config_hash}" in run.note


def test_another_label_starts_anew_and_may_be_continued_by_path(tmp_path: Path) -> None:
    renamed = replace(RECORD, label="renamed")
    with open_run(tmp_path, RECORD) as first:
        first_path = first.path
    with open_run(tmp_path, renamed) as run:
        assert not run.resumed
        assert run.path.name.startswith("renamed-")
    with open_run(tmp_path, renamed, str(first_path)) as run:
        assert run.resumed
        assert run.path == first_path


def test_where_no_folder_can_be_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/no/such/folder")):
        for refusing in (open_run, open_job):
            with pytest.raises(ConfigError, match=r"output_dir=\S+: no folder can be made"):
                refusing(place, RECORD)
        with pytest.raises(ConfigError, match=r"output_dir=\S+: no folder can be made"):
            check_folder(place)
    check_folder(tmp_path / "new" / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as run:
        run.mark_finished(SUMMARY)
    assert read_summary(run.path) is not None
    assert find_resumable(tmp_path, RECORD) is None
    with open_run(tmp_path, RECORD) as again:
        assert again.path != run.path


def test_a_held_run_is_passed_by(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as first, open_run(tmp_path, RECORD) as second:
        assert first.path != second.path
        assert find_resumable(tmp_path, RECORD) is None
    found = find_resumable(tmp_path, RECORD)
    assert found is not None
    assert found.path == second.path
    found.close()
    found.close()  # a second call does nothing


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    try:
        assert holder.stdout is not None
        path = Path(holder.stdout.readline().strip())
        assert find_resumable(tmp_path, RECORD) is None
        with pytest.raises(EngineError, match=f"process {holder.pid} on"):
            open_run(tmp_path, RECORD, resume=str(path))
    finally:
        holder.kill()
        holder.wait()
    with open_run(tmp_path, RECORD) as run:
        assert run.path == path


def test_resume_by_path(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as run:
        pass
    with open_run(tmp_path / "elsewhere", RECORD, resume=str(run.path)) as again:
        assert again.path == run.path
        assert again.resumed
        again.mark_finished(SUMMARY)
    with open_run(tmp_path, RECORD, resume=str(run.path)) as finished:
        assert finished.summary() == SUMMARY


def test_resume_by_path_refuses_what_is_no_run_of_this_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected auto, never or a run directory"):
        open_run(tmp_path, RECORD, resume=str(tmp_path / "nothing"))
    with open_run(tmp_path, OTHER) as run:
        pass
    with pytest.raises(ConfigError, match=f"has config {OTHER.config_hash}"):
        open_run(tmp_path, RECORD, resume=str(run.path))


def test_a_directory_killed_before_its_manifest_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / f"x-20260101-000000-{RECORD.config_hash}").mkdir()
    assert find_resumable(tmp_path, RECORD) is None


def test_a_job_goes_to_one_place_and_is_resumed_then_skipped(tmp_path: Path) -> None:
    with open_job(tmp_path, RECORD) as job:
        assert job.path == tmp_path / f"verifiable+format-{RECORD.config_hash}"
        assert not job.resumed
        with pytest.raises(EngineError, match="is working here"):
            open_job(tmp_path, RECORD)
    with open_job(tmp_path, RECORD) as broken:
        assert broken.path == job.path
        assert broken.resumed
        broken.mark_finished(SUMMARY)
    with open_job(tmp_path, RECORD) as finished:
        assert finished.summary() == SUMMARY
        assert "skipped" in finished.note


def test_a_job_killed_before_its_manifest_starts_over_in_place(tmp_path: Path) -> None:
    path = tmp_path / f"verifiable+format-{RECORD.config_hash}"
    path.mkdir()
    with open_job(tmp_path, RECORD) as job:
        assert job.path == path
        assert not job.resumed
        assert read_manifest(path) is not None


def test_a_label_becomes_a_plain_file_name(tmp_path: Path) -> None:
    record = RunRecord("a b/../c=1,'$x'" + "y" * 100, "", "00000000", 0)
    with open_job(tmp_path, record) as job:
        assert job.path.parent == tmp_path
        assert not set(job.path.name) & set(" /=,'$")


def test_a_summary_is_json_or_refused(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as run:
        with pytest.raises(ValueError, match="JSON"):
            run.mark_finished(RunSummary(1, 1.0, {}, {"eval/heldout/accuracy": float("nan")}, None))
        assert run.summary() is None
        run.mark_finished(SUMMARY)
        assert run.summary() == SUMMARY
        assert json.loads((run.path / "summary.json").read_text())["after"] == SUMMARY.after
        assert sorted(path.name for path in run.path.iterdir()) == [
            ".lock",
            "config.yaml",
            "manifest.json",
            "summary.json",
        ]


def test_a_broken_manifest_is_named(tmp_path: Path) -> None:
    with open_run(tmp_path, RECORD) as run:
        (run.path / "manifest.json").write_text('{"label": ')
        with pytest.raises(EngineError, match=r"manifest\.json is not json"):
            read_manifest(run.path)
