"""FormatSpec: what it refuses, what it asks for, and that prompt and checker agree."""

import itertools
from typing import get_args

import pytest

from rewards.errors import ConfigError
from rewards.extraction import ExtractionSettings
from rewards.format import AnswerStyle, FormatSpec, Mode
from rewards.text import Source, extract_answer
from rewards.verifiers.think_format import layout_fault

ANSWERS = {"free": "42", "boxed": "\\boxed{42}", "tags": "[A]42[/A]"}


@pytest.mark.parametrize(("mode", "style"), itertools.product(get_args(Mode), get_args(AnswerStyle)))
def test_a_completion_that_does_what_the_prompt_says_passes(mode: Mode, style: AnswerStyle) -> None:
    spec = FormatSpec("[T]", "[/T]", mode, style, "[A]", "[/A]")
    prompt = spec.system_prompt()
    assert ("[T]" in prompt and "[/T]" in prompt) is (mode != "off")
    assert ("[A]" in prompt and "[/A]" in prompt) is (style == "tags")
    assert ("\\boxed{}" in prompt) is (style == "boxed")
    assert layout_fault(f"[T]six times seven[/T]\n{ANSWERS[style]}", "", spec) is None


@pytest.mark.parametrize("value", ["42", "-1.5", "x^2+1", "(1, 2)", "\\frac{a}{b}", "\\text{odd}", "[0, 1)"])
@pytest.mark.parametrize("words", ["{}", "The answer is {}.", "Hence y.\n\nThe answer is {}"])
def test_the_ladder_reads_what_the_free_prompt_asks_for(value: str, words: str) -> None:
    spec = FormatSpec()
    assert spec.system_prompt().endswith('the final answer, alone or after the words "The answer is".')
    source = Source(f"<think>hm, 7</think>\n{words.format(value)}", question="What is y?")
    assert extract_answer(source, spec, ExtractionSettings()).answer == value


def test_an_own_instruction_is_used_as_it_is_and_must_name_the_tags() -> None:
    own = "Reason in <think> and </think>; the result goes into \\boxed{}."
    assert FormatSpec(answer_style="boxed", instruction=own).system_prompt() == own
    with pytest.raises(ConfigError, match="does not mention '</think>'"):
        FormatSpec(instruction="Reason in <think>, then answer.")
    with pytest.raises(ConfigError, match="boxed"):
        FormatSpec(answer_style="boxed", instruction="Reason in <think> and </think>.")
    with pytest.raises(ConfigError, match="<answer>"):
        FormatSpec(instruction="<think> </think>", answer_style="tags")
    assert FormatSpec(instruction="Just answer.", mode="off").system_prompt()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "sometimes"}, "expected one of required, optional, off"),
        ({"answer_style": "box"}, "expected one of free, boxed, tags"),
        ({"think_open": ""}, "format.think_open"),
        ({"think_close": " </think>"}, "without white space"),
        ({"think_open": "think"}, "none contains another"),
        ({"answer_open": "<think>"}, "none contains another"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FormatSpec(**changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("prompt", "prefill"),
    [
        ("", ""),
        ("<|user|>hi<|assistant|>", ""),
        ("<|assistant|><think>", "<think>"),
        ("<|assistant|>\n<think>\n\n", "<think>\n\n"),
        ("Let me see.\n<think>", "<think>"),
        ("Use <think> and </think>.<|assistant|>\n<think>\n", "<think>\n"),
        ("Begin with <think>.<|assistant|>", ""),
        ("<|assistant|><think>\n\n</think>\n\n", ""),
    ],
)
def test_the_prefill_is_what_the_template_opened(prompt: str, prefill: str) -> None:
    assert FormatSpec().prefill_of(prompt) == prefill


def test_specs_are_values() -> None:
    assert len({FormatSpec(), FormatSpec(), FormatSpec(mode="off")}) == 2
