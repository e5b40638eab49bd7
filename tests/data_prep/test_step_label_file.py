"""dataset=step_labels: what is asked of the model, what the file holds, and how it is continued."""

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from data_prep.run import PROGRAM
from data_prep.step_labels import read_tasks, write_step_labels
from rewards.completer import Continuation, Request
from rewards.errors import ConfigError, DataError
from rewards.labelled import ProcessExample, read_labelled
from rewards.questions import question_hash
from rewards.types import Problem

GIVEN = ["source=x.jsonl", "output=o.jsonl", "step_labels.model=m"]
STEPS = ["<think>Units.\n\n", "Tens.\n\n", "</think>\n82"]


@dataclass
class HalfRight:
    """Solves and completes, right half of the time, as the key decides; stops dead after some calls."""

    calls_left: int = 1000
    calls: int = 0
    seen: list[Request] = field(default_factory=list)

    def prefill_of(self, problem: Problem) -> str:
        return ""

    def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
        self.calls += 1
        if self.calls > self.calls_left:
            raise KeyboardInterrupt
        self.seen += requests
        return [[self._write(request, index) for index in range(request.number)] for request in requests]

    def _write(self, request: Request, index: int) -> Continuation:
        right = random.Random(f"{request.key}/{index}").random() < 0.5
        answer = "82" if right else "72"
        rest = "".join(STEPS[request.prefix.count("\n\n") : 2]) + f"</think>\n{answer}"
        return Continuation(rest, tokens=10)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def problems(count: int) -> list[dict[str, Any]]:
    return [{"id": f"p{n}", "prompt": f"{n}: 37+45=", "gold": "82"} for n in range(count)]


def label(source: Path, output: Path, completer: HalfRight, *overrides: str) -> str:
    given = [f"source={source}", f"output={output}", "step_labels.model=m", "step_labels.part=2", *overrides]
    config = PROGRAM.load(["dataset=step_labels", "step_labels.completions=4", *given])
    console = Console(record=True, width=200, file=io.StringIO())
    write_step_labels(config, output, completer, console)
    return console.export_text()


def facts_of(output: Path) -> dict[str, Any]:
    return json.loads(output.with_name(f"{output.name}.meta.json").read_text())


