"""Synthetic sums with a column-by-column thought, and a teacher who now and then forgets the carry.

Knows how to draw the problems and how the teacher reasons; knows nothing of tags, boxes or models: a record
of the cold start keeps thought and answer apart, and the trainer lays them out by the format in force.
Everything follows from the settings, on any machine and in any process.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.errors import ConfigError
from rewards.types import Problem

MAX_SHARE_USED = 0.95
"""Largest share of all sums that train and evaluation may take: the last few would take very many draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticSettings:
    """What is drawn. Sizes are numbers of problems.

    terms is how many numbers, each from 0 to max_operand, are added; slip_rate is the probability with which
    the teacher forgets a carry, each time there is one; slips happen in the cold start's records only.
    """

    seed: int = 0
    max_operand: int = 99
    terms: int = 2
    train_size: int = 4000
    eval_size: int = 256
    coldstart_size: int = 20000
    slip_rate: float = 0.75

    def __post_init__(self) -> None:
        if self.max_operand < 1:
            raise ConfigError(f"max_operand={self.max_operand}: expected 1 or more")
        if not 2 <= self.terms <= 8:
            raise ConfigError(f"terms={self.terms}: expected 2 to 8, so that a carry stays one digit")
        if not 0.0 <= self.slip_rate <= 1.0:
            raise ConfigError(f"slip_rate={self.slip_rate}: expected a probability from 0 to 1")
        for name, size in (("train_size", self.train_size), ("eval_size", self.eval_size)):
            if size < 1:
                raise ConfigError(f"{name}={size}: expected 1 or more")
        if self.coldstart_size < 0:
            raise ConfigError(f"coldstart_size={self.coldstart_size}: expected 0 or more")
        available = math.floor(MAX_SHARE_USED * distinct_sums(self.max_operand, self.terms))
        if self.train_size + self.eval_size > available:
            raise ConfigError(
                f"train_size={self.train_size} and eval_size={self.eval_size}: expected at most {available} "
                f"together with max_operand={self.max_operand} and terms={self.terms}: ask for fewer, or "
                "raise max_operand"
            )


@dataclass(frozen=True, slots=True)
class ArithmeticSplits:
    """Three lists of problems; no sum of evaluation occurs in the others, in any order of its numbers.

    Each coldstart problem has meta["thought"] and meta["answer"], which agree with each other; after a slip
    they disagree with its gold.
    """

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    coldstart: tuple[Problem, ...]


def distinct_sums(max_operand: int, terms: int) -> int:
    """The number of sums that differ by more than the order of their numbers (multisets of operands)."""
    return math.comb(max_operand + terms, terms)


def build(settings: ArithmeticSettings) -> ArithmeticSplits:
    """Draws the three splits.

    The numbers are uniform and independent; train and evaluation hold no sum twice, the cold start may.

    >>> splits = build(ArithmeticSettings(train_size=2, eval_size=1, coldstart_size=1))
    >>> len(splits.train), len(splits.evaluation), len(splits.coldstart)
    (2, 1, 1)
    """
    taken: set[tuple[int, ...]] = set()
    evaluation = _draw_distinct(settings, "evaluation", settings.eval_size, taken)
    held_out = frozenset(taken)
    train = _draw_distinct(settings, "train", settings.train_size, taken)
    return ArithmeticSplits(train, evaluation, _draw_coldstart(settings, held_out))


def write_thought(operands: Sequence[int], slip_rate: float, rng: random.Random) -> tuple[str, str]:
    """The teacher's thought and the answer that follows from it, slips included.

    The columns are added from the units up, each as one equation of digits, with the carry that came in as
    last summand; a carry going out is noted after it. The teacher slips in two ways, both of which make the
    equation itself false, so that a checker of single steps can find them: a carry that came in is written
    and left out of the result, and the leading carry of the last column is dropped. Shorter numbers are
    filled with zeros, so that every column looks alike.

    >>> write_thought((37, 45), 0.0, random.Random(0))
    ('7+5=12,c1;3+4+1=8', '82')
    >>> write_thought((37, 45), 1.0, random.Random(0))
    ('7+5=12,c1;3+4+1=7', '72')
    """
    width = len(str(max(operands)))
    rows = [str(operand).zfill(width) for operand in operands]
    steps: list[str] = []
    low_digits = ""
    carry = 0
    for column in range(width - 1, -1, -1):
        digits = [row[column] for row in rows]
        total = sum(int(digit) for digit in digits)
        if carry:
            digits.append(str(carry))
            total += 0 if rng.random() < slip_rate else carry
        if column == 0:
            total -= total // 10 * 10 if total > 9 and rng.random() < slip_rate else 0
            steps.append(f"{'+'.join(digits)}={total}")
            return ";".join(steps), f"{total}{low_digits}"
        equation = f"{'+'.join(digits)}={total}"
        carry = total // 10
        steps.append(f"{equation},c{carry}" if carry else equation)
        low_digits = f"{total % 10}{low_digits}"
    raise AssertionError("a number has at least one digit")


def _draw_distinct(
    settings: ArithmeticSettings, split: str, size: int, taken: set[tuple[int, ...]]
) -> tuple[Problem, ...]:
    """Draws sums that are not in `taken` (sorted operands) and adds them to it."""
    rng = _generator(settings, split)
    problems: list[Problem] = []
    while len(problems) < size:
        operands = _draw_operands(settings, rng)
        key = tuple(sorted(operands))
        if key not in taken:
            taken.add(key)
            problems.append(_problem(split, len(problems), operands, {}))
    return tuple(problems)


def _draw_coldstart(
    settings: ArithmeticSettings, held_out: frozenset[tuple[int, ...]]
) -> tuple[Problem, ...]:
    rng = _generator(settings, "coldstart")
    problems: list[Problem] = []
    while len(problems) < settings.coldstart_size:
        operands = _draw_operands(settings, rng)
        if tuple(sorted(operands)) not in held_out:
            thought, answer = write_thought(operands, settings.slip_rate, rng)
            meta = {"thought": thought, "answer": answer}
            problems.append(_problem("coldstart", len(problems), operands, meta))
    return tuple(problems)


def _generator(settings: ArithmeticSettings, split: str) -> random.Random:
    # A string seed is hashed with SHA-512 by `random`, hence equal in every process (unlike `hash`).
    return random.Random(f"arithmetic/{settings.seed}/{split}")


def _draw_operands(settings: ArithmeticSettings, rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(0, settings.max_operand) for _ in range(settings.terms))


def _problem(split: str, index: int, operands: tuple[int, ...], meta: dict[str, str]) -> Problem:
    return Problem(
        id=f"arithmetic-{split}-{index:06d}",
        prompt=f"{'+'.join(str(operand) for operand in operands)}=",
        gold=(str(sum(operands)),),
        answer_type="number",
        source="arithmetic",
        meta=meta,
    )
