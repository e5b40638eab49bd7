"""The arithmetic step scorer: which equations are found, where their spans lie, and what spam earns."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo.credit import CreditForm, CreditSettings, process_advantages
from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample, Score, StepScore, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.arithmetic_steps import ArithmeticStepScorer, find_equations, thought_span

PROBLEM = Problem("p", "37+45=", ("82",), "number")
SCORER = ArithmeticStepScorer()


def score(text: str, scorer: ArithmeticStepScorer = SCORER) -> Score:
    [result] = scorer.score([Sample(PROBLEM, text)])
    return result


def found(text: str) -> list[tuple[str, bool]]:
    return [(text[e.start : e.end], e.true) for e in find_equations(text, 0, len(text))]


def test_the_embedded_thought_gives_its_steps() -> None:
    text = "<think>7+5=12,c1;3+4+1=8</think>\\boxed{82}"
    result = score(text)
    assert result.verdict is Verdict.SCORED
    assert result.reason is Reason.STEPS
    assert result.value == 1.0
    assert result.steps == (StepScore(0, 13, 1.0), StepScore(13, 24, 1.0))
    assert [text[s.start : s.end] for s in result.steps] == ["<think>7+5=12", ",c1;3+4+1=8"]


def test_a_forgotten_carry_is_the_false_step() -> None:
    result = score("<think>7+5=12,c1;3+4+1=7</think>\\boxed{72}")
    assert [step.value for step in result.steps] == [1.0, 0.0]
    assert result.value == 0.5
    assert result.notes["first_false"] == "3+4+1=7"
    assert score("<think>7+5=12,c1;3+4+1=7</think>", ArithmeticStepScorer(aggregate="min")).value == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7+5=12", [("7+5=12", True)]),
        ("7+5=13", [("7+5=13", False)]),
        ("7 + 5 = 12.", [("7 + 5 = 12", True)]),
        ("9-12=-3", [("9-12=-3", True)]),
        ("9−12=−3", [("9−12=−3", True)]),
        ("3--2=5", [("3--2=5", True)]),
        ("-3+4=1", [("-3+4=1", True)]),
        ("2+3*4=14", [("2+3*4=14", True)]),
        ("2*3-4=2", [("2*3-4=2", True)]),
        ("2*-3=-6", [("2*-3=-6", True)]),
        ("3 × 4 = 12, 3·4=12", [("3 × 4 = 12", True), ("3·4=12", True)]),
        (r"$3 \times 4 \cdot 2 = 24$", [(r"3 \times 4 \cdot 2 = 24", True)]),
        ("12=7+5", [("12=7+5", True)]),
        ("2*3=5+1=6", [("2*3=5+1=6", True)]),
        ("2*3=5+1=7", [("2*3=5+1=7", False)]),
        ("x = 3+4=7", [("3+4=7", True)]),
        ("1,000+2=1,002", [("1,000+2=1,002", True)]),
        ("0007+05=12", [("0007+05=12", True)]),
        ("**3+4=7** and (1+1=2)", [("3+4=7", True), ("1+1=2", True)]),
        ("- 3+4=7\n* 1+1=2\n+ 2+2=4", [("3+4=7", True), ("1+1=2", True), ("2+2=4", True)]),
        ("So 3+4=7 - nice", [("3+4=7", True)]),
        ("1+1=2 3+3=6", [("1+1=2", True), ("3+3=6", True)]),
        # Part of something else, hence no equation of integers.
        ("x+3+4=7", []),
        ("x + 3 + 4 = 7", []),
        ("c1+2=3", []),
        ("2^3+4=12", []),
        ("1/2+3=4", []),
        ("1.5+2=3.5", []),
        ("3+4=7.5", []),
        ("3+4=7x", []),
        ("3+4=7+x", []),
        ("3+4=7 + x", []),
        ("3+4=7 * x", []),
        ("3+4=7-x", []),
        ("3+4=14/2", []),
        ("3+4=7^1", []),
        (r"3+4=7 \times x", []),
        ("(3+4)*2+1=15", []),
        ("2*(3+4)=14", []),
        # No calculation is claimed.
        ("5=5", []),
        ("7+5", []),
        ("7+5==12", []),
        ("7+5=", []),
        ("", []),
    ],
)
def test_equations_are_found(text: str, expected: list[tuple[str, bool]]) -> None:
    assert found(text) == expected


def test_only_the_thought_is_read() -> None:
    assert score("<think>1+1=2</think>1+1=3").value == 1.0
    assert score("<think>hm</think>1+1=2").reason is Reason.NO_STEPS
    assert score("1+1=2</think>1+1=3").value == 1.0  # the prompt opened the thought
    assert score("<think>1+1=2, 2+2=5").value == 0.5  # never closed
    assert score("1+1=2").value == 1.0  # no thought at all
    assert thought_span("a<think>b</think>c<think>d</think>", FormatSpec()) == (8, 9)
    other = ArithmeticStepScorer(FormatSpec(think_open="[[", think_close="]]"))
    assert score("[[1+1=2]] 1+1=3", other).value == 1.0


def test_a_completion_without_equation_earns_the_floor_as_one_step() -> None:
    for text in ("<think>Easy.</think>\\boxed{82}", "\\boxed{82}", " "):
        result = score(text)
        assert (result.verdict, result.value, result.reason) == (Verdict.SCORED, 0.0, Reason.NO_STEPS)
        assert result.steps == (StepScore(0, len(text), 0.0),)
    assert score("").steps == ()


def test_numbers_and_equations_too_long_to_evaluate_are_false() -> None:
    assert score(f"{'9' * 19}+0={'9' * 19}").value == 0.0
    assert score(f"{'9' * 18}+0={'9' * 18}").value == 1.0
    assert score("+".join(["1"] * 40) + "=40").value == 0.0
    assert score("+".join(["1"] * 31) + "=31").value == 1.0


def test_trap_39_repeating_an_equation_earns_nothing() -> None:
    once = score("<think>1+1=2;2+2=5</think>")
    for extra in ("1+1=2;" * 50, "1 + 1 = 2;" * 50, "2=1+1;" * 50):
        spam = score(f"<think>{extra}1+1=2;2+2=5</think>")
        assert spam.value == once.value
        assert [step.value for step in spam.steps] == [1.0, 0.0]


def test_trap_39_flooding_with_different_equations_earns_the_floor() -> None:
    flood = ";".join(f"{i}+1={i + 1}" for i in range(65))
    assert score(flood).reason is Reason.TOO_LARGE
    assert score(flood).value == 0.0
    assert score(flood, ArithmeticStepScorer(max_steps=65)).value == 1.0


@pytest.mark.parametrize("form", ["mean", "min", "difference", "sum"])
@pytest.mark.parametrize("copies", [1, 5, 40])
def test_trap_39_repeats_never_raise_the_return_of_process_credit(form: CreditForm, copies: int) -> None:
    def returns(texts: list[str]) -> list[float]:
        scores = SCORER.score([Sample(PROBLEM, text) for text in texts])
        values = [[step.value for step in result.steps] for result in scores]
        ends = [[step.end - 1 for step in result.steps] for result in scores]  # one token a character
        rows = process_advantages(values, ends, [len(text) for text in texts], CreditSettings(form=form))
        return [float(row[0]) for row in rows]

    honest = "<think>7+5=12,c1;3+4+1=7</think>"
    others = ["<think>7+5=12,c1;3+4+1=8</think>", "<think>7+5=11;3+4=7</think>"]
    spam = f"<think>7+5=12,c1;3+4+1=7{';7+5=12' * copies}</think>"
    assert returns([spam, *others]) == pytest.approx(returns([honest, *others]), abs=1e-6)


def test_trap_39_silence_is_not_neutral_under_process_credit() -> None:
    texts = ["<think>hm</think>", "<think>1+1=2</think>", "<think>1+1=2;2+2=5</think>"]
    scores = SCORER.score([Sample(PROBLEM, text) for text in texts])
    values = [[step.value for step in result.steps] for result in scores]
    rows = process_advantages(values, [[0] * len(v) for v in values], [1, 1, 1], CreditSettings())
    assert float(rows[0][0]) < 0 < float(rows[1][0])


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("0123456789+-*=.,; <think>/x\n×−\\"), max_size=80))
def test_any_text_gives_a_valid_score(text: str) -> None:
    result = score(text)
    assert result.verdict is Verdict.SCORED
    assert 0.0 <= (result.value or 0.0) <= 1.0
    assert all(0 <= step.start < step.end <= len(text) for step in result.steps)
    if result.steps:
        assert result.steps[0].start == 0
        assert all(a.end == b.start for a, b in zip(result.steps, result.steps[1:], strict=False))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-999, 999)), min_size=1, max_size=6))
def test_agrees_with_python_arithmetic(terms: list[tuple[str, int]]) -> None:
    expression = "7" + "".join(f"{operator}{number}" for operator, number in terms)
    value = eval(expression)  # the test's own digits and operators
    assert found(f"{expression}={value}") == [(f"{expression}={value}", True)]
    assert found(f"{expression}={value + 1}") == [(f"{expression}={value + 1}", False)]


@pytest.mark.parametrize(
    "unit", ["1", "1+", "1 + ", "1=", "1 ", "1,111", "-", "+ ", "=", "1+1=2 ", "<think>", "1.", "\\times "]
)
def test_long_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert score(text).verdict is Verdict.SCORED  # a quadratic scan of a megabyte would take hours


def test_settings_are_checked_and_the_scorer_survives_pickle() -> None:
    with pytest.raises(ConfigError, match="aggregate='sum'"):
        ArithmeticStepScorer(aggregate="sum")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_steps=0"):
        ArithmeticStepScorer(max_steps=0)
    again = pickle.loads(pickle.dumps(SCORER))
    assert again == SCORER
    assert again.score([]) == []


def test_batch_equals_one_by_one() -> None:
    samples = [Sample(PROBLEM, text) for text in ("1+1=2", "", "2+2=5;1+1=2", "x")]
    assert SCORER.score(samples) == [SCORER.score([sample])[0] for sample in samples]
    assert torch.tensor([result.value for result in SCORER.score(samples)]).tolist() == [1.0, 0.0, 0.5, 0.0]


def test_the_answer_is_the_last_step_and_in_no_aggregate() -> None:
    scorer = ArithmeticStepScorer(answer=AccuracyVerifier())
    text = "<think>7+5=12,c1;3+4+1=7</think>72"
    problem = Problem("p", "37+45=", ("82",))
    (wrong,) = scorer.score([Sample(problem, text)])
    assert [(text[s.start : s.end], s.value) for s in wrong.steps] == [
        ("<think>7+5=12", 1.0),
        (",c1;3+4+1=7", 0.0),
        ("</think>72", 0.0),
    ]
    assert wrong.value == 0.5
    # a thought that leaves its hard step out is true so far, and pays for it at the end
    short = "<think>7+5=12</think>72"
    (skipped,) = scorer.score([Sample(problem, short)])
    assert [s.value for s in skipped.steps] == [1.0, 0.0]
    (right,) = scorer.score([Sample(problem, "<think>7+5=12,c1;3+4+1=8</think>82")])
    assert [s.value for s in right.steps] == [1.0, 1.0, 1.0]


def test_an_answer_that_cannot_be_judged_is_no_step() -> None:
    scorer = ArithmeticStepScorer(answer=AccuracyVerifier())
    (score,) = scorer.score([Sample(Problem("p", "37+45="), "<think>7+5=12</think>82")])
    assert [s.value for s in score.steps] == [1.0]
