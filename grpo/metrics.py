"""The files that metrics and samples are kept in. What the numbers are: `grpo.summaries`, `grpo.names`.

`metrics.jsonl` has one object per step. json has no NaN, so numbers that are not finite are written as the
strings "NaN", "Infinity" and "-Infinity" and come back as numbers from `read_metrics`. A resumed run's file
equals an uninterrupted one, `timing_s/` and `perf/` apart.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from grpo.summaries import CompletionRow, component
from rewards.durable import sync, write_text, write_whole


class MetricsWriter:
    """Appends a line per step to metrics.jsonl and writes completions/step_<step>.parquet.

    One per run, in the main process. Every line is on the disk when `write` returns, so a checkpoint saved
    after it never covers a step that is missing here.
    """

    def __init__(
        self,
        directory: Path,
        covered: int = -1,
        forward: Callable[[dict[str, float], int], object] | None = None,
    ) -> None:
        """Opens the files of a run, back at the state of its checkpoint.

        Args:
            directory: the run's directory.
            covered: the last step whose results are kept, that of the checkpoint; later lines and samples
                were made by a process that was stopped, and are made again. -1 keeps nothing.
            forward: also gets every line, such as `accelerator.log` for Accelerate's trackers.
        """
        self._path = directory / "metrics.jsonl"
        self._completions = directory / "completions"
        self._forward = forward
        kept = [line for line in _lines(self._path) if _step_of(line) <= covered]
        self._last = _step_of(kept[-1]) if kept else -1
        write_text(self._path, "".join(kept))
        for path in self._completions.glob("*.parquet"):
            if path.name.startswith(".writing-") or int(path.stem.removeprefix("step_")) > covered:
                path.unlink()
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a step's line. Steps rise; 0 is the state before the first update."""
        if step <= self._last:
            raise ValueError(f"metrics of step {step} after those of step {self._last}: one line a step")
        self._file.write(_line(step, values))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._last = step
        if self._forward is not None:
            self._forward(dict(values), step)

    def write_completions(self, step: int, rows: Sequence[CompletionRow]) -> None:
        """Writes the step's samples whole, in the order given."""
        if not self._completions.is_dir():
            self._completions.mkdir()
            sync(self._completions.parent)
        table = completions_table(step, rows)
        write_whole(self._completions / f"step_{step:06d}.parquet", lambda path: pq.write_table(table, path))

    def close(self) -> None:
        """Closes metrics.jsonl."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines of a metrics.jsonl, each with its "step"; a last one cut off by a kill is left out."""
    return [{name: float(value) for name, value in json.loads(line).items()} for line in _lines(path)]


def completions_table(step: int, rows: Sequence[CompletionRow]) -> pa.Table:
    """A row per completion, with `<component>/value`, `/verdict`, `/reason` and `/notes` columns."""
    names = list(dict.fromkeys(part.name for row in rows for part in row.score.parts))
    golds = [[_storable(gold) for gold in row.problem.gold] for row in rows]
    columns: dict[str, pa.Array] = {
        "step": pa.array([step] * len(rows), pa.int64()),
        "problem_id": _strings([row.problem.id for row in rows]),
        "prompt": _strings([row.problem.prompt for row in rows]),
        "text": _strings([row.text for row in rows]),
        "gold": pa.array(golds, pa.list_(pa.string())),
        "reward": pa.array([row.score.value for row in rows], pa.float64()),
        "verdict": _strings([row.score.verdict.value for row in rows]),
        "reason": _strings([row.score.reason.value for row in rows]),
        "advantage": pa.array([row.advantage for row in rows], pa.float64()),
        "right": pa.array([row.right for row in rows], pa.bool_()),
        "formatted": pa.array([row.formatted for row in rows], pa.bool_()),
        "length": pa.array([len(row.token_ids) for row in rows], pa.int64()),
        "truncated": pa.array([row.truncated for row in rows], pa.bool_()),
        "token_ids": pa.array([list(row.token_ids) for row in rows], pa.list_(pa.int64())),
    }
    for name in names:
        parts = [component(row.score, name) for row in rows]
        columns[f"{name}/value"] = pa.array([part and part.value for part in parts], pa.float64())
        columns[f"{name}/verdict"] = _strings([part and part.verdict.value for part in parts])
        columns[f"{name}/reason"] = _strings([part and part.reason.value for part in parts])
        columns[f"{name}/notes"] = _strings([part and json.dumps(dict(part.notes)) for part in parts])
    return pa.table(columns)


def _line(step: int, values: Mapping[str, float]) -> str:
    """One json line; see the module for numbers that are not finite."""
    content: dict[str, float | str] = {"step": step}
    for name, value in values.items():
        content[name] = value if math.isfinite(value) else _UNUSUAL[str(float(value))]
    return json.dumps(content, allow_nan=False) + "\n"


_UNUSUAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _lines(path: Path) -> Iterator[str]:
    """The whole lines of a file that may be missing; a kill can only have cut off the last."""
    if path.exists():
        with path.open(encoding="utf-8") as file:
            yield from (line for line in file if line.endswith("\n"))


def _step_of(line: str) -> int:
    return json.loads(line)["step"]


def _strings(values: Sequence[str | None]) -> pa.Array:
    return pa.array([None if value is None else _storable(value) for value in values], pa.string())


def _storable(text: str) -> str:
    """A lone surrogate has no UTF-8: it is kept in sight as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
