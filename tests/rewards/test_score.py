"""Scoring of files: one line for each line, faults kept to their line, the same bytes from any engine."""

import gzip
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes_scorers import BatchSum, Careless, Constant, DiesOn, GoldInText, RaisesOn, Refuses
from scoring_runs import LINES, Scoring, rows, write

from rewards.errors import ConfigError, DataError, EngineError
from rewards.score_config import SCORE
from rewards.scorer import Scorer

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def scoring(tmp_path: Path) -> Scoring:
    return Scoring(tmp_path)


def test_one_line_for_each_line_in_order(scoring: Scoring) -> None:
    tally = scoring.run()
    scores = scoring.scores()
    assert [score["id"] for score in scores] == [f"q{i}" for i in range(LINES)]
    assert tally.lines() == LINES
    assert scores[0] == {
        "id": "q0",
        "verdict": "abstained",
        "value": None,
        "reason": "no_gold",
        "parts": [
            {
                "name": "substring",
                "weight": 1.0,
                "verdict": "abstained",
                "value": None,
                "reason": "no_gold",
                "notes": {},
            }
        ],
        "steps": [],
    }
    scored = [score for score in scores if score["verdict"] == "scored"]
    assert len(scored) == LINES - 8  # every 50th has no gold
    mean = sum(score["value"] for score in scored) / len(scored)
    assert tally.whole.mean() == pytest.approx(mean)
    assert f"{mean:.4f}" in scoring.said
    assert "outputs/s" in scoring.said
    assert "no_gold 8" in scoring.said


def test_ids_are_kept_as_they_are_and_the_line_number_stands_in(tmp_path: Path) -> None:
    records = [{"id": 17, "completion": "a"}, {"completion": "b"}, {"id": "x", "completion": "c"}]
    scoring = Scoring(tmp_path, records)
    scoring.run()
    assert [score["id"] for score in scoring.scores()] == [17, 2, "x"]


def test_synonyms_are_found_and_said_once(tmp_path: Path) -> None:
    records = [{"question": "2?", "ground_truth": 2, "response": "2", "uid": 5} for _ in range(300)]
    scoring = Scoring(tmp_path, records)
    scoring.run()
    for role, name in [("completion", "response"), ("gold", "ground_truth"), ("prompt", "question")]:
        assert scoring.said.count(f"'{name}' is read as the {role}") == 1
    assert scoring.scores()[0]["id"] == 5
    assert scoring.scores()[0]["value"] == 1.0


def test_answer_is_the_gold_where_a_completion_stands_beside_it(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, [{"answer": "2", "response": "it is 2"}])
    scoring.run()
    assert scoring.scores()[0]["value"] == 1.0
    scoring = Scoring(tmp_path, [{"answer": "it is 2", "gold": "2"}])
    scoring.run("overwrite=true")
    assert scoring.scores()[0]["value"] == 1.0


def test_no_gold_field_at_all_is_said(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, [{"completion": "a"}])
    scoring.run()
    assert "what needs a gold abstains" in scoring.said


def test_a_named_field_is_taken_at_its_word(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, [{"text": "4", "response": "5", "gold": "4"}])
    scoring.run("fields.completion=text")
    assert scoring.scores()[0]["value"] == 1.0
    write(scoring.input, [{"response": "5"}, {"text": "4"}])
    with pytest.raises(
        DataError, match=r"line 1, field 'text': expected a string, got no such field; there are"
    ):
        scoring.run("fields.completion=text", "overwrite=true")


def test_prefill_truncation_and_answer_type_reach_the_scorer(tmp_path: Path) -> None:
    seen: list[tuple[str, bool, str]] = []

    class Recording:
        def score(self, samples: Sequence[Any]) -> list[Any]:
            seen.extend((s.prefill, s.truncated, s.problem.answer_type) for s in samples)
            return Constant(1.0).score(samples)

    records = [{"completion": "a", "prefill": "<think>\n", "truncated": True, "answer_type": "set"}]
    Scoring(tmp_path, records).run(scorer=Recording())
    assert seen == [("<think>\n", True, "set")]


BROKEN: list[tuple[bytes, str, str | int]] = [
    (b"{not json}\n", "line 200: not JSON", 200),
    (b'{"id": "mine", "completion": 7}\n', "line 200, field 'completion': expected a string, got 7", "mine"),
    (
        b'{"id": "mine", "completion": null}\n',
        "line 200, field 'completion': expected a string, got null",
        "mine",
    ),
    (b'{"id": [], "completion": "a"}\n', "line 200, field 'id'", 200),
    (b'{"id": "mine", "completion": "\xff"}\n', "line 200: byte 30 .0xff. is not UTF-8", 200),
    (b"\n", "line 200: empty line", 200),
]


