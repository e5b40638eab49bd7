"""Two score files of the same inputs: where they disagree, and the texts beside both."""

import io
from pathlib import Path
from typing import Any

import pytest
from fakes_scorers import Constant, GoldInText
from rich.console import Console
from scoring_runs import Scoring, rows

from rewards.columns import Fields
from rewards.compare import compare_files, input_of, show_comparison, visible
from rewards.errors import DataError
from rewards.scorer import Scorer


def scored(folder: Path, records: list[dict[str, Any]], scorer: Scorer) -> Scoring:
    folder.mkdir(exist_ok=True)
    scoring = Scoring(folder, records)
    scoring.run(scorer=scorer)
    return scoring


def shown(mine: Scoring, theirs: Scoring) -> str:
    result = compare_files(str(mine.output), str(theirs.output))
    printed = io.StringIO()
    inputs = (str(mine.input), str(theirs.input))
    show_comparison(Console(file=printed, width=250), result, inputs, Fields(), ("mine", "theirs"))
    return printed.getvalue()


def test_disagreements_are_counted_by_kind_with_a_few_examples_of_each(tmp_path: Path) -> None:
    records = [
        *({"id": i, "gold": "1", "completion": "is 1"} for i in range(10)),
        *({"id": i, "gold": "1", "completion": "is 2"} for i in range(10, 14)),
        {"id": 14, "gold": None, "completion": "is 3"},
    ]
    mine = scored(tmp_path / "a", records, GoldInText())
    theirs = scored(tmp_path / "b", [row | {"gold": "2"} for row in records], GoldInText())
    result = compare_files(str(mine.output), str(theirs.output))
    assert result.lines == 15
    assert dict(result.kinds) == {
        ("1 substring match_string", "0 substring mismatch"): 10,
        ("0 substring mismatch", "1 substring match_string"): 4,
        ("abstained no_gold", "0 substring mismatch"): 1,
    }
    first = result.examples["1 substring match_string", "0 substring mismatch"]
    assert [(entry.line, entry.row_id) for entry in first] == [(1, 0), (2, 1), (3, 2)]


def test_files_that_agree_say_so(tmp_path: Path) -> None:
    mine = scored(tmp_path / "a", rows(), GoldInText())
    theirs = scored(tmp_path / "b", rows(), GoldInText())
    assert shown(mine, theirs).strip() == "mine and theirs: 0 of 400 lines disagree"


def test_texts_stand_side_by_side_where_the_inputs_differ(tmp_path: Path) -> None:
    mine = scored(tmp_path / "a", [{"gold": "7", "completion": "surely 7"}], GoldInText())
    theirs = scored(tmp_path / "b", [{"gold": "7", "completion": "perhaps 8"}], GoldInText())
    text = shown(mine, theirs)
    assert "surely 7" in text
    assert "perhaps 8" in text
    assert "1 of 1 lines disagree" in text


def test_model_text_is_never_interpreted(tmp_path: Path) -> None:
    record = {"id": "\x1b[2J", "gold": "[bold]7[/bold]", "completion": "\x1b[31m[red]7\u202e\ud800\x00[/red]"}
    mine = scored(tmp_path / "a", [record], GoldInText())
    theirs = scored(tmp_path / "b", [record], Constant(1.0))
    text = shown(mine, theirs)
    assert "\\x1b[31m[red]7\\u202e\\ud800\\x00[/red]" in text
    assert "[bold]7[/bold]" in text
    assert not {"\x1b", "\u202e", "\x00"} & set(text)


def test_files_of_other_lines_are_refused(tmp_path: Path) -> None:
    mine = scored(tmp_path / "a", rows(20), GoldInText())
    theirs = scored(tmp_path / "b", rows(19), GoldInText())
    with pytest.raises(DataError, match=r"b/out\.jsonl: ends after line 19"):
        compare_files(str(mine.output), str(theirs.output))
    theirs = scored(tmp_path / "c", [row | {"id": "other"} for row in rows(20)], GoldInText())
    with pytest.raises(DataError, match=r"line 1: .* scores id 'q0', .* scores id 'other'"):
        compare_files(str(mine.output), str(theirs.output))


def test_the_setting_compares_after_scoring_and_finds_the_other_input(tmp_path: Path) -> None:
    theirs = scored(tmp_path / "b", [{"answer": "7", "response": "it is 8"}], GoldInText())
    assert input_of(str(theirs.output)) == str(theirs.input)
    mine = scored(tmp_path / "a", [{"gold": "7", "completion": "it is 7"}], GoldInText())
    mine.run(f"compare={theirs.output}")
    assert "nothing scored again" in mine.said
    assert "1 of 1 lines disagree" in mine.said
    assert "it is 7" in mine.said
    assert "it is 8" in mine.said
    (tmp_path / "b" / "out.jsonl.run.json").unlink()
    assert input_of(str(theirs.output)) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("", "holds no lines"),
        ('{"a": 1}\n', "not a line of a score file"),
    ],
)
def test_what_cannot_be_compared_with_is_refused_before_scoring(
    tmp_path: Path, content: str | None, said: str
) -> None:
    scoring = Scoring(tmp_path)
    other = tmp_path / "none.jsonl"
    if content is not None:
        other.write_text(content)
    with pytest.raises(DataError, match=said):
        scoring.run(f"compare={other}")
    assert not scoring.output.exists()


def test_a_line_the_input_cannot_show_is_explained(tmp_path: Path) -> None:
    mine = scored(tmp_path / "a", [{"gold": "7", "completion": "7"}], GoldInText())
    theirs = scored(tmp_path / "b", [{"gold": "7", "completion": "8"}], GoldInText())
    mine.input.write_bytes(b"{\n")
    assert "line 1: not JSON" in shown(mine, theirs)


def test_visible_keeps_the_end_of_a_long_text() -> None:
    assert visible("abc" * 100, tail=6) == "…abcabc"
    assert visible("line\nline\ttab") == "line\nline\\ttab"
