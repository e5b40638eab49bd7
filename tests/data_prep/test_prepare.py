"""Rows become verified problems, and every row is accounted for."""

import re
from collections.abc import Iterator

import pytest
from shared_cases import shared

from data_prep.drops import Drop, DropReason, count_drops
from data_prep.layouts import LAYOUTS, GoldField, Layout
from data_prep.prepare import prepare
from data_prep.sources import iter_rows
from rewards.errors import DataError

LAYOUT = Layout(name="mine", prompt=("q",), gold=(GoldField("a"),), id="key")


def numbered(*rows: dict[str, object]) -> list[tuple[str, dict[str, object]]]:
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


def test_every_row_is_a_problem_or_a_drop_with_a_reason() -> None:
    rows = numbered(
        {"q": "1+1", "a": "2", "key": "x"},
        {"q": "", "a": "2", "key": "y"},
        {"q": "1+2", "a": "", "key": "z"},
        # the same question again is dropped, whatever its key
        {"q": "1+1", "a": "2", "key": "w"},
        {"q": "2+2", "a": "4", "key": "v"},
    )
    prepared = prepare(rows, LAYOUT)
    assert [problem.id for problem in prepared.problems] == ["x", "v"]
    assert prepared.drops == (
        Drop("row 2", DropReason.NO_PROMPT),
        Drop("row 3", DropReason.NO_GOLD),
        Drop("row 4", DropReason.DUPLICATE),
    )
    assert prepared.rows == 5
    assert count_drops(prepared.drops) == {
        DropReason.NO_PROMPT: 1,
        DropReason.NO_GOLD: 1,
        DropReason.DUPLICATE: 1,
    }


def test_a_gold_that_does_not_verify_against_itself_is_dropped() -> None:
    # declared a number, the text is no number
    layout = Layout(name="mine", prompt=("q",), gold=(GoldField("a"),), answer_type="number")
    rows = numbered({"q": "1+1", "a": "2"}, {"q": "Who?", "a": "nobody at all"})
    prepared = prepare(rows, layout)
    assert [problem.gold for problem in prepared.problems] == [("2",)]
    (drop,) = prepared.drops
    assert (drop.where, drop.reason) == ("row 2", DropReason.UNVERIFIABLE)
    assert drop.detail.endswith(": nobody at all")


def test_a_limit_reads_no_further() -> None:
    def rows() -> Iterator[tuple[str, dict[str, object]]]:
        yield "row 1", {"q": "1+1", "a": "2", "key": "x"}
        raise AssertionError("read on")

    assert prepare(rows(), LAYOUT, limit=1).rows == 1


def test_rows_of_another_layout_are_left_out_where_that_is_asked_for() -> None:
    rows = numbered({"q": None, "a": "2", "key": "x"}, {"q": 5, "a": "2", "key": "y"}, {"a": "2"})
    rows += numbered({"q": "1+1", "a": "2", "key": "z"})
    prepared = prepare([*rows, ("row 5", DataError("row 5: not JSON"))], LAYOUT, on_error="skip")
    assert [problem.id for problem in prepared.problems] == ["z"]
    assert count_drops(prepared.drops) == {DropReason.NO_PROMPT: 1, DropReason.MALFORMED: 3}
    assert prepared.drops[1].detail == "field 'q': expected a string, got 5"
    with pytest.raises(DataError, match=r"row 2, field 'q': .*\(on_error=skip leaves such rows out"):
        prepare(rows, LAYOUT)


def test_two_rows_with_one_identifier_are_refused() -> None:
    rows = numbered({"q": "1+1", "a": "2", "key": "x"}, {"q": "2+2", "a": "4", "key": "x"})
    with pytest.raises(DataError, match=re.escape("row 2: field 'key': 'x' is also the identifier of row 1")):
        prepare(rows, LAYOUT)


@pytest.mark.parametrize(
    ("file", "dataset", "count"),
    [
        ("data/gsm8k/test.jsonl", "gsm8k", 1319),
        ("data/gsm8k/train.jsonl.gz", "gsm8k", 7473),
        ("data/math/math500_test.jsonl", "math", 500),
    ],
)
def test_public_sets_lose_no_row(file: str, dataset: str, count: int) -> None:
    prepared = prepare(iter_rows(str(shared(file)), None, "train"), LAYOUTS[dataset])
    assert prepared.drops == ()
    assert len(prepared.problems) == count


def test_the_box_of_the_solution_is_the_answer_of_math() -> None:
    rows = list(iter_rows(str(shared("data/math/math500_test.jsonl")), None, "train"))
    boxed = Layout(name="math", prompt=("problem",), gold=(GoldField("solution", "boxed"),))
    by_answer = prepare(rows, LAYOUTS["math"]).problems
    by_box = prepare(rows, boxed).problems
    assert len(by_box) == 500
    assert sum(one.gold == other.gold for one, other in zip(by_answer, by_box, strict=True)) >= 495


def test_svamp_reads_through_named_fields() -> None:
    layout = Layout(name="svamp", prompt=("Body", "Question"), gold=(GoldField("Answer"),), id="ID")
    prepared = prepare(iter_rows(str(shared("data/benchmarks/svamp.jsonl")), None, "train"), layout)
    assert prepared.rows == 1000
    assert set(count_drops(prepared.drops)) <= {DropReason.DUPLICATE}
    assert len(prepared.problems) > 990
