"""The sums, their splits and the teacher's thoughts."""

import hashlib
import json
import random
import re
import subprocess
import sys
from dataclasses import asdict

import pytest

from data_prep.arithmetic import ArithmeticSettings, build, distinct_sums, write_thought
from rewards.errors import ConfigError
from rewards.types import Problem

SMALL = ArithmeticSettings(train_size=600, eval_size=100, coldstart_size=600)


def operands_of(problem: Problem) -> tuple[int, ...]:
    assert re.fullmatch(r"\d+(\+\d+)+=", problem.prompt)
    return tuple(int(term) for term in problem.prompt[:-1].split("+"))


def equations_of(thought: str) -> list[tuple[int, int]]:
    """The (sum of the left side, right side) of every equation."""
    pairs: list[tuple[int, int]] = []
    for step in thought.split(";"):
        left, right = step.split(",")[0].split("=")
        pairs.append((sum(int(term) for term in left.split("+")), int(right)))
    return pairs


@pytest.mark.parametrize(
    ("operands", "thought", "answer"),
    [
        ((3, 4), "3+4=7", "7"),
        ((7, 5), "7+5=12", "12"),
        ((0, 0), "0+0=0", "0"),
        ((21, 34), "1+4=5;2+3=5", "55"),
        ((37, 45), "7+5=12,c1;3+4+1=8", "82"),
        # the shorter number is filled with a zero
        ((95, 7), "5+7=12,c1;9+0+1=10", "102"),
        ((99, 99), "9+9=18,c1;9+9+1=19", "198"),
        ((999, 1), "9+1=10,c1;9+0+1=10,c1;9+0+1=10", "1000"),
        # three numbers can carry two: 9+9+9 = 27, then 9+9+9+2 = 29
        ((99, 99, 99), "9+9+9=27,c2;9+9+9+2=29", "297"),
    ],
)
def test_a_careful_teacher_adds_by_columns(operands: tuple[int, ...], thought: str, answer: str) -> None:
    assert write_thought(operands, 0.0, random.Random(0)) == (thought, answer)
    assert answer == str(sum(operands))


@pytest.mark.parametrize(
    ("operands", "thought", "answer"),
    [
        # no carry, nothing to forget
        ((21, 34), "1+4=5;2+3=5", "55"),
        ((37, 45), "7+5=12,c1;3+4+1=7", "72"),
        # the forgotten carry is missing from all that follows: 9+0 (+1) gives 9, nothing is carried
        ((999, 1), "9+1=10,c1;9+0+1=9;9+0=9", "990"),
    ],
)
def test_a_forgetful_teacher_leaves_out_every_carry(
    operands: tuple[int, ...], thought: str, answer: str
) -> None:
    assert write_thought(operands, 1.0, random.Random(0)) == (thought, answer)


@pytest.mark.parametrize("terms", [2, 3, 8])
@pytest.mark.parametrize("max_operand", [1, 99, 12345])
def test_a_thought_without_slips_is_right_for_any_size(terms: int, max_operand: int) -> None:
    rng = random.Random(terms)
    for _ in range(200):
        operands = [rng.randint(0, max_operand) for _ in range(terms)]
        thought, answer = write_thought(operands, 0.0, rng)
        assert answer == str(sum(operands))
        assert all(left == right for left, right in equations_of(thought))


def test_train_and_evaluation_are_right_and_disjoint() -> None:
    splits = build(SMALL)
    assert (len(splits.train), len(splits.evaluation), len(splits.coldstart)) == (600, 100, 600)
    for problem in (*splits.train, *splits.evaluation, *splits.coldstart):
        assert problem.gold == (str(sum(operands_of(problem))),)
        assert max(operands_of(problem)) <= 99
    train, evaluation, coldstart = (
        [tuple(sorted(operands_of(problem))) for problem in part]
        for part in (splits.train, splits.evaluation, splits.coldstart)
    )
    assert len(set(train)) == len(train)
    assert len(set(evaluation)) == len(evaluation)
    assert not set(evaluation) & set(train)
    assert not set(evaluation) & set(coldstart)
    ids = [problem.id for part in (splits.train, splits.evaluation, splits.coldstart) for problem in part]
    assert len(set(ids)) == len(ids)


def test_a_slip_shows_in_a_false_equation_and_in_the_answer() -> None:
    right = expected = 0.0
    for problem in build(ArithmeticSettings(coldstart_size=3000, slip_rate=0.3)).coldstart:
        thought, answer = problem.meta["thought"], problem.meta["answer"]
        false_equation = any(left != right_side for left, right_side in equations_of(thought))
        assert false_equation == (answer != problem.gold[0])
        assert len(thought) <= 30
        first, second = (int(operand) for operand in problem.prompt.rstrip("=").split("+"))
        carries = (first % 10 + second % 10 >= 10) + (first + second >= 100)
        right += not false_equation
        expected += 0.7**carries
    # 3000 coins of probability 0.7 ** carries: three standard deviations are below 3 * 0.5 * sqrt(3000)
    assert right == pytest.approx(expected, abs=82)


def test_slip_rate_changes_only_the_cold_start() -> None:
    some, none = build(SMALL), build(ArithmeticSettings(**{**asdict(SMALL), "slip_rate": 0.0}))
    assert some.train == none.train
    assert some.evaluation == none.evaluation
    assert some.coldstart != none.coldstart
    assert all(problem.meta["answer"] == problem.gold[0] for problem in none.coldstart)


def test_a_seed_gives_the_same_problems_in_every_process() -> None:
    program = (
        "import hashlib\n"
        "from data_prep.arithmetic import ArithmeticSettings, build\n"
        "splits = build(ArithmeticSettings(train_size=600, eval_size=100, coldstart_size=600))\n"
        "print(hashlib.sha256(repr(splits).encode()).hexdigest())\n"
    )
    here = hashlib.sha256(repr(build(SMALL)).encode()).hexdigest()
    for salt in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": salt}, capture_output=True, text=True
        )
        assert run.stdout.strip() == here, run.stderr
    assert build(ArithmeticSettings(**{**asdict(SMALL), "seed": 1})) != build(SMALL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_operand": 0}, "max_operand=0"),
        ({"terms": 1}, "terms=1"),
        ({"slip_rate": 1.5}, "slip_rate=1.5"),
        ({"eval_size": 0}, "eval_size=0"),
        ({"coldstart_size": -1}, "coldstart_size=-1"),
        # 10 digits make 55 unordered pairs, of which 52 may be used
        ({"max_operand": 9, "train_size": 50, "eval_size": 3}, "at most 52"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        ArithmeticSettings(**json.loads(json.dumps(changes)))


def test_distinct_sums_counts_multisets() -> None:
    # operands 0 and 1, two terms: 0+0, 0+1, 1+1
    assert distinct_sums(1, 2) == 3
    assert distinct_sums(99, 2) == 5050
