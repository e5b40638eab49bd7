"""Turns a public set, or sums made on the spot, into the jsonl that the other commands read.

    python -m data_prep.run dataset=gsm8k output=gsm8k_train.jsonl
    python -m data_prep.run dataset=math source=math500.jsonl output=math500.jsonl
    python -m data_prep.run dataset=jsonl source=mine.jsonl fields.prompt=q fields.gold=a output=ours.jsonl
    python -m data_prep.run dataset=arithmetic output=sums        # a folder: train, eval and coldstart .jsonl
    python -m data_prep.run dataset=prm800k source=train.jsonl evaluation=[math500.jsonl] output=prm.jsonl
    python -m data_prep.run dataset=step_labels source=gsm8k_train.jsonl step_labels.model=DIR output=mc.jsonl

Problems are lines {"id", "prompt", "gold": text or list of texts, "answer_type", "source", "meta"}; labelled
completions, for reward models, are those of `rewards.labelled`. Beside the file lies FILE.meta.json with the
settings and the counts. Files are written under a temporary name and renamed, the whole file or none; step
labels, which take long, are appended and continued (data_prep.step_labels). Knows files and what is printed;
the rest is in the modules it calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_prep.arithmetic import ArithmeticSettings, build
from data_prep.config import PROBLEM_SETS, STEP_LABELS, DataPrepConfig, check
from data_prep.drops import Drop, OnError, count_drops
from data_prep.examples import convert, evaluation_questions
from data_prep.labelled_sets import HUBS, count_labels, reader_of
from data_prep.layouts import LAYOUTS, GoldField, GoldStyle, Layout
from data_prep.prepare import prepare
from data_prep.sources import iter_rows
from data_prep.step_labels import SolvingCompleter, write_step_labels
from rewards.build import build as build_node
from rewards.config import Program, hydra_entry
from rewards.durable import write_json
from rewards.errors import ConfigError, DataError
from rewards.format import FormatSpec
from rewards.io import write_problems
from rewards.labelled import write_labelled
from rewards.models.settings import ModelSettings, Precision
from rewards.types import AnswerType

SHOWN_DROPS = 5
"""How many dropped rows are printed for each reason; the rest is counted."""

PROGRAM = Program(config_name="data_prep", schema=DataPrepConfig, check=check)


@hydra_entry(PROGRAM)
def main(config: DataPrepConfig) -> None:
    """The command."""
    run(config, Console())


def run(config: DataPrepConfig, console: Console) -> None:
    """Prepares one dataset and writes it; prints what became of the rows.

    Raises:
        ConfigError: the output is a folder where a file is needed, or the other way round; impossible sizes.
        DataError: the source cannot be read, has another layout, or no row of it can be used.
    """
    output = Path(config.output).expanduser()
    if config.dataset == "arithmetic":
        _write_arithmetic(config, output, console)
        return
    if output.is_dir():
        raise ConfigError(f"output={output}: is a folder; dataset={config.dataset} writes one file")
    if not output.name.endswith((".jsonl", ".jsonl.gz")):
        raise ConfigError(f"output={output}: expected a name that ends in .jsonl or .jsonl.gz")
    if config.dataset in PROBLEM_SETS:
        _write_prepared(config, output, console)
    elif config.dataset == STEP_LABELS:
        write_step_labels(config, output, _completer(config), console)
    else:
        _write_examples(config, output, console)


def layout_of(config: DataPrepConfig) -> Layout:
    """The layout that the settings name or, for dataset=jsonl, describe."""
    layout = LAYOUTS.get(config.dataset) or Layout(
        name=Path(str(config.source)).name.split(".")[0],
        prompt=tuple(config.fields.prompt.split("+")),
        gold=(GoldField(config.fields.gold, cast(GoldStyle, config.fields.gold_style)),),
        id=config.fields.id,
    )
    if config.answer_type is None:
        return layout
    return replace(layout, answer_type=cast(AnswerType, config.answer_type))


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Writes what is known of a file to PATH.meta.json."""
    write_json(path.with_name(f"{path.name}.meta.json"), facts)


