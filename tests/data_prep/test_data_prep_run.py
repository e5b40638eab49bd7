"""The command: what it writes, what it prints, what it refuses."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from data_prep.run import PROGRAM, run
from rewards.errors import ConfigError, DataError
from rewards.io import read_problems
from rewards.labelled import ProcessExample, read_labelled
from rewards.types import Problem

GSM8K = [
    {"question": "How many?", "answer": "1+1=2\n#### 2"},
    {"question": "And then?", "answer": "no mark"},
    {"question": "How much?", "answer": "#### 1,234"},
]


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_in_process(*overrides: str) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    run(PROGRAM.load(overrides), console)
    return console.export_text()


def test_the_command_prepares_a_file_and_says_what_it_dropped(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.jsonl", GSM8K)
    output = tmp_path / "new" / "out.jsonl"
    command = [sys.executable, "-m", "data_prep.run", "dataset=gsm8k", f"source={source}", f"output={output}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read_problems(output) == [
        Problem("gsm8k-000001", "How many?", ("2",), "number", "gsm8k"),
        Problem("gsm8k-000003", "How much?", ("1,234",), "number", "gsm8k"),
    ]
    assert "no_gold" in done.stdout
    assert "line 2" in done.stdout
    facts = json.loads((tmp_path / "new" / "out.jsonl.meta.json").read_text())
    assert (facts["rows"], facts["problems"], facts["dropped"]) == (3, 2, {"no_gold": 1})
    assert facts["settings"]["source"] == str(source)
    # nothing else is left behind, here or in the folder the command was called from
    assert sorted(entry.name for entry in output.parent.iterdir()) == ["out.jsonl", "out.jsonl.meta.json"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new", "rows.jsonl"]


def test_a_misspelt_setting_is_refused_before_anything_loads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "data_prep.run", "dataset=gsm8k", "ouput=x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "output" in done.stderr
    assert "Traceback" not in done.stderr


def test_sums_fill_a_folder(tmp_path: Path) -> None:
    sizes = ["arithmetic.train_size=30", "arithmetic.eval_size=7", "arithmetic.coldstart_size=5"]
    printed = run_in_process("dataset=arithmetic", f"output={tmp_path / 'sums'}", *sizes)
    counts = {name: len(read_problems(tmp_path / "sums" / f"{name}.jsonl")) for name in ("train", "eval")}
    assert counts == {"train": 30, "eval": 7}
    assert all("thought" in one.meta for one in read_problems(tmp_path / "sums" / "coldstart.jsonl"))
    assert "coldstart.jsonl" in printed


def test_any_rows_can_be_described(tmp_path: Path) -> None:
    rows = [{"ctx": "Two and two.", "q": "Sum?", "sol": r"It is $\boxed{4}$.", "n": "a7"}]
    source = write_rows(tmp_path / "mine.jsonl", rows)
    output = tmp_path / "out.jsonl.gz"
    fields = ["fields.prompt=ctx+q", "fields.gold=sol", "fields.gold_style=boxed", "fields.id=n"]
    run_in_process("dataset=jsonl", f"source={source}", f"output={output}", "answer_type=expression", *fields)
    assert read_problems(output) == [Problem("a7", "Two and two. Sum?", ("4",), "expression", "mine")]


def test_many_drops_are_counted_and_some_shown(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": "#### 1" if n == 0 else "none"} for n in range(9)]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    printed = run_in_process("dataset=gsm8k", f"source={source}", f"output={tmp_path / 'out.jsonl'}")
    assert "dropped: no_gold" in printed
    assert "and 3 more" in printed


def test_golds_are_shown_as_they_are(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "gold": "[red]:smile:[/red] nobody"}, {"prompt": "r", "gold": "1"}]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    printed = run_in_process(
        "dataset=jsonl", f"source={source}", f"output={tmp_path / 'out.jsonl'}", "answer_type=number"
    )
    assert "[red]:smile:[/red] nobody" in printed


def test_a_labelled_set_becomes_a_file_of_examples(tmp_path: Path) -> None:
    rows = [
        {"id": f"b-{n}", "generator": "m", "problem": f"Why {n}?", "steps": ["a", "b"], "label": n - 1}
        | {"final_answer_correct": n == 0}
        for n in range(3)
    ]
    source = tmp_path / "bench.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = write_rows(tmp_path / "held_out.jsonl", [{"question": "why 2?"}])
    output = tmp_path / "examples.jsonl"
    printed = run_in_process(
        "dataset=processbench", f"source={source}", f"output={output}", f"evaluation=[{held_out}]"
    )
    examples = read_labelled(output)
    assert [example.id for example in examples] == ["b-0", "b-1"]
    assert examples[1] == ProcessExample(
        "Why 1?",
        ("a\n\n", "b"),
        (0.0, None),
        "processbench",
        "b-1",
        {"generator": "m", "final_answer_correct": "false"},
    )
    assert "dropped: evaluation" in printed
    assert "2 steps right, 1 steps unjudged, 1 steps wrong" in printed
    facts = json.loads((tmp_path / "examples.jsonl.meta.json").read_text())
    assert (facts["rows"], facts["examples"], facts["questions"]) == (3, 2, 2)
    assert facts["dropped"] == {"evaluation": 1}
    assert facts["labels"] == {"steps right": 2, "steps unjudged": 1, "steps wrong": 1}


def test_evaluation_questions_are_kept_out_of_problems_too(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.jsonl", GSM8K)
    held_out = write_rows(tmp_path / "held_out.jsonl", [{"problem": "HOW many?"}])
    output = tmp_path / "out.jsonl"
    run_in_process("dataset=gsm8k", f"source={source}", f"output={output}", f"evaluation=[{held_out}]")
    assert [problem.prompt for problem in read_problems(output)] == ["How much?"]


def test_an_unreadable_labelled_row_is_named(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [{"problem": "p", "steps": "a"}])
    with pytest.raises(DataError, match=r"rows\.jsonl, line 1, field 'steps': expected a list, got str"):
        run_in_process("dataset=processbench", f"source={source}", f"output={tmp_path / 'out.jsonl'}")
    assert not (tmp_path / "out.jsonl").exists()


def test_malformed_rows_are_counted_where_they_are_skipped(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps({"question": 5, "answer": "#### 1"}) + "\n{\n" + json.dumps(GSM8K[0]) + "\n")
    output = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"line 1, field 'question': .*on_error=skip"):
        run_in_process("dataset=gsm8k", f"source={source}", f"output={output}")
    printed = run_in_process("dataset=gsm8k", f"source={source}", f"output={output}", "on_error=skip")
    assert "dropped: malformed" in printed
    assert "line 1: field 'question': expected a string, got 5" in printed
    facts = json.loads((tmp_path / "out.jsonl.meta.json").read_text())
    assert (facts["rows"], facts["problems"], facts["dropped"]) == (3, 1, {"malformed": 2})


def test_nothing_usable_writes_nothing(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [{"question": "q", "answer": "none"}])
    with pytest.raises(DataError, match="none of its 1 rows can be used"):
        run_in_process("dataset=gsm8k", f"source={source}", f"output={tmp_path / 'out.jsonl'}")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dataset=gsm9k"], "dataset=gsm9k: expected one of arithmetic, gsm8k, math, jsonl, gsm8k_solutions"),
        (["dataset=jsonl"], "source: dataset=jsonl needs"),
        (["dataset=arithmetic", "source=x.jsonl"], "made on the spot"),
        (["dataset=jsonl", "source=x", "fields.prompt=a+"], r"fields\.prompt=a\+"),
        (["dataset=jsonl", "source=x", "fields.gold_style=last"], r"fields\.gold_style=last"),
        (["dataset=gsm8k", "answer_type=real"], "answer_type=real"),
        (["dataset=preference"], "source: dataset=preference needs"),
        (["dataset=processbench", "answer_type=number"], "dataset=processbench has no golds"),
        (["dataset=arithmetic", "evaluation=[x.jsonl]"], "parts its own evaluation sums off"),
        (["dataset=arithmetic", "arithmetic.train_size=6000"], "expected at most"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_in_process(f"output={tmp_path / 'out'}", *overrides)
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        run_in_process("dataset=arithmetic", f"output={tmp_path / 'file'}")
    source = write_rows(tmp_path / "rows.jsonl", GSM8K)
    with pytest.raises(ConfigError, match="is a folder"):
        run_in_process("dataset=gsm8k", f"source={source}", f"output={tmp_path}")
    with pytest.raises(ConfigError, match=r"expected a name that ends in \.jsonl"):
        run_in_process("dataset=gsm8k", f"source={source}", f"output={tmp_path / 'x.parquet'}")
    assert (tmp_path / "file").read_text() == "mine"
