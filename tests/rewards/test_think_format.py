"""Layout: the shared cases in both styles, the faults one by one, partial credit, turns, and linear time."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_cases import shared_rows

import rewards
from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample, Verdict
from rewards.verifiers.think_format import (
    PARTIAL_CEILING,
    ThinkFormatVerifier,
    layout_fault,
    tag_share,
    turns_fault,
    turns_share,
)

FREE = FormatSpec(answer_style="free")
BOXED = FormatSpec(answer_style="boxed")
TAGS = FormatSpec(answer_style="tags")


def _spec(row: dict[str, Any], style: str) -> FormatSpec:
    think, answer = row["tags"]
    return FormatSpec(
        think_open=f"<{think}>",
        think_close=f"</{think}>",
        answer_open=f"<{answer}>",
        answer_close=f"</{answer}>",
        answer_style=style,  # pyright: ignore[reportArgumentType]
    )


def _passes(row: dict[str, Any], spec: FormatSpec) -> bool:
    if "messages" in row:
        return turns_fault(row["messages"], spec) is None
    return layout_fault(row["completion"], row["prompt_tail"], spec) is None


@pytest.mark.parametrize(("style", "column"), [("free", "strict"), ("tags", "strict_with_answer_tags")])
def test_trap_36_every_shared_row_gets_its_strict_verdict(style: str, column: str) -> None:
    rows = shared_rows("cases/format.jsonl")
    wrong = [row["id"] for row in rows if _passes(row, _spec(row, style)) is not row[f"expected_{column}"]]
    assert not wrong


@pytest.mark.parametrize(("style", "column"), [("free", "soft_two_tags"), ("tags", "soft_four_tags")])
def test_every_shared_row_gets_its_share_of_tags(style: str, column: str) -> None:
    for row in shared_rows("cases/format.jsonl"):
        spec = _spec(row, style)
        if "messages" in row:
            share = turns_share(row["messages"], spec)
        else:
            share = tag_share(row["completion"], row["prompt_tail"], spec)
        assert share == row[column], row["id"]


@pytest.mark.parametrize(
    ("overrides", "column"), [([], "strict"), (["format=answer_tags"], "strict_with_answer_tags")]
)
def test_the_configured_reward_gives_the_strict_verdicts(overrides: list[str], column: str) -> None:
    rows = [row for row in shared_rows("cases/format.jsonl") if "messages" not in row]
    scorers = {tag: _configured(tag, overrides) for tag in {row["tags"][0] for row in rows}}
    wrong: list[str] = []
    for row in rows:
        problem = Problem(row["id"], "q?", ("4",))
        truncated = row["finish_reason"] == "length"
        sample = Sample(problem, row["completion"], row["prompt_tail"], truncated)
        (score,) = scorers[row["tags"][0]].score([sample])
        if (score.parts[0].score.value == 1.0) is not row[f"expected_{column}"]:
            wrong.append(row["id"])
    assert not wrong


def _configured(tag: str, overrides: list[str]) -> rewards.Scorer:
    """The scorer of `reward=format`, with other tags where the row has others."""
    tags = [f"format.think_open='<{tag}>'", f"format.think_close='</{tag}>'"] if tag != "think" else []
    return rewards.load_scorer("format", *overrides, *tags)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Reason.NO_THINK),
        ("42", Reason.NO_THINK),
        ("because</think>42", Reason.NO_THINK),
        ("Well. <think>because</think>42", Reason.MISPLACED_THINK),
        ("</think>because<think>42", Reason.MISPLACED_THINK),
        ("\u200b<think>because</think>42", Reason.MISPLACED_THINK),
        ("<think>because", Reason.UNCLOSED_THINK),
        ("<think>because</think", Reason.UNCLOSED_THINK),
        ("<think>because</th\u200bink>42", Reason.UNCLOSED_THINK),
        ("<think>a</think><think>b</think>42", Reason.REPEATED_THINK),
        ("<think>a<think>b</think>42", Reason.REPEATED_THINK),
        ("<think>a</think>42</think>", Reason.REPEATED_THINK),
        ("<think></think>42", Reason.EMPTY_THINK),
        ("<think> \n\t\u00a0</think>42", Reason.EMPTY_THINK),
        ("<think>\u200b\u2060</think>42", Reason.EMPTY_THINK),
        ("<think>a</think>", Reason.EMPTY_ANSWER),
        ("<think>a</think> \n <|im_end|>\n", Reason.EMPTY_ANSWER),
        ("<think>a</think>\u200b", Reason.EMPTY_ANSWER),
        ("<think>\u115f\u2800</think>42", Reason.EMPTY_THINK),
        ("<think>\u0301</think>42", Reason.EMPTY_THINK),
        ("<think>a</think>\u3164", Reason.EMPTY_ANSWER),
        ("<think>a</think>\ue000", Reason.EMPTY_ANSWER),
        ("<think>a</think>\x1b[0m", Reason.EMPTY_ANSWER),
        ("<think>a</think>```", Reason.EMPTY_ANSWER),
        ("<think>a</think>\\boxed{}", Reason.EMPTY_ANSWER),
        ("<think>a</think>42<think", Reason.REPEATED_THINK),
        ("<think>a</think>42</thin", Reason.REPEATED_THINK),
        ("<think>a</think><answer> </answer>", Reason.EMPTY_ANSWER),
        ("<THINK>a</THINK>42", Reason.NO_THINK),
        ("<think>a</think>42", None),
        ("\r\n <think>a\r\nb</think>\r\n42</s>", None),
    ],
)
def test_trap_36_each_fault_has_its_reason(text: str, fault: Reason | None) -> None:
    assert layout_fault(text, "", FREE) is fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<think>a</think>It is \\boxed{42}.", None),
        ("<think>a</think>\\fbox{42}", None),
        ("<think>a</think>It is 42.", Reason.BAD_ANSWER_BLOCK),
        ("<think>\\boxed{42}</think>It is 42.", Reason.BAD_ANSWER_BLOCK),
        ("<think>a</think>\\boxed{}", Reason.BAD_ANSWER_BLOCK),
        ("<think>a</think>\\boxed{42", Reason.BAD_ANSWER_BLOCK),
    ],
)
def test_the_boxed_style_wants_a_closed_box_after_the_thought(text: str, fault: Reason | None) -> None:
    assert layout_fault(text, "", BOXED) is fault


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>4</answer><answer>4</answer>",
        "<think>a</think></answer>4<answer>",
        "<think>a</think>It is <answer>4</answer>",
        "<think>a</think><answer>4</answer>.",
        "<think><answer>4</answer></think>4",
        "<think><answer></think>4</answer>",
        "<think>a</think><answer>4",
    ],
)
def test_the_tags_style_wants_one_block_and_nothing_around(text: str) -> None:
    assert layout_fault(text, "", TAGS) is Reason.BAD_ANSWER_BLOCK


def test_what_the_template_wrote_is_not_the_models_doing() -> None:
    assert layout_fault("a</think>4", "Let me see.\n<think>\n", FREE) is None
    assert layout_fault("a</think>4", "", FREE) is Reason.NO_THINK
    # The template opened the thought: opening it again is a second one.
    assert layout_fault("<think>a</think>4", "<think>\n", FREE) is Reason.REPEATED_THINK
    # A thought that the template closed itself is none of the model's.
    assert layout_fault("4", "<think>\n\n</think>\n\n", FREE) is Reason.NO_THINK


def test_tags_may_be_any_strings_special_tokens_too() -> None:
    spec = FormatSpec(
        think_open="<|begin_of_thought|>", think_close="<|end_of_thought|>", answer_style="free"
    )
    assert layout_fault("<|begin_of_thought|>a<|end_of_thought|>4", "", spec) is None
    assert layout_fault("<think>a</think>4", "", spec) is Reason.NO_THINK


def test_an_optional_thought_may_be_left_out_but_not_botched() -> None:
    spec = FormatSpec(mode="optional", answer_style="free")
    assert layout_fault("42", "", spec) is None
    assert layout_fault("<think>a</think>42", "", spec) is None
    assert layout_fault("", "", spec) is Reason.EMPTY_ANSWER
    assert layout_fault("<think>a", "", spec) is Reason.UNCLOSED_THINK
    assert layout_fault("a</think>42", "", spec) is Reason.NO_THINK


def _sample(text: str) -> Sample:
    return Sample(Problem("p", "6*7?", ("42",)), text)


def test_off_abstains_whatever_the_completion_says() -> None:
    verifier = ThinkFormatVerifier(FormatSpec(mode="off"))
    for text in ("", "<think>a</think>42", "<think>" * 50):
        (score,) = verifier.score([_sample(text)])
        assert (score.verdict, score.reason) == (Verdict.ABSTAINED, Reason.NOT_APPLICABLE)


def test_partial_credit_never_reaches_a_right_layout() -> None:
    texts = ["<think>a</think>4", "</think>a<think>4", "<think>a", "a"]
    soft = [
        s.value for s in ThinkFormatVerifier(FREE, partial_credit=True).score([_sample(t) for t in texts])
    ]
    strict = [s.value for s in ThinkFormatVerifier(FREE).score([_sample(t) for t in texts])]
    # Swapped tags: both once, half of the whole; an open one: one of two tags, a quarter.
    assert soft == [1.0, 0.5, 0.25, 0.0]
    assert strict == [1.0, 0.0, 0.0, 0.0]
    assert PARTIAL_CEILING < 1


def test_a_partial_score_names_the_fault() -> None:
    (score,) = ThinkFormatVerifier(FREE, partial_credit=True).score([_sample("<think>a")])
    assert score.reason is Reason.FORMAT_PARTIAL
    assert score.notes == {"fault": "unclosed_think"}


@given(st.text(alphabet="a <think>/answr4\n"))
def test_any_text_has_a_layout_verdict_and_pickles(text: str) -> None:
    verifier = pickle.loads(pickle.dumps(ThinkFormatVerifier(TAGS, partial_credit=True)))
    (score,) = verifier.score([_sample(text)])
    assert score.value is not None
    assert 0.0 <= score.value <= 1.0
    assert (score.value == 1.0) == (score.reason is Reason.FORMAT_OK)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "x", " "]), max_size=12))
def test_trap_36_a_right_layout_is_exactly_the_one_asked_for(pieces: list[str]) -> None:
    """Plain restatement of the rule over the token list, white space aside."""
    tokens = [piece for piece in pieces if piece != " "]
    after = tokens.index("</think>") if "</think>" in tokens else 0
    thought, answer = tokens[1:after], tokens[after + 1 :]
    right = (
        tokens[:1] == ["<think>"]
        and tokens.count("<think>") == tokens.count("</think>") == 1
        and "x" in thought
        and "<answer>" not in thought
        and "</answer>" not in thought
        and answer[:1] == ["<answer>"]
        and answer[-1:] == ["</answer>"]
        and set(answer[1:-1]) == {"x"}
    )
    assert (layout_fault("".join(pieces), "", TAGS) is None) is right


@pytest.mark.parametrize(
    "unit", ["<think>", "</think>", "<think>a</think>", "<answer>", "\\boxed{", "</s>", " ", "<"]
)
def test_trap_36_a_megabyte_of_anything_is_read(unit: str) -> None:
    """Quadratic work would take hours here; nothing is timed."""
    text = unit * (2**20 // len(unit))
    for spec in (FREE, BOXED, TAGS):
        assert layout_fault(text, "", spec) is not None or spec is FREE
        tag_share(text, "", spec)
