"""A run's directory read back, finished or not, for its report. Knows files and metric names, not charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from grpo.alarms import REFIT_TAKEN, AlarmSettings, Line, alarm_metric, raised
from grpo.metrics import read_metrics
from grpo.rundir import RunSummary, read_manifest, read_summary
from rewards.errors import ConfigError

ALARM = alarm_metric("")
REFIT, REFUSED = "refit", "refit refused"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a step. kind: REFIT, REFUSED, or that of an alarm; text: why, in words."""

    step: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class RunRead:
    """One run.

    lines: of metrics.jsonl, that of step 0 first. summary: None while the run is not finished. samples: rows
    of the latest file of completions.
    """

    path: Path
    manifest: dict[str, Any]
    config: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    summary: RunSummary | None
    samples: tuple[dict[str, Any], ...]


def read_run(path: Path) -> RunRead:
    """Reads what is there.

    Raises:
        ConfigError: no run's directory, or one without a single step.
    """
    manifest = read_manifest(path)
    if manifest is None:
        raise ConfigError(f"{path}: no manifest.json here; expected a run's folder, such as outputs/run-...")
    lines = read_metrics(path / "metrics.jsonl")
    if not any(line["step"] > 0 for line in lines):
        raise ConfigError(f"{path}: metrics.jsonl has no step yet; wait for the first one")
    files = sorted((path / "completions").glob("step_*.parquet"))
    samples = pq.read_table(files[-1]).to_pylist() if files else []
    config = (path / "config.yaml").read_text(encoding="utf-8")
    watch = yaml.safe_load(config)["watch"]
    settings = AlarmSettings(*(watch[field.name] for field in fields(AlarmSettings)))
    marks = tuple(marks_of(lines, settings))
    return RunRead(path, manifest, config, tuple(lines), marks, read_summary(path), tuple(samples))


def marks_of(lines: Sequence[Line], settings: AlarmSettings) -> list[Mark]:
    """Alarms, with the reasons that their run gave, and refits, taken and refused, in order."""
    found: list[Mark] = []
    steps = [line for line in lines if line["step"] > 0]
    for place, line in enumerate(steps):
        step = int(line["step"])
        kinds = [name.removeprefix(ALARM) for name in line if name.startswith(ALARM)]
        alarms = raised(steps[: place + 1], settings) if kinds else []
        for kind in kinds:
            found.append(Mark(step, kind, "; ".join(alarm.text for alarm in alarms if alarm.kind == kind)))
        if REFIT_TAKEN in line:
            found.append(Mark(step, REFIT if line[REFIT_TAKEN] else REFUSED, _refit_text(line)))
    return found


def _refit_text(line: Line) -> str:
    """What a refit did to the AUC within questions."""
    return "; ".join(
        f"AUC on {what} {line[name]:.3f} -> {line[f'{name}_after']:.3f}"
        for name, what in (("refit/auc_new", "this round"), ("refit/auc_old", "earlier rounds"))
        if name in line and f"{name}_after" in line
    )


def column(lines: Sequence[Line], name: str) -> tuple[list[float], list[float]]:
    """(steps, values) of a metric, where it is known and finite."""
    known = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
    return [step for step, _ in known], [value for _, value in known]


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """Means over the last `window` values, over fewer at the start.

    >>> smoothed([1.0, 2.0, 6.0], 2)
    [1.0, 1.5, 4.0]
    """
    return [
        math.fsum(values[max(0, end - window) : end]) / min(window, end) for end in range(1, len(values) + 1)
    ]
