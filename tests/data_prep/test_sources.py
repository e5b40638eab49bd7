"""Rows from files and from folders that `datasets` reads."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.sources import iter_rows
from rewards.errors import DataError

ROWS = [{"q": "1+1", "a": "2"}, {"q": "1+2", "a": "3"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def test_rows_come_from_jsonl_gz_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet"):
        path = tmp_path / name
        assert list(iter_rows(str(path), None, "train")) == [
            (f"{path}, line 1", ROWS[0]),
            (f"{path}, line 2", ROWS[1]),
        ]


def test_rows_come_from_a_dataset_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text(LINES)
    (folder / "test.jsonl").write_text(LINES.splitlines()[0] + "\n")
    assert [row for _, row in iter_rows(str(folder), None, "train")] == ROWS
    assert list(iter_rows(str(folder), None, "test")) == [(f"{folder} test, row 1", ROWS[0])]
    with pytest.raises(DataError, match="split=validation: cannot be loaded"):
        list(iter_rows(str(folder), None, "validation"))
    with pytest.raises(DataError, match="subset=hard split=train: cannot be loaded"):
        list(iter_rows(str(folder), "hard", "train"))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        list(iter_rows(str(tmp_path / "none.jsonl"), None, "train"))
    with pytest.raises(DataError, match="no such file"):
        list(iter_rows("./none", None, "train"))
    # offline (tests/conftest.py): a hub name cannot be resolved
    with pytest.raises(DataError, match=r"source=nobody/nothing .* cannot be loaded"):
        list(iter_rows("nobody/nothing", None, "train"))
    (tmp_path / "broken.jsonl").write_text('{"q": 1}\n{"q"\n')
    first, (where, second) = iter_rows(str(tmp_path / "broken.jsonl"), None, "train")
    assert first[1] == {"q": 1}
    assert isinstance(second, DataError)
    assert str(second).startswith(f"{where}: not JSON")
