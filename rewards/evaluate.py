"""Measures a reward model by the field's protocols, or scores that are stored in a file:

    python -m rewards.evaluate protocol=processbench model.path=MODEL input=[gsm8k.jsonl,math.jsonl]
    python -m rewards.evaluate protocol=best_of_n input=scores.jsonl
    python -m rewards.evaluate protocol=auc reward=arithmetic_steps input=completions.jsonl

Prints the figures with intervals over questions; keeps them, their tables and pictures, and a report card of
all that was measured so far, beside the model or in output=FOLDER. Exit status: 0 done, 2 refused.

This module connects the pieces: files, a scorer, a protocol, a card. It computes no figure.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from rewards.build import build, build_scorer
from rewards.compare import visible
from rewards.config import hydra_entry
from rewards.evaluate_config import EVALUATION, EvaluationConfig
from rewards.evaluation import card, scoring
from rewards.evaluation.completions import read_completions
from rewards.evaluation.figures import headings, shown
from rewards.evaluation.files import Source, stem
from rewards.evaluation.pairs import read_pairs
from rewards.evaluation.picking import best_of_n
from rewards.evaluation.preferring import preference
from rewards.evaluation.ranking import calibration, ranking
from rewards.evaluation.results import Findings, Result
from rewards.evaluation.results import Table as Figures
from rewards.evaluation.settings import Measuring
from rewards.evaluation.solutions import read_solutions
from rewards.evaluation.step_errors import process_bench, step_errors
from rewards.models.outcome import OutcomeScorer
from rewards.models.process import ProcessScorer
from rewards.models.settings import ModelSettings
from rewards.scorer import Scorer
from rewards.verifiers.accuracy import AccuracyVerifier

_LONGEST_NAME = 100


@hydra_entry(EVALUATION)
def main(config: EvaluationConfig) -> None:
    """The program."""
    run(config, Console())


def run(config: EvaluationConfig, console: Console) -> Result:
    """Measures, prints and keeps.

    Raises:
        ConfigError, DataError: naming the option, or the file, line and field, and the fix. EngineError: too
        many completions could not be scored.
    """
    source = Source(
        config.paths(),
        config.fields.names(),
        config.limit,
        cast(Any, config.right),
        scored=not config.has_scorer(),
        scores=config.scores,
        steps=config.aggregation is not None,
    )
    settings = Measuring(
        aggregation=cast(Any, config.aggregation),
        ties=cast(Any, config.ties),
        scale=cast(Any, config.scale),
        threshold=config.threshold,
        threshold_set=config.threshold_set,
        bins=config.bins,
        draws=config.draws,
        level=config.estimate.level,
        resamples=config.estimate.resamples,
        seed=config.estimate.seed,
    )
    measure = {"pairs": _of_pairs, "processbench": _of_solutions, "steps": _of_solutions}
    findings, said = measure.get(config.protocol, _of_completions)(config, source, settings, console)
    findings = replace(findings, said=(*said, *findings.said))
    result = Result(_name(config), config.protocol, _judge(config), source.paths, settings.level, findings)
    _print(console, result)
    folder = _folder(config)
    if folder is None:
        _say(console, "nothing kept: output=FOLDER keeps the results and a report card")
    else:
        card.keep(folder, result)
        _say(console, f"report card: {folder / card.CARD}.html, {card.CARD}.md")
    return result


_Found = tuple[Findings, Sequence[str]]
"""What a protocol found, and what reading the files had to say."""


def _of_completions(
    config: EvaluationConfig, source: Source, settings: Measuring, console: Console
) -> _Found:
    read = read_completions(source)
    verifier = AccuracyVerifier(build(config.format))
    rows, lost = scoring.verify(read.rows, verifier)
    said = (*read.said, *lost)
    if (scorer := _scorer(config)) is not None:
        with _progress(console, len(rows)) as progress:
            rows, missing = scoring.score_completions(rows, scorer, progress)
        said = (*said, *missing)
    match config.protocol:
        case "auc":
            return ranking(rows, settings), said
        case "calibration":
            return calibration(rows, settings), said
        case _:
            rows = scoring.with_classes(rows, verifier) if read.answers else rows
            return best_of_n(rows, settings, answers=read.answers), said


def _of_solutions(config: EvaluationConfig, source: Source, settings: Measuring, console: Console) -> _Found:
    rows, said = read_solutions(source)
    if (scorer := _scorer(config)) is not None:
        with _progress(console, len(rows)) as progress:
            rows, missing = scoring.score_solutions(rows, scorer, progress)
        said = [*said, *missing]
    measure = process_bench if config.protocol == "processbench" else step_errors
    return measure(rows, settings), said


def _of_pairs(config: EvaluationConfig, source: Source, settings: Measuring, console: Console) -> _Found:
    pairs, said = read_pairs(source)
    if (scorer := _scorer(config)) is not None:
        with _progress(console, sum(len(pair.samples) for pair in pairs)) as progress:
            pairs, missing = scoring.score_pairs(pairs, scorer, progress)
        said = [*said, *missing]
    return preference(pairs, settings), said


def _scorer(config: EvaluationConfig) -> Scorer | None:
    """What scores; None where the scores are in the file."""
    if config.reward.components:
        return build_scorer(config.reward)
    if config.model["path"] is None:
        return None
    # Loads torch, which checking a configuration must not.
    from rewards.models.engine import reward_model

    model: ModelSettings = build(config.model)
    kind = OutcomeScorer if reward_model(model).convention.kind == "outcome" else ProcessScorer
    return kind(model=model, format=build(config.format))


def _judge(config: EvaluationConfig) -> str:
    """Whose scores are measured, in words."""
    path, convention = config.model["path"], config.model["convention"]
    model = f"{path}, read by {'its own convention' if convention is None else convention}"
    if config.reward.components:
        names = "reward " + "+".join(config.reward.components)
        return names if path is None else f"{names} with {model}"
    return (config.scores or "the file") if path is None else model


def _name(config: EvaluationConfig) -> str:
    """The name of the measurement: the protocol and the files."""
    files = "-".join(stem(path) for path in config.paths())
    return re.sub(r"[^\w.-]+", "_", f"{config.protocol}-{files}")[:_LONGEST_NAME]


def _folder(config: EvaluationConfig) -> Path | None:
    if config.output is not None:
        return Path(config.output)
    model = config.model["path"]
    return Path(model, "evaluation") if model is not None and Path(model).is_dir() else None


@contextmanager
def _progress(console: Console, samples: int) -> Generator[scoring.Progress]:
    """A bar on a terminal, nothing in a log."""
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=samples)
        yield lambda more: bar.advance(task, more)


def _print(console: Console, result: Result) -> None:
    findings = result.findings
    _say(console, *findings.said)
    figures = Figures(
        card.title(result), headings(result.level), tuple(shown(measure) for measure in findings.measures)
    )
    for table in (figures, *findings.tables):
        printed = Table(*table.headings, title=Text(visible(table.title)), title_justify="left")
        for row in table.rows:
            printed.add_row(*(Text(visible(cell)) for cell in row))
        console.print(printed)


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(visible(line, len(line))), soft_wrap=True)


if __name__ == "__main__":
    main()
