"""Which answers have one vote together: equal as mathematics, whatever is right."""

import pytest

from rewards.agreement import answer_of, equivalence_classes, same_answer
from rewards.types import AnswerType, Problem, Sample
from rewards.verifiers.accuracy import AccuracyVerifier

VERIFIER = AccuracyVerifier()


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("<think>5</think>\\boxed{7}", ("3",), "7"),
        ("The answer is 12.", ("3",), "12"),
        ("<think>\\boxed{7}", ("3",), None),  # the thought is not closed
        ("I do not know", ("3",), None),
        ("\\boxed{7}", (), None),  # nothing tells what to look for
        ("\\boxed{" + "7" * 300 + "}", ("3",), "7" * 300),  # whole, unlike the note of a score
    ],
)
def test_the_answer_is_the_one_that_is_judged(text: str, gold: tuple[str, ...], expected: str | None) -> None:
    assert answer_of(Sample(Problem("p", "", gold), text), VERIFIER) == expected


@pytest.mark.parametrize(
    ("first", "second", "answer_type", "same"),
    [
        ("1/2", "0.5", "auto", True),
        ("0.5", "\\frac{1}{2}", "number", True),
        ("1,000", "1000", "number", True),
        ("2, 3", "3, 2", "set", True),
        ("(2, 3)", "(3, 2)", "tuple", False),
        ("x(x+1)", "x^2+x", "expression", True),
        ("\\sin(x)^2", "\\frac{1 - \\cos(2x)}{2}", "expression", True),  # by algebra, in a worker
        ("7", "8", "auto", False),
        ("(B)", "B", "choice", True),
        ("about seven", "About  seven", "text", True),
        ("\\frac{", "\\frac{", "number", True),  # unreadable, but the same
        ("\\frac{", "3", "number", False),
        ("7" * 5000, "7" * 5000 + "0", "number", False),  # too long to be read
    ],
)
def test_same_answers(first: str, second: str, answer_type: AnswerType, same: bool) -> None:
    assert same_answer(first, second, answer_type, VERIFIER) is same
    assert same_answer(second, first, answer_type, VERIFIER) is same


def test_classes_compare_with_the_first_of_each_and_ask_once_for_equal_strings() -> None:
    asked: list[tuple[str, str]] = []

    def same(left: str, right: str) -> bool:
        asked.append((left, right))
        return float(left) == float(right)

    assert equivalence_classes(["1", "1.0", "2", None, "1", "2.0", "1.0"], same) == [0, 0, 1, None, 0, 1, 0]
    assert asked == [("1", "1.0"), ("1", "2"), ("1", "2.0"), ("2", "2.0")]
    assert equivalence_classes([], same) == []
