"""Scores, lengths and samples of a step -> metrics; and the files they are kept in.

Knows scores and completions as they come from rollout and scorer, not how a model was updated. The summaries
are pure functions of nested lists, one inner list per group. Names and their meaning: `grpo.names`.

`metrics.jsonl` has one object per step. json has no NaN, so numbers that are not finite are written as the
strings "NaN", "Infinity" and "-Infinity" and come back as numbers from `read_metrics`. A resumed run's file
equals an uninterrupted one, `timing_s/` and `perf/` apart.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from grpo.durable import sync, write_text, write_whole
from rewards.types import Problem, Score, Verdict

ACCURACY = "accuracy"
"""The component that decides what is right: its value is above 0."""


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """One completion of a step with all that was made of it, for files and screens.

    token_ids: as sampled. advantage: 0.0 where there was none.
    """

    problem: Problem
    text: str
    token_ids: tuple[int, ...]
    truncated: bool
    score: Score
    advantage: float


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


def component(score: Score, name: str) -> Score | None:
    """The score of a component, or None where the reward has none of that name."""
    return next((part.score for part in score.parts if part.name == name), None)


def is_correct(score: Score) -> bool | None:
    """Whether the accuracy component passed; None where it did not judge or there is none."""
    accuracy = component(score, ACCURACY)
    return None if accuracy is None or accuracy.value is None else accuracy.value > 0


def summarise_scores(groups: Sequence[Sequence[Score]]) -> dict[str, float]:
    """Rewards, verdicts, reasons and signal of a step's groups."""
    values = _values(groups)
    found: dict[str, float] = _moments("reward", "reward_std", values)
    flat = sorted(value for group in values for value in group)
    if flat:
        found |= {"reward/p10": _percentile(flat, 0.1), "reward/p90": _percentile(flat, 0.9)}
    found |= _verdicts("total", [score for group in groups for score in group])
    for name in dict.fromkeys(part.name for group in groups for score in group for part in score.parts):
        parts = [[part for score in group if (part := component(score, name))] for group in groups]
        found |= _moments(f"reward/{name}/mean", f"reward/{name}/std", _values(parts))
        flat_parts = [part for group in parts for part in group]
        found |= _verdicts(name, flat_parts)
        reasons = Counter(part.reason.value for part in flat_parts)
        found |= {f"reason/{name}/{code}": n / len(flat_parts) for code, n in sorted(reasons.items())}
    return found | _signal(groups, values)


def summarise_lengths(
    lengths: Sequence[int], truncated: Sequence[bool], correct: Sequence[bool | None]
) -> dict[str, float]:
    """Lengths in tokens of a step's completions, apart for those that ended, were right and were wrong."""
    rows = list(zip(lengths, truncated, correct, strict=True))
    found: dict[str, float] = {}
    for kind, chosen in (
        ("length", [length for length, _, _ in rows]),
        ("terminated_length", [length for length, cut, _ in rows if not cut]),
    ):
        if chosen:
            found[f"completions/mean_{kind}"] = statistics.fmean(chosen)
            found[f"completions/min_{kind}"] = float(min(chosen))
            found[f"completions/max_{kind}"] = float(max(chosen))
    if rows:
        found["completions/clipped_ratio"] = sum(truncated) / len(rows)
    for kind, wanted in (("correct", True), ("wrong", False)):
        chosen = [length for length, _, right in rows if right is wanted]
        if chosen:
            found[f"completions/length_{kind}"] = statistics.fmean(chosen)
    return found


def summarise_duplicates(groups: Sequence[Sequence[tuple[int, ...]]]) -> dict[str, float]:
    """Share of completions (token ids) equal to an earlier one of their group."""
    total = sum(len(group) for group in groups)
    repeated = sum(len(group) - len(set(group)) for group in groups)
    return {"groups/duplicates": repeated / total} if total else {}


def summarise_advantages(advantages: Sequence[float]) -> dict[str, float]:
    """Spread of a step's advantages, one per completion."""
    if not advantages:
        return {}
    return {
        "advantages/mean": statistics.fmean(advantages),
        "advantages/std": statistics.stdev(advantages) if len(advantages) > 1 else 0.0,
        "advantages/min": min(advantages),
        "advantages/max": max(advantages),
        "advantages/zero_frac": sum(advantage == 0 for advantage in advantages) / len(advantages),
    }


def summarise_step(groups: Sequence[Sequence[CompletionRow]]) -> dict[str, float]:
    """All of the above for the completions of a step, one inner sequence per group."""
    rows = [row for group in groups for row in group]
    return (
        summarise_scores([[row.score for row in group] for group in groups])
        | summarise_lengths(
            [len(row.token_ids) for row in rows],
            [row.truncated for row in rows],
            [is_correct(row.score) for row in rows],
        )
        | summarise_duplicates([[row.token_ids for row in group] for group in groups])
        | summarise_advantages([row.advantage for row in rows])
    )


def _signal(groups: Sequence[Sequence[Score]], values: Sequence[Sequence[float]]) -> dict[str, float]:
    """Shares of groups that teach something, by reward and by right and wrong."""
    if not groups:
        return {}
    found = {"frac_reward_zero_std": sum(_is_constant(group) for group in values) / len(groups)}
    kinds = [{right for score in group if (right := is_correct(score)) is not None} for group in groups]
    if any(kinds):
        for name, kind in (("mixed", {True, False}), ("all_good", {True}), ("all_bad", {False})):
            found[f"groups/frac_{name}"] = sum(found_kind == kind for found_kind in kinds) / len(groups)
    return found


def _is_constant(values: Sequence[float]) -> bool:
    """Equal up to rounding, by the rule of `grpo.advantage.constant_groups`: all advantages are 0."""
    if len(values) < 2:
        return True
    return max(values) - min(values) <= 1e-6 * max(1.0, abs(statistics.fmean(values)))


def _values(groups: Sequence[Sequence[Score]]) -> list[list[float]]:
    return [[score.value for score in group if score.value is not None] for group in groups]


def _moments(mean: str, std: str, values: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean over all values, and the mean over groups of two or more of their deviation (n - 1)."""
    flat = [value for group in values for value in group]
    deviations = [statistics.stdev(group) for group in values if len(group) > 1]
    found = {mean: math.fsum(flat) / len(flat)} if flat else {}
    return found | ({std: statistics.fmean(deviations)} if deviations else {})


def _verdicts(name: str, scores: Sequence[Score]) -> dict[str, float]:
    counts = Counter(score.verdict for score in scores)
    return {f"verdict/{name}/{verdict.value}": counts[verdict] / len(scores) for verdict in Verdict if scores}


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy's default."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


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
