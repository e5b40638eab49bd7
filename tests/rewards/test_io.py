"""Reading and writing of records: formats, faults by file, line and field, round trips."""

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rewards.io
from rewards.errors import DataError
from rewards.io import RecordReader, iter_jsonl, read_problems, write_problems, write_records
from rewards.records import decode_record, json_line, score_from_record, score_to_record
from rewards.types import Part, Problem, Reason, Score, StepScore, Verdict


def written(tmp_path: Path, content: bytes, name: str = "in.jsonl") -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def test_jsonl_gz_parquet_and_stdin_give_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": str(i), "prompt": f"{i}?", "gold": None if i % 2 else str(i)} for i in range(700)]
    plain = b"".join(json_line(row) for row in rows)
    expected = list(enumerate(rows, start=1))
    assert list(iter_jsonl(written(tmp_path, plain))) == expected
    assert list(iter_jsonl(written(tmp_path, gzip.compress(plain), "in.jsonl.gz"))) == expected
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    assert list(iter_jsonl(tmp_path / "in.parquet")) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(plain)))
    assert list(iter_jsonl("-")) == expected
    assert not sys.stdin.closed


def test_line_ends_byte_order_mark_and_blank_end_are_no_content(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\n{"a": 3}\n \n\n')
    assert list(iter_jsonl(path)) == [(1, {"a": 1}), (2, {"a": 2}), (3, {"a": 3})]


def test_no_final_newline_loses_nothing(tmp_path: Path) -> None:
    assert [number for number, _ in iter_jsonl(written(tmp_path, b'{"a": 1}\n{"a": 2}'))] == [1, 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2: not JSON at column 2"),
        (b'{"completion": "a\x00b"}', "line 2: not JSON at column 18.*escape"),
        (b'{"completion": "\xff"}', r"line 2: byte 16 \(0xff\) is not UTF-8"),
        (b"[1]", "line 2: expected a JSON object, got a list"),
        (b"", "line 2: empty line"),
        (b"[" * 200_000, "line 2: nested too deeply"),
        (b'{"gold": ' + b"9" * 5000 + b"}", "line 2: .*write so long a number as a string"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = written(tmp_path, b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(DataError, match=said) as caught:
        list(iter_jsonl(path))
    assert str(caught.value).startswith(path)


def test_an_endless_line_is_passed_over_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards.io, "MAX_LINE_BYTES", 2**20)
    path = written(tmp_path, b'{"a": 1}\n' + b"x" * (5 * 2**20) + b'\n{"a": 3}\n')
    raw = dict(RecordReader(path))
    assert raw[3] == b'{"a": 3}'
    with pytest.raises(DataError, match="line 2: longer than 1 MiB"):
        decode_record(path, 2, raw[2])


def test_missing_file_and_broken_gzip_and_parquet_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: cannot be read \(No such file"):
        list(iter_jsonl(tmp_path / "nowhere.jsonl"))
    torn = gzip.compress(b"".join(b'{"a": %d}\n' % i for i in range(10_000)))[:-20]
    with pytest.raises(DataError, match=r"torn\.jsonl\.gz, after line \d+: the gzip stream is broken"):
        list(iter_jsonl(written(tmp_path, torn, "torn.jsonl.gz")))
    with pytest.raises(DataError, match="cannot be read as parquet"):
        list(iter_jsonl(written(tmp_path, b"PAR1 not so", "bad.parquet")))


def test_share_read_goes_from_nothing_to_all(tmp_path: Path) -> None:
    reader = RecordReader(written(tmp_path, b'{"a": "%s"}\n' % (b"x" * 1000) * 1000))
    shares = [reader.share_read() for _ in reader]
    assert all(share is not None and 0 <= share <= 1 for share in shares)
    assert shares == sorted(shares, key=lambda share: share or 0.0)
    assert reader.share_read() == 1.0


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress((b'{"a": "%s"}\n' % (b"x" * 10_000)) * 5_000), "big.jsonl.gz")
    tracemalloc.start()
    assert sum(1 for _ in iter_jsonl(path)) == 5_000  # 50 MB of text
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * 2**20


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_problems_round_trip(tmp_path: Path, name: str) -> None:
    problems = [
        Problem("a", "2+2?", ("4",), "number", "own", {"level": "1"}),
        Problem("b", "roots?", ("1", "-1"), "set"),
        Problem("c", "no gold \ud800 \x00 \x1b"),
    ]
    path = tmp_path / "made" / name
    assert write_problems(path, problems) == 3
    assert read_problems(path) == problems
    first = path.read_bytes()
    write_problems(path, problems)
    assert path.read_bytes() == first
    assert [child.name for child in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("place", ["file/y.jsonl", "folder", "/proc/none/y.jsonl"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        write_records(tmp_path / place, [{"a": 1}])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_problems(path, [Problem("a", "?")])

    def broken():
        yield Problem("b", "?")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_problems(path, broken())
    assert [problem.id for problem in read_problems(path)] == ["a"]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"gold": "4"}, "line 1, field 'prompt': expected a string, got no such field; there are 'gold'"),
        ({"prompt": 4}, "line 1, field 'prompt': expected a string, got 4"),
        ({"prompt": "?", "gold": {"a": 1}}, "field 'gold': expected a string, a number.*got an object"),
        ({"prompt": "?", "gold": [None]}, "field 'gold'"),
        ({"prompt": "?", "gold": True}, "field 'gold'.*got True"),
        ({"prompt": "?", "id": [1]}, "field 'id': expected a string or an integer, got a list"),
        ({"prompt": "?", "answer_type": "integer"}, "field 'answer_type': expected one of auto, number"),
        ({"prompt": "?", "meta": {"level": 3}}, "field 'meta': expected an object of strings"),
        ({"prompt": "?", "source": 1}, "field 'source'"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, record: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_problems(written(tmp_path, json_line(record)))


def test_golds_of_any_plain_form(tmp_path: Path) -> None:
    forms: list[object] = ["4", 4, 0.5, ["1", 2], [], None]
    path = written(tmp_path, b"".join(json_line({"prompt": "?", "gold": form}) for form in forms))
    golds = [problem.gold for problem in read_problems(path)]
    assert golds == [("4",), ("4",), ("0.5",), ("1", "2"), (), ()]
    assert read_problems(path)[2].id == f"{path}, line 3"


def scores() -> st.SearchStrategy[Score]:
    values = st.floats(allow_nan=False, allow_infinity=False)
    notes = st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=2)
    plain = st.one_of(
        st.builds(lambda v, n: Score.scored(v, Reason.MISMATCH, notes=n), values, notes),
        st.builds(lambda n: Score.abstained(Reason.NO_GOLD, notes=n), notes),
    )
    parts = st.lists(st.builds(Part, st.text(max_size=8), values, plain), max_size=3).map(tuple)
    steps = st.lists(values, max_size=3).map(
        lambda found: tuple(StepScore(i, i + 1, value) for i, value in enumerate(found))
    )
    return st.builds(
        lambda v, p, s: Score(Verdict.SCORED, v, Reason.COMBINED, steps=s, parts=p), values, parts, steps
    )


@given(st.one_of(st.integers(), st.text(max_size=10)), scores())
def test_a_score_survives_its_line(row_id: str | int, score: Score) -> None:
    line = json_line(score_to_record(row_id, score))
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert score_from_record(json.loads(line), "here") == (row_id, score)


def test_a_score_line_has_exactly_the_documented_fields() -> None:
    part = Score.scored(1.0, Reason.MATCH_NUMERIC, notes={"rung": "boxed"})
    score = Score(
        Verdict.SCORED, 0.8, Reason.COMBINED, (StepScore(0, 4, 0.5),), (Part("accuracy", 0.8, part),), "v1"
    )
    assert score_to_record("p7", score) == {
        "id": "p7",
        "verdict": "scored",
        "value": 0.8,
        "reason": "combined",
        "parts": [
            {
                "name": "accuracy",
                "weight": 0.8,
                "verdict": "scored",
                "value": 1.0,
                "reason": "match_numeric",
                "notes": {"rung": "boxed"},
            }
        ],
        "steps": [{"start": 0, "end": 4, "value": 0.5}],
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "good"}, "good"),
        ({"value": "1"}, "value: expected a number or null"),
        ({"value": None}, "does not fit verdict"),
        ({"reason": "because"}, "because"),
        ({"parts": 3}, "not a line of a score file"),
        ({"steps": [{"start": 5, "end": 2, "value": 0}]}, "StepScore span"),
    ],
)
def test_a_line_that_is_no_score_is_refused(change: dict[str, object], said: str) -> None:
    record = score_to_record("a", Score.scored(1.0, Reason.MATCH_STRING)) | change
    with pytest.raises(DataError, match=said):
        score_from_record(record, "s.jsonl, line 1")
    with pytest.raises(DataError, match="field 'parts' is missing"):
        score_from_record({"id": 1}, "s.jsonl, line 1")
