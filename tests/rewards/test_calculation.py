"""A problem that asks for a number is not answered by a calculation."""

import pytest
from shared_cases import shared_rows

from rewards.calculation import is_calculation, leaves_work
from rewards.format import FormatSpec
from rewards.types import Problem, Reason, Sample
from rewards.verifiers.accuracy import AccuracyVerifier

VERIFIER = AccuracyVerifier(FormatSpec(mode="off"))


def score_of(answer: str, gold: str, answer_type: str) -> tuple[float | None, Reason]:
    problem = Problem("p", "37+45=", (gold,), answer_type)  # pyright: ignore[reportArgumentType]
    (score,) = VERIFIER.score([Sample(problem, rf"\boxed{{{answer}}}")])
    return score.value, score.reason


@pytest.mark.parametrize(
    "answer",
    [
        "37+45",
        "45 + 37",
        "100-18",
        r"41 \times 2",
        r"2\cdot 41",
        "2*41",
        "41×2",
        r"164 \div 2",
        "x = 37 + 45",
        r"\frac{80}{2}+\frac{84}{2}",
        "(40)+(42)",
        "100 − 18",
        "4!",
        "82+0",
        r"82 \pm 1",
    ],
)
def test_calculations(answer: str) -> None:
    assert is_calculation(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "82",
        "-82",
        "+82",
        "- 82",
        "82.0",
        "1,234",
        r"\$1,234",
        "82%",
        r"\frac{164}{2}",
        "164/2",
        "3 1/2",
        r"3\frac{1}{2}",
        r"4.5 \times 10^{33}",
        r"4.5\cdot10^{-3}",
        "4.5*10**-3",
        "4.5×10⁻³",
        "1e-8",
        "1.5E+10",
        "37+45=82",
        "x = 82",
        r"x \approx 82.5",
        "82 miles",
        r"82 \text{ kg m}^{-2}",
        "10^{-8}",
        "12-hour",
        "",
    ],
)
def test_numbers(answer: str) -> None:
    assert not is_calculation(answer)


@pytest.mark.parametrize(
    ("answer", "gold", "answer_type", "value", "reason"),
    [
        ("37+45", "82", "number", 0.0, Reason.MISMATCH),
        ("82", "82", "number", 1.0, Reason.MATCH_STRING),
        ("37+45=82", "82", "number", 1.0, Reason.MATCH_NUMERIC),
        # an expression may stand for its value, and a gold that is itself a calculation asks for no more
        ("40+42", "82", "expression", 1.0, Reason.MATCH_NUMERIC),
        ("40+42", "82", "auto", 1.0, Reason.MATCH_NUMERIC),
        # the question itself is no answer of any type, unless it is the gold
        ("37+45", "82", "auto", 0.0, Reason.MISMATCH),
        ("37 + 45", "82", "auto", 0.0, Reason.MISMATCH),
        ("37+45", "37+45", "auto", 1.0, Reason.MATCH_STRING),
        ("45+37", "37+45", "number", 1.0, Reason.MATCH_NUMERIC),
    ],
)
def test_what_a_calculation_earns(
    answer: str, gold: str, answer_type: str, value: float, reason: Reason
) -> None:
    assert score_of(answer, gold, answer_type) == (value, reason)


@pytest.mark.parametrize(
    ("question", "gold", "answer", "left"),
    [
        (
            r"Simplify $\tan 100^\circ + 4 \sin 100^\circ.$",
            r"-\sqrt{3}",
            r"\tan 100^\circ + 4\sin 100^\circ",
            True,
        ),
        (r"Expand $(x+1)(x+2) + 3x$.", "x^2+6x+2", r"\left(x+1\right)(x+2)+3x", True),
        (
            r"Compute $\dfrac{1}{2} \cdot \frac{3}{4} + 1$.",
            r"\frac{11}{8}",
            r"\frac12 \times \frac34 + 1",
            True,
        ),
        (r"Find $a + b$.", "5", "y = a+b", True),
        # worked on, if not finished: a matter of the comparison
        (r"Expand $(x+1)(x+2) + 3x$.", "x^2+6x+2", "x^2+3x+2+3x", False),
        # what the question offers may be the answer
        ("Which is larger, $3^5 + 1$ or $2^8 - 1$?", "2^8-1", "2^8 - 1", False),
        (r"Divide $\frac{3+4i}{1+2i}$ by ... and write $1 + 2i$.", "1+2i", "1 + 2i", False),
        # no operation, nothing to do
        (r"Which is irrational, $\sqrt{2}$ or $1/2$?", r"\sqrt2", r"\sqrt{2}", False),
        ("Is it $-3$ or $3$?", "-3.0", "-3", False),
    ],
)
def test_the_expression_of_the_question_is_no_answer(
    question: str, gold: str, answer: str, left: bool
) -> None:
    assert leaves_work(answer, question, [gold], number=False) == left


def test_the_notes_keep_the_answer() -> None:
    problem = Problem("p", "37+45=", ("82",), "number")
    (score,) = VERIFIER.score([Sample(problem, r"\boxed{37+45}")])
    assert score.notes["answer"] == "37+45"
    assert score.notes["rung"] == "box"


def test_no_right_solution_of_gsm8k_is_lost() -> None:
    rows = shared_rows("data/gsm8k/example_model_solutions.jsonl")
    solutions = [(row["ground_truth"], row["175b_verification"]["solution"]) for row in rows]
    samples = {
        answer_type: [
            Sample(Problem(str(n), "", (truth.rpartition("A: ")[2].strip(),), answer_type), text)  # pyright: ignore
            for n, (truth, text) in enumerate(solutions)
        ]
        for answer_type in ("auto", "number")
    }
    as_auto, as_number = (VERIFIER.score(samples[kind]) for kind in ("auto", "number"))
    assert sum(score.value == 1.0 for score in as_auto) > 500
    assert [score.value for score in as_auto] == [score.value for score in as_number]


@pytest.mark.parametrize("piece", ["1+", "-", " ", "{", "1-{", "1- ", r"\times ", "*10 ", "= ", "1*{"])
def test_a_megabyte_is_read_in_passing(piece: str) -> None:
    # quadratic work would take an hour
    text = "1" + piece * (1_000_000 // len(piece)) + "x"
    assert leaves_work(text, "a question", ["1"], number=False) is False
