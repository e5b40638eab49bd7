"""A rule-based process reward: every equation of integers in the thought is a step, true or false.

Knows the integers, +, - and * (also as ×, ·, \\times, \\cdot); an equation may have several terms and several
equals signs: 3+4+1=8, 2*3 = 5+1 = 6. Text that is not of this form (variables, fractions, decimals, brackets)
is passed over. Whether the final answer is right is the accuracy verifier's affair; it can judge a last step.
The equations are asked to be true, not to be needed, so this is paid beside accuracy, not alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import ClassVar, Literal

from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.types import Reason, Sample, Score, StepScore, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier

VERSION = "arithmetic_steps/2"
MAX_DIGITS = 18
"""Digits of a number that is still evaluated; an equation with a longer one counts as false."""
MAX_TERMS = 32
"""Numbers in an equation that is still evaluated; a longer one counts as false."""

_NUMBER = r"[-−]?(?:\d{1,3}(?:,\d{3}){1,5}+(?!\d)|\d++)"
_SPACE = r"[ \t]*+"
_TIMES = r"(?<!\*)\*(?!\*)|×|·|\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])"
_RUN = re.compile(rf"(?<![\w.^/\\]){_NUMBER}(?:{_SPACE}(?:[-+−=]|{_TIMES}){_SPACE}{_NUMBER})++", re.ASCII)
"""Numbers joined by operators and equals signs, as long as possible, so that scanning is linear."""
_TERM = re.compile(rf"([-+−])?({_TIMES})?{_SPACE}({_NUMBER})", re.ASCII)
_GOES_ON_LEFT = re.compile(rf"(?:[-+−^/]|{_TIMES}){_SPACE}\Z")
_BULLET = re.compile(r"(?:\A|\n)[ \t]*+[-+*][ \t]++\Z")
_GOES_ON_RIGHT = re.compile(
    rf"[\w^/!%(]|\.\d|{_SPACE}(?:[+^/]|{_TIMES}|\\frac|\\div)|[-−]{_SPACE}[\w(\\]", re.ASCII
)
_LOOK_AROUND = 16
"""Characters on either side of a run that are looked at to see whether it is part of something longer."""

Aggregate = Literal["mean", "min"]
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "min": min}
"""Step values (at least one) -> the value of the completion."""

Terms = tuple[tuple[int, ...], ...]
"""One side of an equation: a sum of products, in an order that does not depend on how it was written."""


@dataclass(frozen=True, slots=True)
class Equation:
    """One equation: its span in the text, its sides (two or more) and whether they are all equal."""

    start: int
    end: int
    sides: tuple[Terms, ...]
    true: bool


@dataclass(frozen=True, slots=True)
class ArithmeticStepScorer:
    """Scores the equations of the thought: steps of value 1 (true) or 0 (false), and their aggregate.

    A step's span covers the text from the end of the step before it up to and including its equation. An
    equation that was stated before, also with its terms in another order, is no step of its own: repeating it
    earns nothing. Without any equation, or with more than max_steps different ones, the completion is SCORED
    at 0 with one step of value 0 over its whole text, so that silence and flooding are not neutral under
    process credit either.

    Args:
        format: names the tags of the thought. Without an opening tag the thought starts with the text;
            without a closing one it ends with it.
        aggregate: how step values become the value, one of `AGGREGATES`.
        max_steps: the most different equations of one thought.
        answer: judges what follows the last equation, as one more step that is in no aggregate; None leaves
            it out. Under process credit a thought that stops before its hard step then ends in a wrong
            answer, and its steps are charged for it: without this, leaving equations out is paid.
    """

    gives_steps: ClassVar[bool] = True

    format: FormatSpec = field(default_factory=FormatSpec)
    aggregate: Aggregate = "mean"
    max_steps: int = 64
    answer: AccuracyVerifier | None = None

    def __post_init__(self) -> None:
        if self.aggregate not in AGGREGATES:
            raise ConfigError(f"aggregate={self.aggregate!r}: expected one of {', '.join(AGGREGATES)}")
        if self.max_steps < 1:
            raise ConfigError(f"max_steps={self.max_steps}: expected 1 or more")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score a sample, in order; never FAILED and never ABSTAINED."""
        scores = [self._score_text(sample.text) for sample in samples]
        if self.answer is None:
            return scores
        answers = self.answer.score(samples)
        return [
            _with_answer(score, answer, len(sample.text))
            for sample, score, answer in zip(samples, scores, answers, strict=True)
        ]

    def _score_text(self, text: str) -> Score:
        start, end = thought_span(text, self.format)
        stated = _without_repeats(find_equations(text, start, end))
        if not stated:
            return _floor(text, Reason.NO_STEPS)
        if len(stated) > self.max_steps:
            return _floor(text, Reason.TOO_LARGE)
        starts = [0, *(equation.end for equation in stated[:-1])]
        steps = tuple(
            StepScore(start, equation.end, float(equation.true))
            for start, equation in zip(starts, stated, strict=True)
        )
        value = AGGREGATES[self.aggregate]([step.value for step in steps])
        notes = {"equations": str(len(steps)), "aggregate": self.aggregate}
        false = [equation for equation in stated if not equation.true]
        if false:
            notes["first_false"] = text[false[0].start : false[0].end][:80]
        return Score(Verdict.SCORED, value, Reason.STEPS, steps=steps, version=VERSION, notes=notes)


