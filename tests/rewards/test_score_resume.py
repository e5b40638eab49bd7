"""A score file goes on after any end, and never mixes two rewards or two inputs."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes_scorers import BatchSum, DiesOn, GoldInText
from scoring_runs import LINES, Scoring, group_is_gone, rows, wait_until, write

from rewards.errors import ConfigError, DataError
from rewards.scorer import Scorer

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def scoring(tmp_path: Path) -> Scoring:
    return Scoring(tmp_path)


def test_stopped_at_a_broken_line_skip_goes_on(scoring: Scoring) -> None:
    scoring.break_line(200, b"{}\n")
    with pytest.raises(DataError, match="on_error=skip writes a failed record instead"):
        scoring.run()
    scoring.run("on_error=skip")
    assert [score["id"] for score in scoring.scores()] == [f"q{i}" if i != 199 else 200 for i in range(LINES)]


@pytest.mark.parametrize("scorer", [GoldInText(), BatchSum()])
def test_cut_off_at_any_byte_the_same_command_completes_it(scoring: Scoring, scorer: Scorer) -> None:
    scoring.run(scorer=scorer)
    whole = scoring.bytes()
    state = (scoring.folder / "out.jsonl.run.json").read_bytes()
    early = json.dumps(json.loads(state) | {"lines": 0, "digest": ""}).encode()
    draw = random.Random(1)
    cuts = [0, 1, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(40))]
    for cut in cuts:
        scoring.output.write_bytes(whole[:cut])
        (scoring.folder / "out.jsonl.run.json").write_bytes(early)
        scoring.run(scorer=scorer)
        assert scoring.bytes() == whole, f"cut at byte {cut}"


def test_a_finished_file_is_not_scored_again(scoring: Scoring) -> None:
    first = scoring.run()
    before = scoring.bytes(), scoring.output.stat().st_mtime_ns
    again = scoring.run(scorer=DiesOn(""))
    assert (scoring.bytes(), scoring.output.stat().st_mtime_ns) == before
    assert "finished already, 400 lines, nothing scored again" in scoring.said
    assert again == first


@pytest.mark.parametrize("content", [b'{"big": 1, "data": "one line"}', b'{"a": 1}\n', b'{"a": 1}\n{"b":'])
def test_a_file_that_is_not_ours_keeps_every_byte(scoring: Scoring, content: bytes) -> None:
    scoring.output.write_bytes(content)
    with pytest.raises(ConfigError, match="which tells how they were made, is missing"):
        scoring.run()
    assert scoring.bytes() == content
    scoring.run("overwrite=true")
    assert len(scoring.scores()) == LINES


def test_limit_can_be_raised(scoring: Scoring) -> None:
    scoring.run(scorer=BatchSum())
    whole = scoring.bytes()
    scoring.run("limit=10", "overwrite=true", scorer=GoldInText())
    assert len(scoring.scores()) == 10
    scoring.run("limit=10", "overwrite=true")
    scoring.run("limit=150")
    scoring.run()
    expected = scoring.bytes()
    scoring.run("overwrite=true")
    assert scoring.bytes() == expected
    with pytest.raises(DataError, match="holds more lines than the 20 to be scored"):
        scoring.run("limit=20")
    assert whole != expected


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("reward=verifiable", "reward.components.format was .*now null"),
        ("reward.components.format.weight=0.5", "reward.components.format.weight was 0.2, now 0.5"),
        ("fields.gold=prompt", 'fields.gold was "gold", now "prompt"'),
    ],
)
def test_other_settings_never_mix_into_one_file(scoring: Scoring, override: str, said: str) -> None:
    scoring.run("limit=50")
    before = scoring.bytes()
    with pytest.raises(ConfigError, match=said) as caught:
        scoring.run(override)
    assert "overwrite=true" in str(caught.value)
    assert scoring.bytes() == before
    scoring.run(override, "overwrite=true")
    assert len(scoring.scores()) == LINES


def test_an_input_with_other_texts_under_the_same_ids_is_refused(scoring: Scoring) -> None:
    scoring.run()
    write(scoring.input, [record | {"completion": "regenerated"} for record in rows()])
    with pytest.raises(DataError, match="the first 400 lines have changed"):
        scoring.run()
    scoring.run("overwrite=true")
    assert {score["value"] for score in scoring.scores()} == {None, 0.0}


def test_an_input_with_other_ids_is_refused(scoring: Scoring) -> None:
    scoring.run()
    write(scoring.input, [record | {"id": f"r{record['id']}"} for record in rows()])
    with pytest.raises(DataError, match=r"out\.jsonl, line 1: scores id 'q0', but line 1 of .* is id 'rq0'"):
        scoring.run()


def test_a_shorter_input_is_refused_and_a_longer_one_continued(scoring: Scoring) -> None:
    scoring.run()
    expected = scoring.bytes()
    write(scoring.input, rows()[:300])
    with pytest.raises(DataError, match="holds more lines than the 300"):
        scoring.run()
    assert scoring.bytes() == expected
    write(scoring.input, rows(LINES + 77))
    tally = scoring.run()
    assert tally.lines() == LINES + 77
    assert scoring.bytes().startswith(expected)
    assert "77 lines scored" in scoring.said


def test_an_output_of_unknown_origin_is_left_alone(scoring: Scoring) -> None:
    scoring.output.write_text("a diary\n")
    with pytest.raises(ConfigError, match=r"holds lines, but out\.jsonl\.run\.json.*is missing"):
        scoring.run()
    assert scoring.output.read_text() == "a diary\n"


def test_two_runs_do_not_write_one_file(scoring: Scoring) -> None:
    with scoring.output.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another run is writing this file"):
            scoring.run()
    scoring.run()


def test_overwrite_with_an_input_that_is_not_there_loses_nothing(scoring: Scoring) -> None:
    scoring.run()
    before = scoring.bytes()
    scoring.input.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        scoring.run("overwrite=true")
    assert scoring.bytes() == before


SLOW_RUN = """
import sys
from rich.console import Console
from fakes_scorers import Slow
from rewards.score import run
from rewards.score_config import SCORE
run(SCORE.load(sys.argv[1:]), Slow(0.0005), Console(stderr=True))
"""


def start_slow(scoring: Scoring, workers: int) -> "subprocess.Popen[bytes]":
    arguments = [f"input={scoring.input}", f"output={scoring.output}", f"workers={workers}"]
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_when_it_has_written(scoring: Scoring, workers: int, seconds: float) -> None:
    before = scoring.output.stat().st_size if scoring.output.exists() else 0
    process = start_slow(scoring, workers)
    wait_until(lambda: scoring.output.exists() and scoring.output.stat().st_size > before)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)  # the parent alone: its workers must notice by themselves
    process.communicate()
    wait_until(lambda: group_is_gone(process.pid))


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_any_moment_the_same_command_completes_it(tmp_path: Path, workers: int) -> None:
    scoring = Scoring(tmp_path, rows(1500))
    scoring.run()
    expected = scoring.bytes()
    scoring.output.unlink()
    draw = random.Random(workers)
    for kill in range(2):
        kill_when_it_has_written(scoring, workers, draw.random() * 0.1)
        kept = scoring.bytes()
        assert expected.startswith(kept[: kept.rfind(b"\n") + 1]), f"kill {kill}"
    process = start_slow(scoring, workers)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert b"lines are there, checked against the input" in said
    assert scoring.bytes() == expected
