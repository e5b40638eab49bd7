"""What step labels are of and what becomes of it: a solution in steps, and one with an estimate of each.

Knows neither policies nor how labels come about, which is in rewards.step_labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rewards.errors import DataError
from rewards.labelled import ProcessExample, example_to_record
from rewards.steps import StepSettings, split_steps
from rewards.types import Sample

Basis = Literal["completions", "answer", "order", "none"]
"""What a label rests on: its own completions, the verdict on the answer, those of other steps, nothing."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A completion to be labelled: the texts of its steps, which joined are sample.text.

    key names it among all that share a seed, and stays its name in files.
    """

    sample: Sample
    steps: tuple[str, ...]
    key: str

    def __post_init__(self) -> None:
        if not self.steps or "".join(self.steps) != self.sample.text:
            raise DataError(f"solution {self.key!r}: expected steps, one or more, that join to its text")


def cut_solution(sample: Sample, key: str, settings: StepSettings | None = None) -> Solution:
    """A sample, its text not empty, cut by `rewards.steps`."""
    spans = split_steps(sample.text, settings)
    return Solution(sample, tuple(sample.text[span.start : span.end] for span in spans), key)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One step's label in [0, 1], or None where nothing could be judged, and what it rests on.

    low, high: Wilson's interval of the share of right completions; (0, 1) without any.
    """

    value: float | None
    basis: Basis
    trials: int = 0
    successes: int = 0
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution with one estimate a step.

    Args:
        solution: what was labelled.
        estimates: (S,), repaired where that was asked for.
        violations: steps labelled 0 before a later step labelled above 0, counted before any repair.
        completions: how many were asked for.
        failed: those that our own machinery failed to judge; they are in no estimate.
        tokens: what the completions cost.
        finished: False where the budget ran out first; steps without a judgement then have no value.
        version: of the scorer.
    """

    solution: Solution
    estimates: tuple[Estimate, ...]
    violations: int
    completions: int
    failed: int
    tokens: int
    finished: bool
    version: str

    def example(self, source: str = "") -> ProcessExample:
        """The labels as an example that a process reward model is trained on."""
        values = tuple(estimate.value for estimate in self.estimates)
        question = self.solution.sample.problem.prompt
        return ProcessExample(question, self.solution.steps, values, source, self.solution.key)

    def record(self, source: str = "") -> dict[str, Any]:
        """The example's record with the evidence beside it, as a line of a file of labelled examples."""
        evidence = [
            {"basis": e.basis, "trials": e.trials, "successes": e.successes, "low": e.low, "high": e.high}
            for e in self.estimates
        ]
        counts = {"violations": self.violations, "completions": self.completions, "failed": self.failed}
        return (
            example_to_record(self.example(source))
            | {"estimates": evidence, "scorer": self.version, "tokens": self.tokens}
            | counts
        )
