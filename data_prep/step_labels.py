"""Step labels by Monte-Carlo completions, for a file of problems or of completions: dataset=step_labels.

Problems are solved by the model first. The output holds process examples (`rewards.labelled`) with their
evidence beside them: {..., "estimates": [{"basis", "trials", "successes", "low", "high"}], "scorer",
"tokens", "violations", "completions", "failed"}. When the same command is given again it is continued, from
the last batch of completions on, and then holds the same lines as if nothing had happened. Knows files and
what is printed; the labels are those of `rewards.step_labels`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Protocol, cast

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from data_prep.config import DataPrepConfig
from data_prep.drops import Drop, DropReason, OnError, count_drops, malformed
from data_prep.examples import evaluation_questions
from data_prep.fields import Row, fields_of
from data_prep.label_file import LabelFile
from data_prep.labelled_sets import count_labels
from data_prep.sources import iter_rows
from rewards.build import build
from rewards.columns import Fields, problem_of, resolve_fields, sample_of
from rewards.completer import Completer, Request
from rewards.errors import DataError
from rewards.format import FormatSpec
from rewards.labelled import example_from_record
from rewards.questions import question_hash
from rewards.step_estimates import Counts, Method, Repair, StepLabelSettings
from rewards.step_labels import Spending, label_steps
from rewards.step_solutions import LabelledSolution, Solution, cut_solution
from rewards.steps import StepSettings, Strategy
from rewards.types import Problem, Sample
from rewards.verifiers.accuracy import AccuracyVerifier

SOURCE = "step_labels"
_NOT_OF_THE_LINES = ("budget", "device")
"""Settings that a file may be continued with another value of: they decide how much is done, and where."""


class SolvingCompleter(Completer, Protocol):
    """A completer that also starts from nothing."""

    def prefill_of(self, problem: Problem) -> str:
        """What stands in the assistant's turn before it writes."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A solution to label: the sample, or the problem that is still to be solved; key names it."""

    key: str
    problem: Problem
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a file asks for, and the rows that it does not ask for."""

    tasks: tuple[Task, ...]
    drops: tuple[Drop, ...]


def read_tasks(
    rows: Iterable[Row], solutions: int, excluded: frozenset[int], on_error: OnError = "stop"
) -> Asked:
    """What a file asks for.

    Rows with a completion are labelled as they are, those without are solved `solutions` times each. Field
    names and their synonyms are those of `rewards.columns`.

    Raises:
        DataError: naming row and field.
    """
    tasks: list[Task] = []
    drops: list[Drop] = []
    fields: Fields | None = None
    for number, (where, row) in enumerate(rows, start=1):
        try:
            record = cast(Mapping[str, Any], fields_of(row))
            fields = fields or resolve_fields(Fields(), record)[0]
            found = _tasks(number, where, record, fields, solutions)
        except DataError as error:
            drops.append(malformed(where, error, on_error))
            continue
        if question_hash(found[0].problem.prompt) in excluded:
            drops.append(Drop(where, DropReason.EVALUATION))
        else:
            tasks += found
    return Asked(tuple(tasks), tuple(drops))


def _tasks(number: int, where: str, record: Mapping[str, Any], fields: Fields, solutions: int) -> list[Task]:
    """What a row asks for, one or more."""
    name, problem = problem_of(record, fields, where)
    key = f"{number}" if name is None else str(name)
    if not problem.prompt.strip() or not problem.gold:
        raise DataError(
            f"{where}: expected a question and a gold answer, by which completions are judged: prepare "
            "the problems first (dataset=gsm8k, math or jsonl)"
        )
    if record.get(fields.completion) is not None:
        return [Task(f"{key}#{number}", problem, sample_of(record, fields, where)[1])]
    return [Task(f"{key}#{number}.{index}", problem) for index in range(solutions)]


def write_step_labels(
    config: DataPrepConfig, output: Path, completer: SolvingCompleter, console: Console
) -> None:
    """Labels what config.source asks for, into output, and says what came of it.

    Raises:
        DataError: the source cannot be read or asks for nothing.
        ConfigError: the output was made otherwise.
    """
    excluded = evaluation_questions(config.evaluation)
    rows = islice(iter_rows(str(config.source), config.subset, config.split), config.limit)
    asked = read_tasks(rows, config.step_labels.solutions, excluded, cast(OnError, config.on_error))
    tasks = asked.tasks
    console.print(Text(f"{config.source}: {len(tasks)} solutions"))
    for reason, count in count_drops(asked.drops).items():
        first = next(drop for drop in asked.drops if drop.reason is reason)
        console.print(
            Text(f"dropped: {count} rows, {reason}, the first {' '.join([first.where, first.detail])}")
        )
    if not tasks:
        raise DataError(f"source={config.source}: nothing in it to label; nothing was written")
    labeller = Labeller(completer, config, cast(FormatSpec, build(config.format, "format")))
    with LabelFile(output, _settings(config, tasks)) as file:
        if file.records:
            console.print(Text(f"{output}: {len(file.records)} labelled solutions are there, going on"))
        finished = _label_parts(tasks, labeller, file, console)
        facts = _facts(file, tasks, finished)
        file.finish(facts)
    for name, value in facts.items():
        console.print(Text(f"{name}: {value}"))
    if not finished:
        console.print(Text("the budget is spent: the same command with a larger step_labels.budget goes on"))


class Labeller:
    """Solves and labels the tasks of one part at a time.

    The same part gives the same lines, whatever was done before.
    """

    def __init__(self, completer: SolvingCompleter, config: DataPrepConfig, spec: FormatSpec) -> None:
        options = config.step_labels
        self.completer = completer
        self.budget = options.budget
        self.rows = options.rows
        self.size = options.part
        self.seed = config.seed
        self.verifier = AccuracyVerifier(spec)
        self.cuts = StepSettings(
            strategy=cast(Strategy, options.strategy),
            think_open=spec.think_open,
            think_close=spec.think_close,
        )
        self.settings = StepLabelSettings(
            method=cast(Method, options.method),
            completions=options.completions,
            wave=options.wave,
            width=options.width,
            repair=cast(Repair, options.repair),
            confidence=options.confidence,
            seed=config.seed,
        )

    def label(self, tasks: Sequence[Task], spent: int, file: LabelFile) -> list[LabelledSolution]:
        """The labelled solutions; texts without any step are left out.

        Args:
            tasks: of one part.
            spent: tokens of earlier parts.
            file: says what is known of the part, and is told what is learned of it.
        """
        solutions = self._solutions(tasks, file.begun)
        begun = {key: _counts(known["counts"]) for key, known in file.begun.items() if "counts" in known}
        blank = {task.key: {"steps": []} for task in tasks}  # unless it has a solution

        def keep(counts: Mapping[str, Counts]) -> None:
            known = {
                one.key: {"steps": one.steps, "truncated": one.sample.truncated}
                | ({"counts": asdict(counts[one.key])} if one.key in counts else {})
                for one in solutions
            }
            file.keep(blank | known)

        keep(begun)
        spending = Spending(
            tokens=None if self.budget is None else max(0, self.budget - spent),
            at_once=self.rows,
            begun=begun,
            keep=keep,
        )
        return label_steps(solutions, self.completer, self.verifier, self.settings, spending)

    def _solutions(self, tasks: Sequence[Task], begun: Mapping[str, Mapping[str, Any]]) -> list[Solution]:
        """Those that hold anything: begun earlier, given, or written now."""
        unsolved = [task for task in tasks if task.sample is None and task.key not in begun]
        requests = [Request(task.problem, "", 1, f"{self.seed}/{task.key}") for task in unsolved]
        written = self.completer.complete(requests) if requests else []
        new = {task.key: one for task, (one,) in zip(unsolved, written, strict=True)}
        solutions: list[Solution] = []
        for task in tasks:
            if task.key in begun:
                if begun[task.key]["steps"]:
                    solutions.append(self._begun_solution(task, begun[task.key]))
                continue
            one = new.get(task.key)
            sample = task.sample if one is None else self._sample(task, one.text, one.truncated)
            if sample is not None and sample.text.strip():
                solutions.append(cut_solution(sample, task.key, self.cuts))
        return solutions

    def _begun_solution(self, task: Task, known: Mapping[str, Any]) -> Solution:
        """As it was cut and written then: the counts are of these steps."""
        steps = tuple(map(str, known["steps"]))
        sample = task.sample or self._sample(task, "".join(steps), bool(known["truncated"]))
        return Solution(sample, steps, task.key)

    def _sample(self, task: Task, text: str, truncated: bool) -> Sample:
        return Sample(task.problem, text, self.completer.prefill_of(task.problem), truncated)


def _counts(record: Mapping[str, Any]) -> Counts:
    asked, trials, successes = (tuple(map(int, record[name])) for name in ("asked", "trials", "successes"))
    return Counts(asked, trials, successes, int(record["tokens"]))


def _label_parts(tasks: Sequence[Task], labeller: Labeller, file: LabelFile, console: Console) -> bool:
    """Labels the parts that are not whole yet; returns whether all are, or the budget ended it."""
    parts = [tasks[start : start + labeller.size] for start in range(0, len(tasks), labeller.size)]
    left = {task.key for part in parts[file.parts :] for task in part}
    spent = sum(int(record["tokens"]) for key, record in file.records.items() if key not in left)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("labelling", total=len(parts), completed=file.parts)
        for part in parts[file.parts :]:
            if labeller.budget is not None and spent >= labeller.budget and not file.begun:
                return False  # solving its problems costs too
            labelled = labeller.label(part, spent, file)
            spent += sum(one.tokens for one in labelled)
            # In order, so that the file is the same however often it was left off.
            finished = list(takewhile(lambda one: one.finished, labelled))
            told = [one for one in finished if any(e.value is not None for e in one.estimates)]
            whole = len(finished) == len(labelled)
            file.append([one.record(SOURCE) for one in told], whole=whole)
            if not whole:
                return False
            progress.advance(bar)
    return True


def _settings(config: DataPrepConfig, tasks: Sequence[Task]) -> dict[str, Any]:
    """All that the lines of a file depend on."""
    options = asdict(config.step_labels)
    texts = [
        [task.key, task.problem.prompt, task.problem.gold, task.sample.text if task.sample else None]
        for task in tasks
    ]
    digest = hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()
    kept = {name: value for name, value in options.items() if name not in _NOT_OF_THE_LINES}
    return kept | {"input": digest, "seed": config.seed, "format": config.format}


def _facts(file: LabelFile, tasks: Sequence[Task], finished: bool) -> dict[str, Any]:
    """What people want to know of the whole file."""
    labels: Counter[str] = Counter()
    totals = dict.fromkeys(("completions", "tokens", "violations", "failed"), 0)
    count = 0
    for record in file.records.values():
        count += 1
        labels.update(count_labels([example_from_record(record, "line")]))
        for name in totals:
            totals[name] += int(record[name])
    facts: dict[str, Any] = {"solutions": len(tasks), "labelled": count}
    if finished:
        facts["without any step or label"] = len(tasks) - count
    else:
        begun = [
            known["counts"]
            for key, known in file.begun.items()
            if key not in file.records and "counts" in known
        ]
        facts["tokens of unfinished solutions"] = sum(int(counts["tokens"]) for counts in begun)
    return facts | {"labels": dict(sorted(labels.items()))} | totals
