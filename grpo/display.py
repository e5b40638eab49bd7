"""What a person sees of a run: a line per step, warnings, samples and tables.

Knows metric names and rich; decides nothing. Text of models and data is shown as text: it goes through
`rewards.compare.visible` and never through rich's markup, so control codes and tags have no effect. Without a
terminal the same lines come out plain and unwrapped. One display per run, in the main process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from grpo.health import HealthWatch
from grpo.summaries import CompletionRow
from rewards.compare import visible

Metrics = Mapping[str, float]

_ETA_WINDOW = 20
_SHOWN_CHARS = 400


class StepDisplay:
    """The lines of a run while it goes on. A context manager: leaving it takes the phase off the screen."""

    def __init__(self, steps: int, console: Console | None = None) -> None:
        """steps: the run's last step."""
        self.console = console or Console()
        self.health = HealthWatch()
        self._steps = steps
        self._seconds: deque[float] = deque(maxlen=_ETA_WINDOW)
        self._status: Status | None = None

    def phase(self, text: str) -> None:
        """Shows what is going on, such as "step 3: rollout", until the next call; only on a terminal."""
        if not self.console.is_terminal:
            return
        if self._status is None:
            self._status = self.console.status(Text(text))
            self._status.start()
        else:
            self._status.update(Text(text))

    def step(self, step: int, metrics: Metrics) -> None:
        """Prints the line of a step and whatever is worth a warning for the first time."""
        if "timing_s/step" in metrics:
            self._seconds.append(metrics["timing_s/step"])
        self._line(step_line(step, self._steps, metrics, self._eta(step)))
        for text in self.health.notice(metrics):
            self._line(f"  note: {text}", "yellow")

    def say(self, text: str) -> None:
        """Prints a line of our own words."""
        self._line(text)

    def close(self) -> None:
        """Takes the phase off the screen."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _eta(self, step: int) -> float | None:
        """Seconds to the last step at the pace of the last twenty."""
        if not self._seconds:
            return None
        return (self._steps - step) * sum(self._seconds) / len(self._seconds)

    def _line(self, text: str, style: str = "") -> None:
        self.console.print(Text(visible(text, tail=len(text)), style=style), soft_wrap=True)


def step_line(step: int, steps: int, metrics: Metrics, eta: float | None = None) -> str:
    """The step in one line; what the metrics lack is left out.

    >>> step_line(3, 60, {"reward": 0.5, "reward_std": 0.25, "kl": 0.001, "completions/clipped_ratio": 0.02})
    'step  3/60  reward 0.500 ± 0.250  kl 0.0010  clipped 2%'
    """
    width = len(str(steps))
    pieces = [f"step {step:>{width}}/{steps}"]
    if "reward" in metrics:
        spread = f" ± {metrics['reward_std']:.3f}" if "reward_std" in metrics else ""
        pieces.append(f"reward {metrics['reward']:.3f}{spread}")
    judged = (
        ("reward/accuracy/mean", "accuracy") if "reward/accuracy/mean" in metrics else ("watch/gold", "gold")
    )
    for name, label, form in (
        (*judged, "{:.3f}"),
        ("kl", "kl", "{:.4f}"),
        ("completions/mean_length", "length", "{:.1f}"),
        ("completions/clipped_ratio", "clipped", "{:.0%}"),
        ("perf/tokens_per_s", "tokens/s", "{:,.0f}"),
    ):
        if name in metrics:
            pieces.append(f"{label} {form.format(metrics[name])}")
    if eta is not None and step < steps:
        pieces.append(f"eta {in_time(eta)}")
    return "  ".join(pieces)


def in_time(seconds: float) -> str:
    """A duration in its two largest units.

    >>> in_time(8), in_time(95), in_time(7260)
    ('8s', '1m35s', '2h01m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def print_headline(console: Console, before: Metrics, after: Metrics) -> None:
    """Held-out results before and after training, a row for each name in either.

    Only names that begin with `eval/` are shown, without it. A name with `<name>_low` and `<name>_high`
    beside it is shown with that interval.
    """
    table = Table(title="held-out problems", title_justify="left")
    for heading in ("", "before", "after", "change"):
        table.add_column(heading, justify="left" if not heading else "right", overflow="fold")
    bounds = ("_low", "_high")
    for name in dict.fromkeys([*before, *after]):
        if not name.startswith("eval/"):
            continue
        if name.endswith(bounds) and name.removesuffix("_low").removesuffix("_high") in {*before, *after}:
            continue
        change = after[name] - before[name] if name in before and name in after else math.nan
        table.add_row(
            Text(name.removeprefix("eval/")),
            _with_interval(before, name),
            _with_interval(after, name),
            _signed(change),
        )
    console.print(table)


def print_health(console: Console, health: HealthWatch) -> None:
    """Everything that was worth a warning, once more at the end."""
    for text in health.summary():
        console.print(Text(f"note: {text}", style="yellow"), soft_wrap=True)


def print_plan(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """What a step will do: (quantity, value, note) rows, for a dry run."""
    table = Table(title="plan of a step", title_justify="left")
    for heading in ("quantity", "value", "note"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell, tail=len(cell))) for cell in row))
    console.print(table)


def print_samples(console: Console, rows: Sequence[CompletionRow], title: str = "completions") -> None:
    """Completions with what each component made of them and why; nothing where there are none."""
    if not rows:
        return
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    for heading in ("prompt", "completion", "gold", "reward", "advantage"):
        table.add_column(heading, overflow="fold", justify="left")
    for row in rows:
        table.add_row(
            _shown(row.problem.prompt),
            _shown(row.text) + Text(" […cut off]" if row.truncated else "", style="red"),
            _shown(" and ".join(row.problem.gold)),
            _verdicts(row),
            _signed(row.advantage),
        )
    console.print(table)


def _verdicts(row: CompletionRow) -> Text:
    """The reward, and a line per component: value, reason and the notes that explain it."""
    lines = [_number(row.score.value) if row.score.value is not None else row.score.verdict.value]
    for part in row.score.parts:
        value = part.score.verdict.value if part.score.value is None else f"{part.score.value:g}"
        notes = ", ".join(f"{name}: {note}" for name, note in part.score.notes.items())
        lines.append(f"{part.name} {value} {part.score.reason.value}" + (f" ({notes})" if notes else ""))
    return _shown("\n".join(lines))


def _shown(text: str) -> Text:
    return Text(visible(text, tail=_SHOWN_CHARS))


def _with_interval(values: Metrics, name: str) -> str:
    if name not in values:
        return "-"
    low, high = values.get(f"{name}_low"), values.get(f"{name}_high")
    interval = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return _number(values[name]) + interval


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f}"
