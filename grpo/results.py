"""What an evaluation leaves: a table on the screen, and a folder with results.json and samples.parquet.

The folder `<label>-<date>/` appears whole, by a rename. Knows files and tables; computes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo.circumstances import circumstances
from grpo.evaluate_config import EvaluateConfig
from grpo.metrics import completions_table
from grpo.rundir import create_folder
from grpo.summaries import CompletionRow
from rewards.compare import visible
from rewards.durable import sync, sync_tree, write_json
from rewards.intervals import Interval


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A completion that is kept. answer_class: equal for equal answers to one problem, None without one."""

    row: CompletionRow
    answer_class: int | None
    greedy: bool


def write_results(
    config: EvaluateConfig, figures: Mapping[str, Interval], samples: Sequence[SampleRow]
) -> Path:
    """Writes the folder and returns its path."""
    parent = Path(config.output_dir).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{config.label}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    beside = parent / f".writing-{name}-{os.getpid()}"
    beside.mkdir()
    try:
        content = {
            "figures": {name: asdict(interval) for name, interval in figures.items()},
            "settings": asdict(config),
            **circumstances(),
        }
        write_json(beside / "results.json", content)
        pq.write_table(samples_table(samples), beside / "samples.parquet")
        sync_tree(beside)
        final = create_folder(parent, name)
        os.replace(beside, final)  # an empty folder gives way to a full one
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync(parent)
    return final


def samples_table(samples: Sequence[SampleRow]) -> pa.Table:
    """A row per completion, in the columns of a run's completions; `reward` is what chose the best of n."""
    table = completions_table(0, [sample.row for sample in samples]).drop_columns(["step", "advantage"])
    greedy = pa.array([sample.greedy for sample in samples], pa.bool_())
    classes = pa.array([sample.answer_class for sample in samples], pa.int64())
    return table.append_column("greedy", greedy).append_column("answer_class", classes)


def print_measures(console: Console, figures: Mapping[str, Interval], config: EvaluateConfig) -> None:
    """A row for each figure, with its interval and the problems it is over."""
    title = f"{config.model.path} on {config.data.dataset}, {config.sampling.samples} samples"
    if config.reward.components:
        title += f", best by {'+'.join(config.reward.components)}"
    table = Table(title=Text(visible(title)), title_justify="left")
    level = f"{100 * config.estimate.level:g} %"
    for heading in ("", "mean", f"{level} low", "high", "problems"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, x in figures.items():
        table.add_row(name, *(_number(value) for value in (x.mean, x.low, x.high)), str(x.problems))
    console.print(table)


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