def _write_prepared(config: DataPrepConfig, output: Path, console: Console) -> None:
    layout = layout_of(config)
    source, subset = _place(config, layout.hub, layout.subset)
    excluded = evaluation_questions(config.evaluation)
    rows = iter_rows(source, subset, config.split)
    prepared = prepare(rows, layout, config.limit, excluded, cast(OnError, config.on_error))
    _print_counts(source, prepared.rows, len(prepared.problems), prepared.drops, console)
    if not prepared.problems:
        raise DataError(f"source={source}: none of its {prepared.rows} rows can be used; nothing was written")
    write_problems(output, prepared.problems)
    write_facts(
        output,
        {
            "settings": asdict(config) | {"source": source, "subset": subset},
            "rows": prepared.rows,
            "problems": len(prepared.problems),
            "dropped": count_drops(prepared.drops),
        },
    )
    console.print(Text(f"wrote {len(prepared.problems)} problems to {output}"))


def _write_examples(config: DataPrepConfig, output: Path, console: Console) -> None:
    source, subset = _place(config, HUBS.get(config.dataset), None)
    reader = reader_of(config.dataset, config.labelled)
    excluded = evaluation_questions(config.evaluation)
    rows = iter_rows(source, subset, config.split)
    converted = convert(rows, reader, excluded, config.limit, cast(OnError, config.on_error))
    examples = converted.examples
    _print_counts(source, converted.rows, len(examples), converted.drops, console)
    if not examples:
        raise DataError(f"source={source}: no example in its {converted.rows} rows; nothing was written")
    labels = count_labels(examples)
    write_labelled(output, examples)
    write_facts(
        output,
        {
            "settings": asdict(config) | {"source": source, "subset": subset},
            "rows": converted.rows,
            "examples": len(examples),
            "questions": len({example.question for example in examples}),
            "labels": labels,
            "dropped": count_drops(converted.drops),
        },
    )
    told = ", ".join(f"{count} {label}" for label, count in labels.items())
    console.print(Text(f"wrote {len(examples)} examples ({told}) to {output}"))


def _completer(config: DataPrepConfig) -> SolvingCompleter:
    # Imported here because torch takes seconds, and no other data set needs it.
    from data_prep.transformers_completer import GenerationSettings, TransformersCompleter

    options = config.step_labels
    model = ModelSettings(
        path=str(options.model), dtype=cast(Precision, options.dtype), device=options.device
    )
    generation = GenerationSettings(
        max_tokens=options.max_tokens, temperature=options.temperature, rows=options.rows
    )
    return TransformersCompleter(model, cast(FormatSpec, build_node(config.format, "format")), generation)


def _place(config: DataPrepConfig, hub: str | None, subset: str | None) -> tuple[str, str | None]:
    """(source, subset): those of the settings, else the set's own place on the hub."""
    source = config.source or str(hub)
    return source, config.subset or (subset if source == hub else None)


def _write_arithmetic(config: DataPrepConfig, output: Path, console: Console) -> None:
    if output.is_file():
        raise ConfigError(f"output={output}: is a file; dataset=arithmetic writes a folder of three files")
    splits = build(ArithmeticSettings(seed=config.seed, **asdict(config.arithmetic)))
    table = Table("file", "problems", "first", "gold", title="arithmetic")
    for name, problems in (
        ("train", splits.train),
        ("eval", splits.evaluation),
        ("coldstart", splits.coldstart),
    ):
        path = output / f"{name}.jsonl"
        write_problems(path, problems)
        write_facts(path, {"settings": asdict(config), "problems": len(problems)})
        first = [problems[0].prompt, *problems[0].gold] if problems else []
        table.add_row(path.name, str(len(problems)), *first)
    console.print(table)
    console.print(Text(f"wrote them to {output}"))


def _print_counts(source: str, rows: int, kept: int, drops: Sequence[Drop], console: Console) -> None:
    console.print(Text(f"{source}: {rows} rows"))
    table = Table("what became of them", "count", "which")
    table.add_row("kept", str(kept), "")
    for reason, count in count_drops(drops).items():
        shown = [drop for drop in drops if drop.reason is reason][:SHOWN_DROPS]
        rest = [] if count <= SHOWN_DROPS else [f"and {count - SHOWN_DROPS} more"]
        # Text, because golds and file names may hold what rich takes for markup.
        table.add_row(f"dropped: {reason}", str(count), Text("\n".join([*map(_describe, shown), *rest])))
    console.print(table)


def _describe(drop: Drop) -> str:
    return f"{drop.where}: {drop.detail}" if drop.detail else drop.where


if __name__ == "__main__":
    main()
