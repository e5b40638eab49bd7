"""How rows of each layout become problems."""

import re

import pytest

from data_prep.drops import DropReason
from data_prep.layouts import LAYOUTS, GoldField, Layout, gold_after_hashes, read_row
from rewards.errors import ConfigError, DataError
from rewards.types import Problem

GSM8K, MATH = LAYOUTS["gsm8k"], LAYOUTS["math"]
PLAIN = Layout(name="mine", prompt=("body", "question"), gold=(GoldField("target"),), id="key")


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("6 * 7 = <<6*7=42>>42\n#### 42", "42"),
        ("#### 1\nno, rather\n#### 2,125 ", "2,125"),
        ("#### -3", "-3"),
        ("no mark", ""),
        ("####", ""),
    ],
)
def test_gold_after_hashes(text: str, gold: str) -> None:
    assert gold_after_hashes(text) == gold


def test_gsm8k_reads_the_number_after_the_mark() -> None:
    row = {"question": " How many? ", "answer": "2*3 = <<2*3=6>>6\n#### 6"}
    assert read_row(row, GSM8K, "x line 7", 7) == Problem(
        id="gsm8k-000007", prompt="How many?", gold=("6",), answer_type="number", source="gsm8k"
    )


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        # the answer field, where there is one, is the gold as it stands
        ({"answer": r"\frac{1}{2}", "solution": r"so \boxed{0.5}"}, r"\frac{1}{2}"),
        ({"solution": r"first \boxed{1}, then $\boxed{\frac{a}{\sqrt{b}}}$."}, r"\frac{a}{\sqrt{b}}"),
        ({"solution": r"\boxed{\left\{ x : x > 1 \right\}}"}, r"\left\{ x : x > 1 \right\}"),
    ],
)
def test_math_reads_the_answer_or_the_last_box(row: dict[str, object], gold: str) -> None:
    problem = read_row({"problem": "p", **row}, MATH, "x line 1", 1)
    assert isinstance(problem, Problem)
    assert problem.gold == (gold,)


@pytest.mark.parametrize(
    ("layout", "row", "reason"),
    [
        (GSM8K, {"question": " ", "answer": "#### 1"}, DropReason.NO_PROMPT),
        (GSM8K, {"question": None, "answer": "#### 1"}, DropReason.NO_PROMPT),
        (GSM8K, {"question": "q", "answer": "it is 1"}, DropReason.NO_GOLD),
        (GSM8K, {"question": "q", "answer": None}, DropReason.NO_GOLD),
        (MATH, {"problem": "p", "solution": r"it is 1"}, DropReason.NO_GOLD),
        (MATH, {"problem": "p", "solution": r"\boxed{}"}, DropReason.NO_GOLD),
        (PLAIN, {"body": "b", "question": "q", "target": [], "key": "k"}, DropReason.NO_GOLD),
        (PLAIN, {"body": "b", "question": "q", "target": ["1", ""], "key": "k"}, DropReason.NO_GOLD),
    ],
)
def test_rows_without_prompt_or_gold_are_dropped(
    layout: Layout, row: dict[str, object], reason: DropReason
) -> None:
    assert read_row(row, layout, "x line 1", 1) is reason


@pytest.mark.parametrize(
    ("target", "gold"),
    [
        ("7", ("7",)),
        (7, ("7",)),
        (0, ("0",)),
        (["x=1", "x=2"], ("x=1", "x=2")),
        # exact: the shortest text that is read back as the same float
        (0.1, ("0.1",)),
    ],
)
def test_any_fields_can_be_named(target: object, gold: tuple[str, ...]) -> None:
    row = {"body": "Two and two.", "question": "Sum?", "target": target, "key": 12}
    assert read_row(row, PLAIN, "x line 1", 1) == Problem(
        id="12", prompt="Two and two. Sum?", gold=gold, source="mine"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": "q", "target": "1", "key": "k"},
            "x line 3: no field 'body'; the row has key, question",
        ),
        ({"body": "b", "question": "q", "key": "k"}, "x line 3: no field 'target'"),
        ({"body": "b", "question": "q", "target": "1"}, "x line 3: no field 'key'"),
        ({"body": 5, "question": "q", "target": "1", "key": "k"}, "x line 3, field 'body'"),
        ({"body": "b", "question": "q", "target": {"a": 1}, "key": "k"}, "x line 3, field 'target'"),
        ({"body": "b", "question": "q", "target": True, "key": "k"}, "x line 3, field 'target'"),
        ({"body": "b", "question": "q", "target": float("nan"), "key": "k"}, "x line 3, field 'target'"),
        ({"body": "b", "question": "q", "target": "1", "key": ["k"]}, "x line 3, field 'key'"),
    ],
)
def test_rows_of_another_layout_are_refused(row: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read_row(row, PLAIN, "x line 3", 3)


def test_impossible_layouts_are_refused() -> None:
    with pytest.raises(ConfigError, match="gold style 'last'"):
        GoldField("a", "last")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="at least one field"):
        Layout(name="x", prompt=("a", ""), gold=(GoldField("b"),))
    with pytest.raises(ConfigError, match="answer_type=real"):
        Layout(name="x", prompt=("a",), gold=(), answer_type="real")  # pyright: ignore[reportArgumentType]