def _with_answer(score: Score, answer: Score, length: int) -> Score:
    """Adds the text after the last equation as a step, where there is one and the answer was judged."""
    if score.reason is not Reason.STEPS or answer.value is None or score.steps[-1].end == length:
        return score
    last = StepScore(score.steps[-1].end, length, answer.value)
    return replace(score, steps=(*score.steps, last), notes={**score.notes, "answer": answer.reason.value})


def thought_span(text: str, spec: FormatSpec) -> tuple[int, int]:
    """The characters between the first opening tag (else the start) and the next closing one (else the end).

    >>> thought_span("<think>1+1=2</think>2", FormatSpec())
    (7, 12)
    """
    opened = text.find(spec.think_open)
    start = opened + len(spec.think_open) if opened >= 0 else 0
    closed = text.find(spec.think_close, start)
    return start, closed if closed >= 0 else len(text)


def find_equations(text: str, start: int, end: int) -> list[Equation]:
    """The equations of integers in text[start:end], in order; linear time.

    >>> [equation.true for equation in find_equations("7+5=12,c1;3+4+1=7", 0, 17)]
    [True, False]
    """
    equations: list[Equation] = []
    for run in _RUN.finditer(text, start, end):
        left = text[max(start, run.start() - _LOOK_AROUND) : run.start()]
        right = text[run.end() : min(end, run.end() + _LOOK_AROUND)]
        if "=" not in run[0] or _GOES_ON_RIGHT.match(right):
            continue
        if _GOES_ON_LEFT.search(left) and not _BULLET.search(left):
            continue
        equation = _evaluate(run)
        if equation is not None:
            equations.append(equation)
    return equations


def _evaluate(run: re.Match[str]) -> Equation | None:
    """The equation a run states; None when it has no operator, hence claims no calculation (5=5)."""
    numbers = re.findall(r"[\d,]+", run[0])
    sides_text = run[0].split("=")
    if len(numbers) == len(sides_text):
        return None
    if len(numbers) > MAX_TERMS or max(map(len, numbers)) > MAX_DIGITS:
        # Not evaluated; its position keeps it apart from other equations.
        return Equation(run.start(), run.end(), (((run.start(),),),), False)
    sides = [_read_side(side) for side in sides_text]
    values = {sum(_product(factors) for factors in side) for side in sides}
    return Equation(run.start(), run.end(), tuple(sorted(sides)), len(values) == 1)


def _read_side(side: str) -> Terms:
    """Reads a sum of products of signed integers, sorted: 2*3-4 -> ((-4,), (2, 3))."""
    terms: list[list[int]] = []
    for plus_minus, times, number in _TERM.findall(side):
        value = int(number.replace("−", "-").replace(",", ""))
        if times:
            terms[-1].append(value)
        else:
            terms.append([value if plus_minus in ("", "+") else -value])
    return tuple(sorted(tuple(sorted(factors)) for factors in terms))


def _product(factors: tuple[int, ...]) -> int:
    value = 1
    for factor in factors:
        value *= factor
    return value


def _without_repeats(equations: Sequence[Equation]) -> list[Equation]:
    """The first statement of each equation."""
    first: dict[tuple[Terms, ...], Equation] = {}
    for equation in equations:
        first.setdefault(equation.sides, equation)
    return list(first.values())


def _floor(text: str, reason: Reason) -> Score:
    steps = (StepScore(0, len(text), 0.0),) if text else ()
    return Score(Verdict.SCORED, 0.0, reason, steps=steps, version=VERSION)
