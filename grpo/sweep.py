"""One table over all jobs of a multirun, such as `python -m grpo.train -m reward=verifiable,format seed=0,1`.

Knows Hydra's callbacks and run directories; nothing of training. Each job leaves a record in
`outputs/sweep-<date>/job-<number>.json`, whichever launcher runs it and in whichever process: the callback is
pickled with the job and knows the folder. The table is printed and kept there as table.md and table.json.
Numbers come from the summaries in the run directories, so a job finished earlier is in the table too.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import TaskFunction
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo.rundir import RunDir, create_folder, read_summary
from rewards.compare import visible
from rewards.durable import write_json, write_text

ACCURACY = "eval/heldout/accuracy"

_PLAIN_WIDTH = 160
"""Columns of the table where there is no terminal whose width would count."""

_job: ContextVar[Path | None] = ContextVar("job record", default=None)
"""The record of the job that this process is in: Hydra hands the job its configuration and nothing else."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job leaves for the table. earlier: finished before this multirun. error: what it raised."""

    overrides: list[str]
    directory: str | None = None
    earlier: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the table. overrides: its own, those common to all left out. None: not known (yet)."""

    number: int
    overrides: tuple[str, ...]
    status: str
    directory: str | None
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    reward: float | None = None
    minutes: float | None = None


class SweepTable(Callback):
    """Keeps the records of a multirun's jobs, prints their table at the end; idle in a single run."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def on_multirun_start(self, config: DictConfig, config_name: str | None = None) -> None:
        """Makes the folder of the sweep."""
        name = f"sweep-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self._folder = create_folder(Path(str(config.hydra.sweep.dir)), name)
        # Hydra leaves out on_multirun_end when a job has failed, which is when the table is wanted most.
        atexit.register(self._finish)

    def on_job_start(self, config: DictConfig, *, task_function: TaskFunction) -> None:
        """Records which job begins."""
        if self._folder is None:
            return
        path = self._folder / f"job-{int(config.hydra.job.num):04d}.json"
        _write(path, JobRecord([str(item) for item in config.hydra.overrides.task]))
        _job.set(path)

    def on_job_end(self, config: DictConfig, job_return: JobReturn) -> None:
        """Records what a failed job failed of."""
        path = _job.get()
        if path is None:
            return
        _job.set(None)
        if job_return.status is JobStatus.FAILED:
            error = job_return._return_value  # the public property would raise it here
            first_line = f"{type(error).__name__}: {error}".splitlines()[0]
            _write(path, replace(_read(path), error=visible(first_line)))

    def on_multirun_end(self, config: DictConfig, config_name: str | None = None) -> None:
        """Prints and keeps the table."""
        atexit.unregister(self._finish)
        self._finish()

    def _finish(self) -> None:
        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        rows, common = read_rows(folder)
        if not rows:  # refused before the first job
            folder.rmdir()
            return
        write_json(folder / "table.json", {"common": list(common), "jobs": [asdict(row) for row in rows]})
        write_text(folder / "table.md", to_markdown(rows, common))
        console = Console()
        if not console.is_terminal:
            console.width = _PLAIN_WIDTH
        print_rows(console, rows, common)
        console.print(Text(f"also in {folder / 'table.md'}"), soft_wrap=True)


def report_job(run: RunDir) -> None:
    """Called by a job once it has its directory, so that the table finds it; idle outside a multirun."""
    path = _job.get()
    if path is not None:
        _write(path, replace(_read(path), directory=str(run.path), earlier=run.summary() is not None))


def read_rows(folder: Path) -> tuple[list[JobRow], tuple[str, ...]]:
    """The jobs of a sweep's folder by number, and the overrides common to all when there are several."""
    records = {path: _read(path) for path in sorted(folder.glob("job-*.json"))}
    asked = [record.overrides for record in records.values()]
    common = tuple(item for item in asked[0] if all(item in job for job in asked)) if len(asked) > 1 else ()
    rows = [_row(int(path.stem.removeprefix("job-")), record, common) for path, record in records.items()]
    return rows, common


def print_rows(console: Console, rows: Sequence[JobRow], common: Sequence[str]) -> None:
    """The table on the screen."""
    table = Table(title=Text(_title(rows, common)), title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    console.print(table)


def to_markdown(rows: Sequence[JobRow], common: Sequence[str]) -> str:
    """The table as text that also reads well unrendered."""
    cells = [_HEADINGS, ["---"] * len(_HEADINGS), *(_cells(row) for row in rows)]
    return "\n".join([f"# {_title(rows, common)}", "", *map(_markdown_row, cells)]) + "\n"


_HEADINGS = ("job", "overrides", "accuracy before", "after", "reward", "minutes", "status", "directory")


def _row(number: int, record: JobRecord, common: Sequence[str]) -> JobRow:
    overrides = tuple(item for item in record.overrides if item not in common)
    summary = None if record.directory is None else read_summary(Path(record.directory))
    if summary is None:
        stopped = "no run directory" if record.directory is None else "unfinished"
        status = stopped if record.error is None else f"failed: {record.error}"
        return JobRow(number, overrides, status, record.directory)
    return JobRow(
        number,
        overrides,
        "finished earlier" if record.earlier else "finished",
        record.directory,
        accuracy_before=summary.before.get(ACCURACY),
        accuracy_after=summary.after.get(ACCURACY),
        reward=summary.reward,
        minutes=summary.seconds / 60,
    )


def _cells(row: JobRow) -> list[str]:
    return [
        str(row.number),
        " ".join(row.overrides) or "-",
        _number(row.accuracy_before, "{:.3f}"),
        _number(row.accuracy_after, "{:.3f}"),
        _number(row.reward, "{:.3f}"),
        _number(row.minutes, "{:.1f}"),
        row.status,
        Path(row.directory).name if row.directory else "-",
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _title(rows: Sequence[JobRow], common: Sequence[str]) -> str:
    title = "1 job" if len(rows) == 1 else f"{len(rows)} jobs"
    return f"{title}, all with {' '.join(common)}" if common else title


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _read(path: Path) -> JobRecord:
    return JobRecord(**json.loads(path.read_text(encoding="utf-8")))


def _write(path: Path, record: JobRecord) -> None:
    write_json(path, asdict(record))
