"""Runs of rewards.score on small files, for the tests of what it writes and how it goes on."""

import dataclasses
import functools
import io
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fakes_scorers import GoldInText
from rich.console import Console

from rewards.records import json_line
from rewards.score import run
from rewards.score_config import SCORE, ScoreConfig
from rewards.scorer import Scorer
from rewards.tally import Tally

LINES = 400  # three chunks and a bit


@functools.cache
def composed(*overrides: str) -> ScoreConfig:
    """The settings of a run, its paths still to be put in."""
    return SCORE.load(["input=in", "output=out.jsonl", *overrides])


def rows(count: int = LINES) -> list[dict[str, Any]]:
    draw = random.Random(7)
    return [
        {
            "id": f"q{i}",
            "prompt": f"what is {i}?",
            "gold": None if i % 50 == 0 else str(i),
            "completion": f"it is {i if draw.random() < 0.6 else -1} \x00\ud800\u202e"
            + "y" * draw.randrange(200),
        }
        for i in range(count)
    ]


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(json_line(record) for record in records))
    return path


class Scoring:
    """Runs of one input and output in a folder; said is what the last run printed."""

    def __init__(self, folder: Path, records: Sequence[dict[str, Any]] | None = None) -> None:
        self.folder = folder
        self.input = write(folder / "in.jsonl", rows() if records is None else records)
        self.output = folder / "out.jsonl"
        self.said = ""

    def run(self, *overrides: str, scorer: Scorer | None = None, output: str | None = None) -> Tally:
        printed = io.StringIO()
        config = dataclasses.replace(
            composed(*overrides), input=str(self.input), output=output or str(self.output)
        )
        try:
            return run(config, scorer or GoldInText(), Console(file=printed, width=200))
        finally:
            self.said = printed.getvalue()

    def bytes(self) -> bytes:
        return self.output.read_bytes()

    def scores(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.bytes().splitlines()]

    def break_line(self, number: int, line: bytes) -> None:
        """Puts other bytes, its newline included, in the place of an input line (from 1)."""
        lines = self.input.read_bytes().splitlines(keepends=True)
        lines[number - 1] = line
        self.input.write_bytes(b"".join(lines))


def wait_until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
