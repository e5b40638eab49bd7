"""Trains an outcome or process reward model:
`python -m rewards.fit model=orm data=labelled.jsonl base=some/model output=my-orm`.

Reads labelled completions, holds some questions out, trains on the others by transformers' Trainer
(rewards.models.fitting), and leaves a folder that `reward=orm` or `reward=prm` loads as it is, with a report
(fit.json), a card of the held-out figures (evaluation/card.html) and the calibration. A fit that was
interrupted is gone on with by the same command where checkpoint_every is set; one that is done is not done
again. On several devices: `accelerate launch -m rewards.fit ...`. Exit status: 0 done, 2 refused or broken
off with a reason, 130 interrupted.

This module connects the pieces; it knows neither losses nor weights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewards.config import hydra_entry
from rewards.errors import DataError
from rewards.evaluation import card
from rewards.evaluation.fitted import fit_result, taken
from rewards.fit_config import FIT, FitConfig
from rewards.labelled import Example, read_labelled
from rewards.prepared import PREPARED_FILE, cache_folder, ensure_prepared
from rewards.questions import question_hash, split_by_question

if TYPE_CHECKING:
    from rewards.models.fit_report import FitReport

_INTERRUPTED = 130


@hydra_entry(FIT)
def main(config: FitConfig) -> None:
    """The program."""
    speaks = _is_first()
    console = Console(stderr=True, quiet=not speaks)
    fitted = Path(config.output).exists()  # only a finished fit of the same settings may be there
    try:
        show(run(config, progress=console.is_terminal and speaks), config, console)
        if fitted:
            console.print(Text(f"{config.output} was fitted already, from the same data and settings"))
    except KeyboardInterrupt as stop:
        goes_on = "" if config.checkpoint_every is None else "; the same command goes on"
        console.print(Text(f"interrupted{goes_on}"))
        raise SystemExit(_INTERRUPTED) from stop


def run(config: FitConfig, *, progress: bool) -> FitReport:
    """Trains as the configuration says.

    Raises:
        ConfigError, DataError, EngineError: naming the setting or the line, and the fix.
    """
    source = _labelled_file(config)
    examples = _read("data", source)
    if config.heldout is None:
        train, heldout = split_by_question(examples, config.heldout_share, config.seed)
    else:
        source = Path(config.heldout)
        train, heldout = examples, _read("heldout", source)
    if not train:
        raise DataError(
            f"heldout_share={config.heldout_share}: all {len(heldout)} examples of {source} are held out: "
            "give more questions, a smaller share, or heldout=FILE"
        )
    # These load torch, which checking a configuration must not.
    from rewards.models.fitting import fit
    from rewards.models.loading import local_folder

    convention = config.convention_of(local_folder(config.base, setting="base"))
    settings = config.settings(progress=progress)
    report = fit(config.base, convention, train, heldout, settings, Path(config.output))
    if _is_first():
        questions = len({question_hash(example.question) for example in heldout})
        result = fit_result(report, config.output, str(source), questions)
        card.keep(Path(config.output, card.FOLDER), result)
    return report


def show(report: FitReport, config: FitConfig, console: Console) -> None:
    """Says what came of the fit."""
    losses = [loss for _, loss in report.losses]
    course = f", loss {losses[0]:.4f} -> {losses[-1]:.4f}" if losses else ""
    lines = [
        f"{config.output}: {report.head} head, {taken(report)}; {report.steps} steps{course}, "
        f"{report.seconds:.0f} s",
        f"report card: {Path(config.output, card.FOLDER, card.CARD)}.html, {card.CARD}.md",
    ]
    if report.heldout == 0:
        lines.append(
            "nothing held out: no figures, no calibration; more questions, a larger heldout_share or "
            "heldout=FILE would give some"
        )
    if report.calibration is not None:
        told = report.calibration
        lines.append(f"calibration: sigmoid({told.scale:.4g} x + {told.shift:.4g})")
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    table = Table("held out", f"{report.heldout} examples")
    for name, value in report.metrics.items():
        table.add_row(name, "-" if value is None else f"{value:.4f}")
    if report.metrics:
        console.print(table)


def _is_first() -> bool:
    """Whether this is the first process of a distributed run, the one that speaks and writes."""
    return os.environ.get("RANK", "0") == "0"


def _read(setting: str, file: Path) -> list[Example]:
    examples = read_labelled(file)
    if not examples:
        raise DataError(f"{setting}={file}: is empty: expected labelled completions, one a line")
    return examples


def _labelled_file(config: FitConfig) -> Path:
    """The file of the examples, prepared where `data` is the name of a set."""
    if config.names_file():
        return Path(config.data)
    return ensure_prepared({"dataset": config.data, "source": config.source}, cache_folder()) / PREPARED_FILE


if __name__ == "__main__":
    main()