def test_problems_are_solved_and_their_steps_labelled(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    output = tmp_path / "new" / "labels.jsonl"
    printed = label(source, output, HalfRight(), "step_labels.solutions=2", "step_labels.method=soft")
    examples = read_labelled(output)
    assert [example.id for example in examples] == [f"p{n}#{n + 1}.{i}" for n in range(3) for i in range(2)]
    first = examples[0]
    assert isinstance(first, ProcessExample)
    assert first.steps[:2] == ("<think>Units.\n\n", "Tens.\n\n</think>\n")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    for record in records:
        *inner, last = record["estimates"]
        assert [one["trials"] for one in inner] == [4] * len(inner)
        assert record["labels"] == [one["successes"] / 4 for one in inner] + [record["labels"][-1]]
        assert last["basis"] == "answer"
        assert record["tokens"] == 40 * len(inner)
    facts = facts_of(output)
    assert facts["labelled"] == facts["solutions"] == 6
    assert facts["tokens"] == sum(record["tokens"] for record in records)
    assert "labelled: 6" in printed


def test_completions_of_a_file_are_labelled_as_they_are(tmp_path: Path) -> None:
    rows = [
        {"question": "37+45=", "ground_truth": "82", "response": "".join(STEPS)},
        {"question": "37+45=", "ground_truth": "82", "response": "".join(STEPS), "truncated": True},
        {"question": "37+45=", "ground_truth": "82", "response": " "},
    ]
    output = tmp_path / "labels.jsonl"
    completer = HalfRight()
    printed = label(write_rows(tmp_path / "rows.jsonl", rows), output, completer)
    first, second = read_labelled(output)
    assert isinstance(first, ProcessExample)
    assert isinstance(second, ProcessExample)
    assert (first.question, first.labels[-1]) == ("37+45=", 1.0)
    assert second.labels[-1] is None  # nothing shows that the answer was complete
    assert {request.prefix for request in completer.seen} == {
        "".join(STEPS[:1]),
        "".join(STEPS[:2]) + "</think>\n",
    }
    assert "without any step or label: 1" in printed


def test_questions_of_evaluation_sets_are_not_asked(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    held_out = write_rows(tmp_path / "eval.jsonl", problems(1))
    output = tmp_path / "labels.jsonl"
    printed = label(source, output, HalfRight(), f"evaluation=[{held_out}]")
    assert len(read_labelled(output)) == 2
    assert "dropped: 1 rows, evaluation" in printed


@pytest.mark.parametrize("calls", range(6))
def test_a_run_that_was_killed_goes_on_to_the_same_file(tmp_path: Path, calls: int) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(5))
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    label(source, whole, HalfRight())
    with pytest.raises(KeyboardInterrupt):
        label(source, cut, HalfRight(calls_left=calls))
    label(source, cut, HalfRight())
    assert cut.read_bytes() == whole.read_bytes()
    assert facts_of(cut) == facts_of(whole)


def test_a_torn_line_is_made_again(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(4))
    output = tmp_path / "labels.jsonl"
    label(source, output, HalfRight())
    whole, facts = output.read_bytes(), facts_of(output)
    lines = whole.splitlines(keepends=True)
    meta = output.with_name(f"{output.name}.meta.json")
    # killed while the second part was being written: its first line is there, its second one torn
    for end in (lines[:3], [*lines[:3], lines[3][:20]]):
        output.write_bytes(b"".join(end))
        meta.write_text(json.dumps(facts | {"parts": 1}))
        completer = HalfRight()
        printed = label(source, output, completer)
        assert output.read_bytes() == whole
        assert facts_of(output) == facts
        assert {request.problem.id for request in completer.seen} == {"p2", "p3"}
        assert "3 labelled solutions are there" in printed


def test_a_finished_file_asks_nothing_more(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    output = tmp_path / "labels.jsonl"
    label(source, output, HalfRight())
    written, unasked = output.read_bytes(), HalfRight(calls_left=0)
    label(source, output, unasked)
    assert (unasked.calls, output.read_bytes()) == (0, written)


def test_a_budget_ends_the_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(6))
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    label(source, whole, HalfRight())
    tokens = facts_of(whole)["tokens"]
    printed = label(source, cut, HalfRight(), f"step_labels.budget={tokens // 2}")
    assert "the budget is spent" in printed
    assert 0 < len(read_labelled(cut)) < 6
    assert "without any step or label" not in facts_of(cut)
    label(source, cut, HalfRight(), f"step_labels.budget={2 * tokens}")
    assert cut.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("method", ["soft", "hard", "first_error"])
def test_a_budget_below_one_part_goes_on_from_where_it_ended(tmp_path: Path, method: str) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    settings = (f"step_labels.method={method}", "step_labels.wave=1", "step_labels.part=16")
    once = HalfRight()
    label(source, whole, once, *settings)
    asked: list[Request] = []
    for budget in range(10, facts_of(whole)["tokens"] + 20, 10):
        for expected in (None, 0):  # the same command again finds the budget spent, and asks for nothing
            completer = HalfRight()
            label(source, cut, completer, *settings, f"step_labels.budget={budget}")
            assert expected is None or len(completer.seen) == expected
            asked += completer.seen
        spent = facts_of(cut)["tokens"] + facts_of(cut).get("tokens of unfinished solutions", 0)
        assert spent < budget + 10 * (4 if method == "soft" else 1)
    assert cut.read_bytes() == whole.read_bytes()
    assert facts_of(cut) == facts_of(whole)
    # solved once, and no completion paid for twice
    assert sorted(request.key for request in asked) == sorted(request.key for request in once.seen)


def test_a_spent_budget_solves_no_problem(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    completer = HalfRight()
    assert "the budget is spent" in label(source, tmp_path / "o.jsonl", completer, "step_labels.budget=0")
    assert completer.calls == 0


def test_a_run_that_was_killed_asks_for_nothing_that_it_was_given(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(2))
    output, first, second = tmp_path / "o.jsonl", HalfRight(calls_left=2), HalfRight()
    with pytest.raises(KeyboardInterrupt):
        label(source, output, first, "step_labels.wave=1")
    label(source, output, second, "step_labels.wave=1")
    assert not {request.key for request in first.seen} & {request.key for request in second.seen}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["step_labels.completions=5"], "completions was 4, now 5"),
        (["step_labels.model=other"], "model was m, now other"),
        (["format.answer_style=boxed"], "format was"),
        (["limit=2"], "input was"),
    ],
)
def test_a_file_is_not_continued_with_other_settings(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(3))
    output = tmp_path / "labels.jsonl"
    label(source, output, HalfRight())
    before = output.read_bytes()
    with pytest.raises(ConfigError, match=message):
        label(source, output, HalfRight(), *overrides)
    assert output.read_bytes() == before


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "problems.jsonl", problems(1))
    output = tmp_path / "mine.jsonl"
    output.write_text("my notes\n")
    with pytest.raises(
        ConfigError, match=r"mine\.jsonl\.meta\.json, which tells how they were made, is missing"
    ):
        label(source, output, HalfRight())
    assert output.read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": " ", "gold": "1"}, "rows, line 1: expected a question and a gold answer"),
        ({"question": "q", "answer": "#### 1"}, "prepare the problems first"),
        ({"prompt": "q", "gold": {"a": 1}}, "rows, line 1, field 'gold'"),
        ({"prompt": "q", "gold": "1", "completion": 5}, "rows, line 1, field 'completion'"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_tasks([("rows, line 1", row)], 1, frozenset())


def test_tasks_have_names_of_their_own() -> None:
    rows = [(f"line {n}", {"prompt": "q", "gold": "1", "id": "same"}) for n in range(2)]
    asked = read_tasks(rows, 2, frozenset())
    assert [task.key for task in asked.tasks] == ["same#1.0", "same#1.1", "same#2.0", "same#2.1"]
    assert asked.drops == ()
    left_out = read_tasks([*rows, ("line 3", {})], 2, frozenset({question_hash("q")}), "skip")
    assert left_out.tasks == ()
    assert [drop.reason for drop in left_out.drops] == ["evaluation", "evaluation", "malformed"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["source=x.jsonl", "output=o.jsonl"], "step_labels.model: dataset=step_labels needs a model"),
        (["output=o.jsonl", "step_labels.model=m"], "source: dataset=step_labels needs"),
        (["source=x", "output=o.jsonl.gz", "step_labels.model=m"], "expected a name ending in .jsonl"),
        (
            [*GIVEN, "step_labels.repair=later_success", "step_labels.method=soft"],
            "is for step_labels.method=hard",
        ),
        (
            [*GIVEN, "step_labels.width=0.3"],
            "step_labels.width=0.3: is for step_labels.method=soft; hard stops at the first",
        ),
        (
            ["source=x", "output=o.jsonl", "step_labels.method=mean"],
            "step_labels.method=mean: expected one of",
        ),
    ],
)
def test_impossible_settings_of_step_labels_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PROGRAM.load(["dataset=step_labels", *overrides])
