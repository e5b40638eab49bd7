"""Scores a file of model outputs, without any trainer:
`python -m rewards.score reward=verifiable+format input=outputs.jsonl output=scores.jsonl`.

One line of JSON for each input line, in order: `{"id", "verdict": "scored|abstained|failed", "value",
"reason", "parts": [{"name", "weight", "verdict", "value", "reason", "notes"}], "steps": [{"start", "end",
"value"}]}`. An id that the input lacks is the line number. What people read (progress, summary, comparison)
goes to stderr. Exit status: 0 done, 2 refused or broken off with a reason, 130 interrupted. However a run
ended, the same command continues its output.

This module connects the pieces: records, chunks, an engine, a sink. It reads no format and judges no text.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from rewards.build import build_scorer
from rewards.chunks import Chunk, Judge, ScoredChunk, iter_chunks
from rewards.columns import Fields, check_named, resolve_fields
from rewards.compare import check_comparable, compare_files, input_of, show_comparison
from rewards.config import hydra_entry
from rewards.engines import score_here, score_in_processes
from rewards.errors import ConfigError, DataError, EngineError
from rewards.io import STDIN, RecordReader
from rewards.ray_engine import score_on_ray
from rewards.records import decode_record
from rewards.score_config import SCORE, ScoreConfig
from rewards.score_file import Resumption, ScoreFile, Sink, StandardOutput
from rewards.scorer import Scorer
from rewards.tally import Tally, summary_table

_INTERRUPTED = 130
_READER_GONE = 141
"""What a shell reports of a program that SIGPIPE ended."""
_MIN_LINES_FOR_SHARE = 1000


@hydra_entry(SCORE)
def main(config: ScoreConfig) -> None:
    """The program."""
    console = Console(stderr=True)
    try:
        run(config, build_scorer(config.reward), console)
    except KeyboardInterrupt as stop:
        goes_on = "" if config.output == STDIN else "; the same command continues"
        _say(console, f"interrupted{goes_on}")
        raise SystemExit(_INTERRUPTED) from stop
    except BrokenPipeError as gone:
        # Whoever read our stdout has seen enough (`| head`); the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_READER_GONE) from gone


def run(config: ScoreConfig, scorer: Scorer, console: Console) -> Tally:
    """Scores config.input into config.output and compares where asked; returns the counts of the file.

    Raises DataError for an unreadable line (unless on_error=skip), ConfigError for an output that is not this
    run's, EngineError when too many lines failed. Lines before the fault are in the output.
    """
    started = time.monotonic()
    if config.compare is not None:
        check_comparable(config.compare)
    reader = RecordReader(config.input)
    fields, said, chunks = _with_fields(
        iter_chunks(reader, config.limit), config.fields.names(), config.input
    )
    for line in said:
        _say(console, f"{config.input}: {line}")
    judge = Judge(scorer, fields, config.input, skip_errors=config.on_error == "skip")
    if os.path.exists(config.output) and not config.overwrite:
        _say(console, f"{config.output}: is there, and is checked before going on")  # a minute for a million
    with ExitStack() as stack:
        sink, rest = _sink(config, fields, chunks, stack)
        if rest.lines:
            _say(console, f"{config.output}: {rest.lines:,} lines are there, checked against the input")
        scored = _engine(config, rest, judge)
        shown = reader if config.engine == "local" else None
        tally = _drain(scored, rest, sink, config.max_failed_share, _Display(console, shown))
    new_lines = tally.lines() - rest.lines
    _say_summary(console, config, tally, new_lines, time.monotonic() - started)
    if config.compare is not None:
        result = compare_files(config.output, config.compare)
        inputs = (os.path.abspath(config.input), input_of(config.compare))
        show_comparison(console, result, inputs, config.fields.names(), (config.output, config.compare))
    return tally


class _Display:
    """A progress bar on a terminal, nothing in a log; reader tells the share done, None: unknown."""

    def __init__(self, console: Console, reader: RecordReader | None) -> None:
        self._reader = reader
        self._started = time.monotonic()
        self._lines = 0
        columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task: TaskID = self.bar.add_task("starting", total=None)

    def show(self, tally: Tally, new_lines: int) -> None:
        """Shows how far the run is."""
        self._lines += new_lines
        share = self._reader.share_read() if self._reader else None
        rate = self._lines / max(1e-9, time.monotonic() - self._started)
        mean = tally.whole.mean()
        words = f"{tally.lines():,} lines  {rate:,.0f}/s  mean {'-' if mean is None else f'{mean:.4f}'}"
        total = None if share is None else 1.0
        self.bar.update(self._task, description=words, total=total, completed=share or 0.0)


def _with_fields(
    chunks: Iterator[Chunk], fields: Fields, path: str
) -> tuple[Fields, list[str], Iterator[Chunk]]:
    """Looks at the readable records of the first chunk to find the fields; returns the chunks whole again."""
    first = next(chunks, None)
    if first is None:
        return fields, ["holds no lines"], chunks
    records: list[dict[str, Any]] = []
    for number, raw in enumerate(first.records, start=first.first):
        try:
            records.append(decode_record(path, number, raw))
        except DataError:
            continue  # reported, or skipped, when it is scored
    again = chain([first], chunks)
    if not records:
        return fields, [], again
    absent = check_named(fields, records, path)
    resolved, said = resolve_fields(fields, records[0])
    return resolved, [*absent, *said], again


def _sink(
    config: ScoreConfig, fields: Fields, chunks: Iterator[Chunk], stack: ExitStack
) -> tuple[Sink, Resumption]:
    if config.output == STDIN:
        return StandardOutput(), Resumption(chunks, 0, 0, Tally())
    settings: dict[str, Any] = {
        "plumbline": _version(),
        "fields": dataclasses.asdict(fields),
        "reward": dataclasses.asdict(config.reward),
    }
    source = config.input if config.input == STDIN else os.path.abspath(config.input)
    out = stack.enter_context(ScoreFile(config.output, settings, source, config.overwrite))
    return out, out.pick_up(chunks, config.input, fields)


def _engine(config: ScoreConfig, rest: Resumption, judge: Judge) -> Iterator[ScoredChunk]:
    if config.engine == "ray":
        done = rest.lines - rest.skip
        return score_on_ray(config.input, judge, lines_done=done, limit=config.limit, workers=config.workers)
    if config.workers > 1:
        return score_in_processes(rest.chunks, judge, config.workers)
    return score_here(rest.chunks, judge)


def _drain(
    scored: Iterator[ScoredChunk], rest: Resumption, sink: Sink, max_failed_share: float, display: _Display
) -> Tally:
    """Takes scored chunks into the sink until they end, or a line or too many failures stop the run."""
    tally, skip = rest.tally, rest.skip
    with display.bar:
        for chunk in scored:
            if chunk.refusal:
                raise ConfigError(chunk.refusal)
            sink.append(chunk.lines[skip:], chunk.digests[skip:])
            tally.merge(chunk.tally)
            display.show(tally, len(chunk.lines) - skip)
            skip = 0
            if chunk.error:
                raise DataError(f"{chunk.error} (on_error=skip writes a failed record instead)")
            if tally.lines() >= _MIN_LINES_FOR_SHARE:
                _stop_on_failures(tally, max_failed_share)
    _stop_on_failures(tally, max_failed_share)
    return tally


def _stop_on_failures(tally: Tally, max_failed_share: float) -> None:
    if tally.failed() > max_failed_share * tally.lines():
        raise EngineError(
            f"{tally.failed():,} of {tally.lines():,} lines failed through no fault of theirs "
            f"(max_failed_share={max_failed_share:g}): {'; '.join(tally.faults) or 'see their reasons'}"
        )


def _say_summary(console: Console, config: ScoreConfig, tally: Tally, new_lines: int, seconds: float) -> None:
    if new_lines == 0 and tally.lines():
        headline = f"{config.output}: finished already, {tally.lines():,} lines, nothing scored again"
    else:
        rate = new_lines / max(seconds, 1e-9)
        headline = f"{new_lines:,} lines scored in {seconds:.1f} s ({rate:,.0f} outputs/s)"
    _say(console, headline)
    console.print(summary_table(tally))
    for fault in tally.faults:
        _say(console, f"failed: {fault}")


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)  # one line stays one line, also in a log


def _version() -> str:
    try:
        return version("plumbline")
    except PackageNotFoundError:  # run from a copy that is not installed
        return ""


if __name__ == "__main__":
    main()