@pytest.mark.parametrize(
    ("line", "said", "workers"), [(*BROKEN[0][:2], 2), *((*row[:2], 1) for row in BROKEN)]
)
def test_a_broken_line_stops_after_those_before_it(
    scoring: Scoring, line: bytes, said: str, workers: int
) -> None:
    good = scoring.input.read_bytes()
    scoring.run()
    expected = scoring.bytes()
    scoring.break_line(200, line)
    with pytest.raises(DataError, match=said) as caught:
        scoring.run("overwrite=true", f"workers={workers}")
    assert str(scoring.input) in str(caught.value)
    assert [score["id"] for score in scoring.scores()] == [f"q{i}" for i in range(199)]
    scoring.input.write_bytes(good)  # mended: the same command continues
    scoring.run(f"workers={workers}")
    assert scoring.bytes() == expected


@pytest.mark.parametrize(("line", "said", "row_id"), BROKEN)
def test_a_broken_line_is_a_failed_record_with_skip(
    scoring: Scoring, line: bytes, said: str, row_id: str | int
) -> None:
    scoring.run()
    good = scoring.bytes().splitlines()
    scoring.break_line(200, line)
    tally = scoring.run("overwrite=true", "on_error=skip")
    assert tally.lines() == LINES
    assert tally.failed() == 0  # not our fault
    assert "bad_input 1" in scoring.said
    lines = scoring.bytes().splitlines()
    bad = json.loads(lines.pop(199))
    assert (bad["id"], bad["verdict"], bad["reason"], bad["value"]) == (row_id, "failed", "bad_input", None)
    assert "line 200" in bad["parts"][0]["notes"]["error"]
    good.pop(199)
    assert lines == good
    scoring.run("on_error=skip")
    assert "nothing scored again" in scoring.said


@pytest.mark.parametrize("scorer", [GoldInText(), BatchSum()])
def test_the_same_bytes_for_any_number_of_workers(scoring: Scoring, scorer: Scorer) -> None:
    scoring.run(scorer=scorer)
    expected = scoring.bytes()
    for workers in (2, 3):
        scoring.run(f"workers={workers}", "overwrite=true", scorer=scorer)
        assert scoring.bytes() == expected


