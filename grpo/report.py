"""Writes report.html into a run's folder: what was paid, what was right, what the loop warned of.

    python -m grpo.report outputs/run-20260101-120000-0123456789ab

Works on a run that goes on, has ended or was stopped. Needs the extra `report` (plotly); the page needs
nothing, no network either. Text of models is shown as text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo.report_run import RunRead, read_run
from rewards.config import REFUSED
from rewards.errors import ConfigError, RewardError
from rewards.page import table, text, write_page

SAMPLES = 8
"""Completions shown of each kind."""


def write_report(path: Path) -> Path:
    """Reads a run's folder and writes its report.html; returns the page's path.

    Raises:
        ConfigError: no run with a step in the folder, or plotly is not there.
    """
    run = read_run(path)
    try:
        # plotly is an extra, and slow to load.
        from grpo.report_charts import charts, to_html
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed: the report draws with it; pip install 'plumbline[report]'"
        ) from error
    titles, figures = zip(*charts(run), strict=True)
    body = [f"<h1>{text(path.name)}</h1>", *_facts(run), *_warnings(run)]
    for title, piece in zip(titles, to_html(figures), strict=True):
        body += [f"<h2>{text(title)}</h2>", piece]
    body += [*_samples(run), f"<h2>settings</h2><pre>{text(run.config)}</pre>"]
    page = path / "report.html"
    write_page(str(page), f"report of {path.name}", body)
    return page


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m grpo.report", description="Writes RUN/report.html.")
    parser.add_argument("run", type=Path, help="a run's folder")
    run: Path = parser.parse_args(arguments).run
    try:
        print(write_report(run.absolute()))
    except RewardError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    return 0


def _facts(run: RunRead) -> list[str]:
    last = run.lines[-1]
    state = "finished" if run.summary is not None else f"not finished, at step {last['step']:g}"
    rows = [
        ("state", state),
        ("started", str(run.manifest["created"])),
        ("command", str(run.manifest["command"])),
        ("seed", str(run.manifest["seed"])),
        ("config", str(run.manifest["config_hash"])),
    ]
    measured = [line for line in run.lines if any(name.startswith("eval/") for name in line)]
    facts = [table(("", ""), rows)]
    shown = measured[:1] + measured[1:][-1:]
    if shown:
        names = [name for name in shown[-1] if name.startswith("eval/")]
        rows = (
            [name.removeprefix("eval/"), *(f"{line[name]:.3f}" if name in line else "-" for line in shown)]
            for name in names
        )
        heading = ("", *(f"step {line['step']:g}" for line in shown))
        facts += ["<h2>held-out problems</h2>", table(heading, rows)]
    return facts


def _warnings(run: RunRead) -> list[str]:
    if not run.marks:
        return []
    rows = ([str(mark.step), mark.kind, mark.text] for mark in run.marks)
    return ["<h2>alarms and refits</h2>", table(("step", "what", "why"), rows)]


def _samples(run: RunRead) -> list[str]:
    """The best and the worst paid of the latest step, and those where what is paid and what is right part."""
    different = {(row["prompt"], row["text"]): row for row in run.samples if row["reward"] is not None}
    paid = sorted(different.values(), key=lambda row: row["reward"])
    wrong = [row for row in reversed(paid) if row["right"] is False]
    right = [row for row in paid if row["right"] is True]
    kinds = {
        "best paid": paid[::-1],
        "worst paid": paid,
        "wrong, and paid most": wrong,
        "right, and paid least": right,
    }
    shown = [f"<h2>completions of step {run.samples[0]['step']}</h2>"] if run.samples else []
    for title, rows in kinds.items():
        if rows:
            shown += [f"<h3>{text(title)}</h3>", _sample_table(rows[:SAMPLES])]
    return shown


def _sample_table(rows: Sequence[dict[str, Any]]) -> str:
    parts = [name.removesuffix("/value") for name in rows[0] if name.endswith("/value")]
    return table(
        ("prompt", "completion", "gold", "right", "reward", *parts),
        (
            [
                row["prompt"],
                row["text"],
                " and ".join(row["gold"]),
                {True: "yes", False: "no", None: "-"}[row["right"]],
                f"{row['reward']:.3f}",
                *("-" if (value := row[f"{part}/value"]) is None else f"{value:.3f}" for part in parts),
            ]
            for row in rows
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
