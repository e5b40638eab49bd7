"""Step segmentation: a table of cases, the properties that hold for every text, and real outputs."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_cases import shared

from rewards.blocks import BlockKind, find_blocks
from rewards.errors import ConfigError
from rewards.steps import STRATEGIES, Step, StepSettings, split_steps

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases/steps.jsonl").read_text(encoding="utf-8").splitlines()
]


def cut(text: str, **changes: Any) -> list[str]:
    return [text[step.start : step.end] for step in split_steps(text, StepSettings(**changes))]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    text = "".join(case["steps"])
    assert cut(text, strategy=case["strategy"], **case["settings"]) == case["steps"]


def test_regions_are_named() -> None:
    assert split_steps("<think>a</think>b") == [Step(0, 16, "thought"), Step(16, 17, "answer")]
    assert split_steps("a") == [Step(0, 1, "text")]
    assert split_steps("  <think>a") == [Step(0, 10, "thought")]


FRAGMENTS = st.sampled_from(
    [
        "Add 3 and 4. ",
        "So x is 7.",
        "Then",
        "where y",
        "e.g. Ohm. ",
        "\n",
        "\n\n",
        "\r\n",
        "\r\n\r\n",
        "\n \n",
        "  ",
        "Step 1: Add.",
        "Step 2:",
        "## Head",
        "**Head**",
        "We get:",
        "1. a",
        "2. b",
        "3. c",
        "- item",
        "---",
        "```",
        "```python\n",
        "```output\n",
        "~~~",
        "\\[",
        "\\]",
        "$$",
        "$",
        "$x$",
        "\\(",
        "\\)",
        "\\begin{align}",
        "\\end{align}",
        "\\begin{cases}",
        "\\end{cases}",
        "| a | b |\n",
        "|---|---|\n",
        "<think>",
        "</think>",
        "\\boxed{7}",
        "。",
        "é",
        "🙂",
        "\u2028",
        "\u00a0",
        "\\",
    ]
)
TEXTS = st.one_of(st.lists(FRAGMENTS, max_size=25).map("".join), st.text(max_size=60))
ANY_STRATEGY = st.sampled_from(list(STRATEGIES))


@settings(max_examples=300, deadline=None)
@given(TEXTS, ANY_STRATEGY, st.integers(40, 80), st.integers(2, 6))
def test_steps_cover_the_text_exactly_within_the_bounds(
    text: str, strategy: str, max_chars: int, max_steps: int
) -> None:
    steps = split_steps(
        text,
        StepSettings(strategy=strategy, max_chars=max_chars, max_steps=max_steps),  # type: ignore[arg-type]
    )
    assert "".join(text[step.start : step.end] for step in steps) == text
    assert all(step.start < step.end for step in steps)
    assert len(steps) <= max_steps
    regions = [step.region for step in steps]
    assert regions == sorted(regions, reverse=True)  # thought before answer, each once


@settings(max_examples=300, deadline=None)
@given(TEXTS, ANY_STRATEGY)
def test_a_step_is_one_step(text: str, strategy: str) -> None:
    for step in split_steps(text, StepSettings(strategy=strategy)):  # type: ignore[arg-type]
        piece = text[step.start : step.end]
        # Cut off from its thought an answer is text like any other, and so is text after a stray closing tag.
        if step.region != "answer" and "</think>" not in piece.rstrip().removesuffix("</think>"):
            assert cut(piece, strategy=strategy) == [piece]


@settings(max_examples=200, deadline=None)
@given(TEXTS, ANY_STRATEGY, st.integers(40, 80))
def test_no_step_is_longer_than_the_bound(text: str, strategy: str, max_chars: int) -> None:
    tags = len("<think></think>")
    for piece in cut(text, strategy=strategy, max_chars=max_chars):
        # white space on both sides of the tags
        content = piece.strip().removeprefix("<think>").removesuffix("</think>").strip()
        assert len(content) <= max_chars + tags


@settings(max_examples=300, deadline=None)
@given(TEXTS, ANY_STRATEGY, st.integers(40, 80))
def test_no_step_is_blank_beside_others_of_its_region(text: str, strategy: str, max_chars: int) -> None:
    steps = split_steps(text, StepSettings(strategy=strategy, max_chars=max_chars))  # type: ignore[arg-type]
    for before, after in pairwise(steps):
        if before.region == after.region:
            pieces = [text[step.start : step.end].strip() for step in (before, after)]
            assert pieces[0] not in ("", "<think>")
            assert pieces[1] not in ("", "</think>")


@settings(max_examples=200, deadline=None)
@given(TEXTS, ANY_STRATEGY)
def test_no_block_is_cut(text: str, strategy: str) -> None:
    body = text.replace("<think>", "").replace(
        "</think>", ""
    )  # one region, so that blocks are those of the text
    ends = {step.end for step in split_steps(body, StepSettings(strategy=strategy))}  # type: ignore[arg-type]
    for block in find_blocks(body, 2000):
        if block.kind is not BlockKind.INLINE:
            assert not any(block.start < end < block.end for end in ends)


def test_oversized_blocks_are_cut_at_their_lines() -> None:
    code = "```python\n" + "x = 1\n" * 20 + "```\n"
    pieces = cut(code, max_chars=40)
    assert "".join(pieces) == code
    assert all(len(piece) <= 40 and piece.endswith("\n") for piece in pieces)


def test_a_stray_opening_mark_does_not_swallow_the_text() -> None:
    paragraphs = [f"Paragraph number {i} says something.\n\n" for i in range(100)]
    assert cut("A stray \\[ mark.\n\n" + "".join(paragraphs), max_chars=500)[1:] == paragraphs


def test_a_long_paragraph_is_cut_at_sentences_by_auto_only() -> None:
    text = " ".join(f"Sentence number {i} has some words." for i in range(40))
    assert len(cut(text, strategy="blank_line")) == 1
    pieces = cut(text)
    assert len(pieces) > 1
    assert all(len(piece) <= 600 for piece in pieces)


def test_too_many_steps_are_joined_evenly() -> None:
    text = "Add.\n\n" * 1000
    pieces = cut(text, max_steps=10)
    assert "".join(pieces) == text
    assert 4 <= len(pieces) <= 10
    with_answer = split_steps("<think>" + text + "</think>7", StepSettings(max_steps=2))
    assert [step.region for step in with_answer] == ["thought", "answer"]


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "\n",
        "\n ",
        "a\n",
        "1. a\n",
        "$",
        "$$",
        "\\[",
        "\\(",
        "```\n",
        "`",
        "\\begin{a}",
        "\\end{a}",
        "\\begin{a}\\end{b}",
        "| a |\n",
        "# a\n\n",
        "a:\n\n",
        "$x$\n\n",
        ". A",
        "!",
        "<think>",
        "</think>",
        "**",
        "Step 1:\n",
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "sentence"])
def test_long_hostile_text_takes_linear_time(unit: str, strategy: str) -> None:
    text = unit * (100_000 // len(unit))
    assert "".join(cut(text, strategy=strategy)) == text  # a quadratic pass would take minutes


def test_blocks_of_each_kind() -> None:
    text = "$a$ \\(b\\)\n```\nc\n```\n\\[d\\]\n|e|\n|f|\n\\begin{g}\\end{g}"
    found = [(text[b.start : b.end], b.kind.value) for b in find_blocks(text, 100)]
    assert found == [
        ("$a$", "inline"),
        ("\\(b\\)", "inline"),
        ("```\nc\n```", "code"),
        ("\\[d\\]", "display"),
        ("|e|\n|f|", "table"),
        ("\\begin{g}\\end{g}", "display"),
    ]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"strategy": "words"}, "strategy='words'"),
        ({"answer": "none"}, "answer='none'"),
        ({"max_chars": 39}, "max_chars=39"),
        ({"max_steps": 1}, "max_steps=1"),
        ({"think_open": ""}, "think_open"),
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        StepSettings(**changes)


@pytest.mark.parametrize(
    "name",
    ["math500__Qwen2.5-Math-7B", "math500__gemma-2-27b-it", "minerva_math__Qwen2.5-14B-Instruct"],
)
def test_auto_on_real_outputs(name: str) -> None:
    with gzip.open(shared(f"data/model_outputs/{name}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["completion"] for line in lines]
    counts: list[int] = []
    for text in texts:
        pieces = cut(text)
        assert "".join(pieces) == text
        assert not any(piece.strip() in ("", "\\[", "\\]", "```", "---") for piece in pieces)
        counts.append(len(pieces))
    assert 5 <= sorted(counts)[len(counts) // 2] <= 12
    # Solutions of one step are rare: nearly every output is laid out in some way.
    assert sum(count == 1 for count in counts) <= len(counts) * 0.03


def test_semicolons_end_steps_where_asked() -> None:
    text = "<think>7+5=12,c1; 3+4+1=8</think>82; done"
    steps = split_steps(text, StepSettings(strategy="semicolon"))
    assert [text[s.start : s.end] for s in steps] == [
        "<think>7+5=12,c1; ",
        "3+4+1=8</think>",
        "82; done",
    ]
    assert len(split_steps(text)) == 2