def test_a_fault_of_the_scorer_costs_its_own_line(scoring: Scoring) -> None:
    tally = scoring.run("max_failed_share=0.1", scorer=RaisesOn("it is 37 "))
    scores = scoring.scores()
    failed = [score for score in scores if score["verdict"] == "failed"]
    assert [score["id"] for score in failed] == ["q37"]
    assert failed[0]["reason"] == "internal"
    assert "RuntimeError: cannot bear it is 37" in failed[0]["parts"][0]["notes"]["error"]
    assert tally.failed() == 1
    assert "RuntimeError: cannot bear it is 37" in scoring.said
    scoring.run("overwrite=true")
    good = scoring.scores()
    assert [s for s in scores if s["id"] != "q37"] == [s for s in good if s["id"] != "q37"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_scorer_that_refuses_its_settings_stops_the_run(workers: int, scoring: Scoring) -> None:
    with pytest.raises(ConfigError, match=r"^model.safetensors: is damaged$"):
        scoring.run(f"workers={workers}", "max_failed_share=1", scorer=Refuses())
    assert scoring.bytes() == b""  # no line is to blame


def test_too_many_failures_stop_the_run(scoring: Scoring) -> None:
    with pytest.raises(EngineError, match=r"400 of 400 lines failed.*max_failed_share=0.01.*RuntimeError"):
        scoring.run(scorer=RaisesOn("it is"))
    scoring.run("max_failed_share=1", "overwrite=true", scorer=RaisesOn("it is"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_a_failure(scoring: Scoring, value: float) -> None:
    scoring.run("max_failed_share=1", scorer=Constant(value))
    assert {score["reason"] for score in scoring.scores()} == {"internal"}


def test_what_cannot_be_written_is_a_failure(scoring: Scoring) -> None:
    scoring.run("max_failed_share=1", scorer=Careless())
    assert {score["reason"] for score in scoring.scores()} == {"internal"}
    assert "cannot be written" in scoring.scores()[0]["parts"][0]["notes"]["error"]


def test_a_lost_worker_stops_the_run_and_loses_no_line(scoring: Scoring) -> None:
    write(scoring.input, [record | {"completion": "it"} for record in rows(300)] + rows(1) + rows(300))
    scoring.run()
    expected = scoring.bytes()
    scoring.run("limit=256", "overwrite=true")
    with pytest.raises(EngineError, match="a scoring process died"):
        scoring.run("workers=2", scorer=DiesOn("it is"))
    assert len(scoring.scores()) >= 256
    assert expected.startswith(scoring.bytes())
    scoring.run("workers=2")
    assert scoring.bytes() == expected


def test_gz_and_parquet_give_the_same_scores(scoring: Scoring) -> None:
    records = [record | {"completion": record["completion"].replace("\ud800", "")} for record in rows()]
    write(scoring.input, records)
    scoring.run()
    expected = scoring.bytes()
    (scoring.folder / "in.jsonl.gz").write_bytes(gzip.compress(scoring.input.read_bytes()))
    pq.write_table(pa.Table.from_pylist(records), scoring.folder / "in.parquet")
    for name in ("in.jsonl.gz", "in.parquet"):
        scoring.input = scoring.folder / name
        for workers in (1, 2):
            scoring.run(f"workers={workers}", "overwrite=true")
            assert scoring.bytes() == expected
    scoring.run()
    assert "nothing scored again" in scoring.said


def test_an_empty_input_gives_an_empty_output(tmp_path: Path) -> None:
    scoring = Scoring(tmp_path, [])
    assert scoring.run().lines() == 0
    assert scoring.bytes() == b""
    assert "holds no lines" in scoring.said


def test_an_output_that_cannot_be_written_is_refused(scoring: Scoring) -> None:
    (scoring.folder / "folder.jsonl").mkdir()
    for place in ("folder.jsonl", "in.jsonl/out.jsonl"):
        with pytest.raises(ConfigError, match=r"output=\S+: cannot be written \("):
            scoring.run(output=str(scoring.folder / place))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            ["fields.gold=nope"],
            "fields.gold=nope: the first 128 lines have no such field; .* has id,",
        ),
        (["fields.gold=golden"], "did you mean 'gold'"),
        (["fields.prompt=nope", "fields.id=nope"], "fields.prompt=nope: [^\n]*\nfields.id=nope: "),
        (["fields.completion=nope", "on_error=skip"], "fields.completion=nope: "),
    ],
)
def test_a_named_field_that_is_nowhere_is_refused(scoring: Scoring, fields: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + said):
        scoring.run(*fields)
    assert not scoring.output.exists()


def test_a_named_field_may_be_missing_from_some_lines(tmp_path: Path) -> None:
    records = [{"completion": "it is 4"}, {"completion": "it is 4", "target": "4"}]
    scoring = Scoring(tmp_path, records)
    scoring.run("fields.gold=target", "fields.truncated=cut")
    assert [score["value"] for score in scoring.scores()] == [None, 1.0]
    assert "fields.truncated=cut: the first 2 lines have no such field" in scoring.said
    assert "fields.gold" not in scoring.said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["output=a", "input=a"], "is the input"),
        (["output=out.csv"], r"output=out\.csv: expected a name ending in \.jsonl"),
        (["output=out.jsonl.gz"], r"expected a name ending in \.jsonl"),
        (["output=.."], r"output=\.\.: expected a name ending in \.jsonl"),
        (["engine=ray", "input=-"], "engine=ray: input=- cannot be read elsewhere"),
        (["compare=c", "output=-"], "compare: needs input and output to be files"),
        (["on_error=ignore"], "on_error=ignore: expected one of stop, skip"),
        (["workers=0"], "workers=0: expected"),
        (["limit=0"], "limit=0: expected"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SCORE.load(["input=in", "output=out.jsonl", *overrides])


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="the extra `ray` is installed")
def test_without_ray_the_engine_says_what_to_install(scoring: Scoring) -> None:
    with pytest.raises(ConfigError, match=r'pip install "plumbline\[ray\]"'):
        scoring.run("engine=ray")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `ray` is not installed")
@pytest.mark.slow
def test_ray_gives_the_same_bytes(scoring: Scoring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent)]))  # for Ray's processes
    scoring.run(scorer=BatchSum())
    expected = scoring.bytes()
    scoring.run("engine=ray", "workers=2", "overwrite=true", scorer=BatchSum())
    assert scoring.bytes() == expected
    scoring.output.write_bytes(expected[: len(expected) // 2])
    scoring.run("engine=ray", "workers=2", scorer=BatchSum())
    assert scoring.bytes() == expected
