"""Prepared data: made once, kept by what it was made from, whole for every job."""

import json
import os
import threading
from pathlib import Path

import pytest

from grpo.config import TRAIN
from grpo.data import load_run_data
from rewards.errors import DataError
from rewards.io import read_problems
from rewards.prepared import CACHE_VARIABLE, Setting, cache_folder, ensure_prepared

SUMS: dict[str, Setting] = {
    "dataset": "arithmetic",
    "arithmetic.train_size": 50,
    "arithmetic.eval_size": 10,
    "arithmetic.coldstart_size": 5,
}


def gsm8k_rows(path: Path, count: int) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_cache_is_settable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv(CACHE_VARIABLE)
    assert cache_folder() == Path.home() / ".cache" / "plumbline"


def test_sums_are_made_once(tmp_path: Path) -> None:
    folder = ensure_prepared(SUMS, tmp_path)
    assert len(read_problems(folder / "train.jsonl")) == 50
    written = (folder / "train.jsonl").stat()
    assert ensure_prepared(dict(reversed(SUMS.items())), tmp_path) == folder
    assert (folder / "train.jsonl").stat() == written
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == [folder.name]
    other = ensure_prepared({**SUMS, "seed": 1}, tmp_path)
    assert other != folder
    assert read_problems(other / "eval.jsonl") != read_problems(folder / "eval.jsonl")


def test_jobs_that_start_together_get_the_same_whole_folder(tmp_path: Path) -> None:
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda: folders.append(ensure_prepared(SUMS, tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 3
    assert len(set(folders)) == 1
    assert sorted(entry.name for entry in folders[0].glob("*.jsonl")) == [
        "coldstart.jsonl",
        "eval.jsonl",
        "train.jsonl",
    ]
    assert list((tmp_path / "data").iterdir()) == [folders[0]]


def test_a_changed_file_is_prepared_again(tmp_path: Path) -> None:
    # a name that needs quoting on Hydra's command line
    source = tmp_path / "it's {a}, [b] = c.jsonl"
    gsm8k_rows(source, 2)
    settings: dict[str, Setting] = {"dataset": "gsm8k", "source": str(source), "limit": None}
    first = ensure_prepared(settings, tmp_path)
    assert [problem.gold for problem in read_problems(first / "problems.jsonl")] == [("1",), ("2",)]
    assert ensure_prepared(settings, tmp_path) == first
    gsm8k_rows(source, 3)
    os.utime(source, (1, 1))
    second = ensure_prepared(settings, tmp_path)
    assert second != first
    assert len(read_problems(second / "problems.jsonl")) == 3


def test_a_failure_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"dataset='gsm8k' .* failed with exit status 2, see above"):
        ensure_prepared({"dataset": "gsm8k", "source": str(tmp_path / "none.jsonl")}, tmp_path)
    assert "none.jsonl: no such file" in capfd.readouterr().err
    assert list((tmp_path / "data").iterdir()) == []


def test_training_data_of_a_public_set_comes_from_its_own_layout(tmp_path: Path) -> None:
    gsm8k_rows(tmp_path / "train.jsonl", 8)
    gsm8k_rows(tmp_path / "test.jsonl", 2)
    overrides = ["data=gsm8k", "coldstart.steps=0", f"data.path={tmp_path / 'train.jsonl'}"]
    alone = load_run_data(TRAIN.load([*overrides, "data.eval_size=3"]).data, seed=0, cache=tmp_path)
    assert (len(alone.train), len(alone.evaluation)) == (5, 3)
    paired = TRAIN.load([*overrides, f"data.eval_path={tmp_path / 'test.jsonl'}"]).data
    both = load_run_data(paired, seed=0, cache=tmp_path)
    # the two questions of the test file are in the training file too
    assert (len(both.train), len(both.evaluation)) == (6, 2)


def test_training_data_of_sums_has_worked_thoughts(tmp_path: Path) -> None:
    settings = TRAIN.load(["data.train_size=64", "data.eval_size=8", "data.slip_rate=0"]).data
    data = load_run_data(settings, seed=0, cache=tmp_path)
    assert (len(data.train), len(data.evaluation)) == (64, 8)
    assert all(one.meta["answer"] == one.gold[0] and one.meta["thought"] for one in data.coldstart)
    assert data.faults == ()
