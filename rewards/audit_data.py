"""The problems an audit looks at: read from a file as it is, or prepared by `python -m data_prep.run`.

Preparing and auditing meet in files only, so preparing runs as a program of its own. Knows where problems
come from, nothing of what is wrong with them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.columns import Fields, problem_of, resolve_fields
from rewards.errors import DataError
from rewards.io import iter_jsonl
from rewards.types import Problem


@dataclass(frozen=True, slots=True)
class Audited:
    """The problems to look at; origin: where they come from, in words; said: fields taken for what."""

    problems: list[Problem]
    origin: str
    said: list[str]


def load_audited(data: Mapping[str, Any]) -> Audited:
    """The problems that a `data` node of the configuration names.

    dataset=jsonl reads the file at path (jsonl, gz or parquet; synonyms of the field names are found); others
    are prepared first. Raises DataError naming what cannot be read.
    """
    dataset, path = str(data["dataset"]), data.get("path")
    if dataset == "jsonl":
        return _read(str(path), str(path))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "set" if dataset == "arithmetic" else "set.jsonl")
        _prepare(dataset, data, output)
        file = output / "train.jsonl" if dataset == "arithmetic" else output
        return _read(str(file), f"{dataset}, prepared")


def _prepare(dataset: str, data: Mapping[str, Any], output: Path) -> None:
    settings: dict[str, object] = {"dataset": dataset, "output": output}
    if dataset == "arithmetic":
        settings["arithmetic.max_operand"] = data["max_operand"]
        settings["arithmetic.terms"] = data["terms"]
    elif data.get("path") is not None:
        settings["source"] = data["path"]
    command = [
        sys.executable,
        "-m",
        "data_prep.run",
        *(f"{key}={_quoted(settings[key])}" for key in settings),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", file=sys.stderr)  # its table: stdout is for our own findings
    if done.returncode:
        raise DataError(f"data={dataset}: preparing it failed, see above; data.path=... reads another place")


def _quoted(value: object) -> str:
    """A value in the grammar of Hydra's overrides, in which a path may hold anything."""
    if not isinstance(value, (str, Path)):
        return "null" if value is None else str(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _read(path: str, origin: str) -> Audited:
    said: list[str] = []
    problems: list[Problem] = []
    fields: Fields | None = None
    for number, record in iter_jsonl(path):
        if fields is None:
            # An answer beside a question is its gold: there are no completions in a dataset.
            fields, said = resolve_fields(Fields(), {**record, "completion": ""})
        row_id, problem = problem_of(record, fields, f"{path}, line {number}")
        problems.append(problem if row_id is not None else _numbered(problem, number))
    if not problems:
        raise DataError(f"{path}: no problems: expected one JSON object a line")
    return Audited(problems, origin, said)


def _numbered(problem: Problem, number: int) -> Problem:
    return Problem(f"row {number}", problem.prompt, problem.gold, problem.answer_type)
