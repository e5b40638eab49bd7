"""Whatever a completion is made of, it gets a score between 0 and 1, and breaks nothing of ours."""

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewards.format import FormatSpec
from rewards.isolation import Limits
from rewards.types import Problem, Reason, Sample, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.think_format import ThinkFormatVerifier

GOLDS = [
    *(
        "42",
        "-0.75",
        "1e-8",
        "10,080",
        "\\frac{1}{2}",
        "5\\text{ cm}",
        "35^\\circ",
        "3\\pm\\sqrt{2}",
        "4343_6",
    ),
    *("x^2+1", "\\sin(2x)", "y=2x+3", "x>4", "P(x)=x^3", "(1, 2)", "[0, 1)", "\\{1, 2, 3\\}", "2, 3", "3:4"),
    *(
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
        "(-\\infty,1)\\cup(2,\\infty)",
        "B",
        "odd",
        "\\$24",
        "12:30",
    ),
]
PIECES = [
    *(
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "\\boxed{",
        "####",
        "The answer is ",
        "final answer is $",
    ),
    *(
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\\{",
        "\\}",
        "\\left(",
        "\\right]",
        "|",
        "\\lfloor ",
        "\\rceil ",
        "$",
        "\\(",
    ),
    *(
        "0",
        "1",
        "2",
        "7",
        "42",
        "99999999999",
        "0.5",
        "1e400",
        "x",
        "y",
        "n",
        "e",
        "i",
        "C",
        "\\pi",
        "\\infty",
    ),
    *(
        "+",
        "-",
        "*",
        "/",
        "^",
        "_",
        "!",
        "'",
        "%",
        "=",
        "<",
        "\\le ",
        "\\ne ",
        "\\in ",
        "\\cup ",
        "\\pm ",
        ",",
        ";",
    ),
    *(
        "\\frac{1}{",
        "\\frac{",
        "}{",
        "\\sqrt",
        "\\sqrt[3]{",
        "\\sin",
        "\\log_",
        "\\sum_{k=1}^",
        "\\int_0^1 ",
        "dx",
    ),
    *(
        "\\lim_{x\\to 0}",
        "\\binom{9}{",
        "f(",
        "P(3)=",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "\\begin{cases}",
    ),
    *(
        "\\text{ or }",
        " and ",
        "\\text{",
        "\\mathrm{",
        "km/h",
        "^\\circ",
        "A",
        "(B)",
        "not ",
        ":",
        ".",
        "...",
        "\n",
        " ",
    ),
    *(
        "\0",
        "\ud800",
        "\u200b",
        "\u202e",
        "٤٢",
        "𝟒𝟐",
        "½",
        "x²",
        "−",
        "é",
        "<|im_end|>",
        "```",
        "<!--",
        "**",
        "~",
        "\\",
    ),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
LAYOUTS = st.sampled_from(
    ["{}", "<think>hm</think>{}", "<think>hm</think>\\boxed{{{}}}", "The answer is ${}$."]
)
FUZZ = settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def near_golds(draw: st.DrawFn) -> tuple[str, str]:
    """A gold, and a text that is nearly it: a piece is cut out, repeated, or replaced by another."""
    gold = draw(st.sampled_from(GOLDS))
    start = draw(st.integers(0, len(gold)))
    end = draw(st.integers(start, len(gold)))
    middle = draw(st.sampled_from(["", gold[start:end] * 2, gold, *PIECES]))
    return gold, gold[:start] + middle + gold[end:]


def check(gold: str, text: str, prefill: str = "") -> None:
    sample = Sample(Problem("p", "What is it?", (gold,)), text, prefill)
    accuracy = AccuracyVerifier(
        FormatSpec(mode="optional"), limits=Limits(cpu_seconds=1.0, wall_seconds=60.0)
    )
    (right,) = accuracy.score([sample])
    assert right.verdict is Verdict.SCORED, (gold, text, right.reason, dict(right.notes))
    assert right.value in (0.0, 1.0)
    assert (right.value == 1.0) is right.reason.startswith("match")
    for partial in (False, True):
        (laid_out,) = ThinkFormatVerifier(FormatSpec(answer_style="tags"), partial).score([sample])
        assert laid_out.value is not None
        assert 0.0 <= laid_out.value <= 1.0
        assert (laid_out.value == 1.0) is (laid_out.reason is Reason.FORMAT_OK)
    assert pickle.loads(pickle.dumps(right)) == right


@given(st.sampled_from(GOLDS), LAYOUTS, SOUP | st.text(max_size=80), st.sampled_from(["", "<think>\n"]))
@FUZZ
def test_any_text_gets_a_score_in_its_range(gold: str, layout: str, text: str, prefill: str) -> None:
    check(gold, layout.format(text), prefill)


@given(near_golds(), LAYOUTS)
@FUZZ
def test_any_text_near_a_gold_gets_a_score_in_its_range(pair: tuple[str, str], layout: str) -> None:
    check(pair[0], layout.format(pair[1]))


@pytest.mark.parametrize("gold", GOLDS)
def test_every_gold_of_the_fuzz_verifies_against_itself(gold: str) -> None:
    (score,) = AccuracyVerifier().score(
        [Sample(Problem("p", "q?", (gold,)), f"<think>hm</think>\\boxed{{{gold}}}")]
    )
    assert score.value == 1.0
