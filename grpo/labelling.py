"""Completions that the verifier has judged -> examples that a reward model is trained on.

Never from what a reward model says: an outcome's label is the verifier's, a step's the share of the policy's
own completions from there that the verifier finds right (Math-Shepherd, arXiv 2312.08935).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rewards.completer import Completer
from rewards.format import FormatSpec
from rewards.labelled import Example, OutcomeExample
from rewards.models.judging import cut
from rewards.scorer import Scorer
from rewards.step_estimates import StepLabelSettings
from rewards.step_labels import label_steps
from rewards.step_solutions import Solution
from rewards.steps import Strategy
from rewards.types import Sample


@dataclass(frozen=True, slots=True)
class Judged:
    """A completion and whether the verifier finds it right."""

    sample: Sample
    right: bool


class Labeller(Protocol):
    """Makes examples of judged completions."""

    def label(self, judged: Sequence[Judged], key: str) -> list[Example]:
        """At most one example a completion, in order; key names the set among all of a run."""
        ...


class OutcomeLabeller:
    """For an outcome reward model."""

    def label(self, judged: Sequence[Judged], key: str) -> list[Example]:
        """One example a completion."""
        return [
            OutcomeExample(
                one.sample.problem.prompt, one.sample.prefill + one.sample.text, float(one.right), key
            )
            for one in judged
        ]


@dataclass(frozen=True, slots=True)
class StepLabeller:
    """For a process reward model.

    Args:
        completer: the policy as it is when it is asked.
        judge: the accuracy verifier.
        settings: of the Monte-Carlo labels.
        spec: names the tags of the thought.
        strategy: how completions are cut, as the reward model cuts them.
    """

    completer: Completer
    judge: Scorer
    settings: StepLabelSettings
    spec: FormatSpec
    strategy: Strategy

    def label(self, judged: Sequence[Judged], key: str) -> list[Example]:
        """One example a completion that has text, its steps labelled."""
        solutions = [
            Solution(one.sample, _texts(one.sample, self.spec, self.strategy), f"{key}/{place}")
            for place, one in enumerate(judged)
            if one.sample.text
        ]
        labelled = label_steps(solutions, self.completer, self.judge, self.settings)
        examples = [(found.example(key), found.solution.sample.prefill) for found in labelled]
        return [
            replace(example, steps=(prefill + example.steps[0], *example.steps[1:]))
            for example, prefill in examples
        ]


def _texts(sample: Sample, spec: FormatSpec, strategy: Strategy) -> tuple[str, ...]:
    return tuple(sample.text[step.start : step.end] for step in cut(sample.text, spec, strategy))
