"""Answer extraction: the table of cases, properties over any text, and linear time on a megabyte."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.errors import ConfigError
from rewards.extraction import Extraction, ExtractionSettings, Rung, Wanted
from rewards.format import FormatSpec
from rewards.layout import end_of_turn, find_all, hide_quoted, is_visible
from rewards.marks import find_boxes, find_formulas, find_numbers, is_prose
from rewards.text import Source, extract_answer
from rewards.types import Reason
from rewards.writing import clean

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "extraction.jsonl").read_text("utf-8").splitlines()
]
SPEC, SETTINGS = FormatSpec(), ExtractionSettings()
KINDS = st.sampled_from([Wanted("math"), Wanted("math", 2), Wanted("choice"), Wanted("text")])
TOKENS = [
    *("<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "\\boxed", "\\fbox{", "}", "{", "$", "$$"),
    *("\\(", "\\)", "\\[", "\\]", "####", "42", "7", ",", "or", "and", "answer", "is", ":", "not", "```"),
    *("<!--", "-->", "%", "**", "\\text{or}", "A", "B", "(C)", "x^2", "\u200b", "<|im_end|>"),
    *(" ", " ", "\n", "\n\n", ". "),
]
PIECES = st.lists(st.sampled_from(TOKENS), max_size=30)
ANYTHING = Wanted()


def extract(text: str, wanted: Wanted = ANYTHING, spec: FormatSpec = SPEC) -> Extraction:
    return extract_answer(Source(text), spec, SETTINGS, wanted)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_table(case: dict[str, Any]) -> None:
    think = case.get("think", ["<think>", "</think>"])
    answer = case.get("answer_tags", ["<answer>", "</answer>"])
    spec = FormatSpec(
        *think, answer_style=case.get("style", "free"), answer_open=answer[0], answer_close=answer[1]
    )
    source = Source(
        case["text"], case.get("prefill", ""), case.get("question", ""), case.get("truncated", False)
    )
    settings = ExtractionSettings(mode=case.get("mode", "lenient"))
    options = {name: case[name] for name in ("kind", "values", "percent", "number") if name in case}
    found = extract_answer(source, spec, settings, Wanted(**options))
    assert (found.answer, found.rung, found.reason) == (case["answer"], case["rung"], case.get("reason"))


def test_the_table_is_large_and_of_many_kinds() -> None:
    assert len(CASES) >= 120
    assert len({case["family"] for case in CASES}) >= 12
    assert len({case["id"] for case in CASES}) == len({json.dumps(case) for case in CASES}) == len(CASES)


def test_the_span_is_where_the_answer_stands_in_the_completion() -> None:
    text = "<think>6*7</think> So it is \\boxed{42}, I think."
    found = extract(text)
    assert found.span is not None
    assert text[slice(*found.span)] == "\\boxed{42}"
    rest = "6*7</think> So it is \\boxed{42}."
    prefilled = extract_answer(Source(rest, "Hm.\n<think>\n"), SPEC, SETTINGS)
    assert prefilled.span is not None
    assert rest[slice(*prefilled.span)] == "\\boxed{42}"


@given(PIECES.map("".join) | st.text(), KINDS)
def test_any_text_gives_an_answer_or_a_reason(text: str, wanted: Wanted) -> None:
    found = extract(text, wanted)
    assert (found.answer is None) is (found.reason is not None)
    assert found.answer is None or is_visible(found.answer)
    if found.span is not None:
        assert 0 <= found.span[0] <= found.span[1] <= len(text)


@given(PIECES.map("".join), st.integers(-999, 999))
def test_a_box_at_the_end_wins_whatever_came_before(before: str, value: int) -> None:
    assert extract(f"<think>{before}</think>\nIt is \\boxed{{{value}}}.").answer == str(value)


@given(PIECES.map("".join), KINDS)
def test_what_stands_in_an_open_thought_is_never_an_answer(inside: str, wanted: Wanted) -> None:
    found = extract("<think>" + inside.replace("</think>", ""), wanted)
    assert (found.answer, found.reason) == (None, Reason.UNCLOSED_THINK)


@given(PIECES.map("".join), PIECES.map("".join), KINDS)
def test_the_thought_does_not_change_the_answer(thought: str, answer: str, wanted: Wanted) -> None:
    plain = [text.replace("<think>", "").replace("</think>", "") for text in (thought, answer)]
    judged = extract(f"<think>{plain[0]}</think>{plain[1]}", wanted)
    alone = extract(f"</think>{plain[1]}", wanted)
    assert (judged.answer, judged.rung, judged.reason) == (alone.answer, alone.rung, alone.reason)


@given(st.text(alphabet="0123456789xyz+-*/^(){}\\frac ", min_size=1))
def test_a_balanced_box_gives_back_its_content(content: str) -> None:
    content = clean(content)
    depth = 0
    for at, char in enumerate(content):
        if char in "{}" and (at == 0 or content[at - 1] != "\\"):
            depth += 1 if char == "{" else -1
        if depth < 0:
            return
    if depth or not content or content.endswith("\\") or "\\\\" in content:
        return
    assert [box.content for box in find_boxes(f"so \\boxed{{{content}}} it is")] == [content]


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("$a$ and \\(b\\) and \\[c\\] and $$d$$", ["a", "b", "c", "d"]),
        ("costs $5 or $6 in all", []),
        ("costs $5 and $x$ more", ["x"]),
        ("\\$5 and $x$", ["x"]),
        ("$a\n\nb$", []),
        ("\\(a \\(b\\)", ["b"]),
        ("$unfinished", []),
    ],
)
def test_formulas_are_told_from_money_and_prose(text: str, contents: list[str]) -> None:
    assert [formula.content for formula in find_formulas(text)] == contents


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,234 and 12,34", ["1,234", "12", "34"]),
        ("-$40, −3.5, .5, 1e-3, 3/4, 20 %", ["-$40", "−3.5", ".5", "1e-3", "3/4", "20 %"]),
        ("R2D2 x2 f(3) v1.2", []),
        ("7cm 8kg 9x", ["7", "8"]),
        ("٤٢ ４２", []),
    ],
)
def test_numbers_that_stand_for_themselves(text: str, numbers: list[str]) -> None:
    assert [number.content for number in find_numbers(text)] == numbers


@pytest.mark.parametrize(
    "text", ["2x + 1", "sin(x) or ln(2)", "\\frac{1}{2}\\text{ of all}", "abc", "dx/dt", "[1, oo)"]
)
def test_mathematics_is_no_prose(text: str) -> None:
    assert not is_prose(text) or text == "abc"


@pytest.mark.parametrize("text", ["it is 5", "five apples", "Yes", "no", "x is big"])
def test_prose_is_prose(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (" **12**. ", "12"),
        ("$12$", "12"),
        ("$1$, $2$", "$1$, $2$"),
        ("\\(x\\)", "x"),
        ("2**3", "2**3"),
        ("2**3**2", "2**3**2"),
        ("6 + 6 = **12**", "6 + 6 = 12"),
        ("1, 2, ...", "1, 2, ..."),
        ('"yes"', "yes"),
        ("5!", "5!"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_cleaning_keeps_the_value(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert clean(cleaned) == cleaned


def test_end_of_turn_tokens_go_only_at_the_end() -> None:
    text = "a</s>b<|im_end|>\n<|endoftext|> "
    assert text[: end_of_turn(text)] == "a</s>b"
    assert end_of_turn("") == end_of_turn("<|im_end|></s>") == 0
    assert end_of_turn("a<|im_end") == 9


@given(st.text(alphabet="`~%<!->\n ab"))
def test_hiding_keeps_every_position(text: str) -> None:
    hidden = hide_quoted(text)
    assert len(hidden) == len(text)
    assert all(new in (old, " ") for old, new in zip(text, hidden, strict=True))


def test_occurrences_do_not_overlap() -> None:
    assert find_all("aaaa", "aa") == (0, 2)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="strict, lenient"):
        ExtractionSettings(mode="loose")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="max_boxes"):
        ExtractionSettings(max_boxes=0)


def test_the_last_number_can_be_switched_off() -> None:
    text = "In all there were 12 of them"
    assert extract(text).answer == "12"
    found = extract_answer(Source(text), SPEC, ExtractionSettings(last_number=False))
    assert (found.answer, found.rung) == (None, Rung.NONE)


UNITS = [
    "\\boxed{",
    "\\boxed{1} ",
    "\\boxed ",
    "\\boxed{1}, ",
    "{",
    "}",
    "$",
    "$a ",
    "wait, no ",
    "<      ",
    "answer is 1. ",
    "\\(",
    "\\[",
    "\\text{",
    "<answer>",
    "<answer>1</answer>",
    "#### 1\n",
    "####",
    "answer is ",
    "answer to the ",
    "The answer is 1. ",
    "gold answer ",
    "the ",
    "1 ",
    "1,",
    "1,111",
    "0",
    "1 or ",
    "**",
    "*",
    "```\n",
    "<!--",
    "% x\n",
    "\n\n",
    " ",
    "A ",
    "Answer: B ",
    "(",
    "a",
    "not ",
    "\u200b",
    "<|im_end|>",
    "[",
    "\\begin{",
    "x = ",
    "-",
    ".",
    "is ",
    "{,}000",
    "42, not 41. ",
    "not 1 but 2 ",
    "So the result is 1. ",
    "\\boxed{1}. It is 2.",
    "\\color{white}",
    "\\textcolor{white}{",
    "\\textcolor{white}{a",
    "about ",
    "I doubt that ",
    "no 7 ",
    "twenty ",
    "1; ",
    "x + y = ",
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["math", "choice", "text"])
def test_a_quarter_megabyte_of_anything_is_read(unit: str, kind: Any) -> None:
    """Quadratic work would take minutes here; nothing is timed."""
    found = extract(unit * (2**18 // len(unit)), Wanted(kind))
    assert (found.answer is None) is (found.reason is not None)
