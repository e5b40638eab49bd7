"""A process reward model as a scorer: a value for each step, and their aggregate.

Knows samples, steps and scores; what needs torch is loaded by the first call of `score`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from rewards.aggregate import Aggregation, aggregate
from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.layout import is_visible
from rewards.models.conventions import Convention
from rewards.models.judging import (
    cut,
    failed,
    length_notes,
    no_room,
    require_kind,
    require_named_kind,
    step_texts,
)
from rewards.models.presets import preset
from rewards.models.settings import ModelSettings
from rewards.steps import STRATEGIES, Step, Strategy
from rewards.types import Reason, Sample, Score, StepScore, Verdict

if TYPE_CHECKING:
    from rewards.models.engine import Judgement, RewardModel


@dataclass(frozen=True, slots=True)
class ProcessScorer:
    """Scores the steps of completions with a process reward model.

    The steps of a Score cover the completion from its start, in characters of `Sample.text`; those that an
    over-long completion leaves out at its end have no value, and the notes say how many. A completion
    in which nothing is visible is one step at the floor of the convention (0 for probabilities); where values
    have no floor the model judges it. A question that leaves no room abstains. Pickles as its settings:
    weights are loaded again.

    Args:
        model: the weights and how they run.
        format: names the tags of the thought.
        strategy: how completions are cut into steps; None as the convention says.
        aggregation: steps -> completion; None as the convention says.
    """

    gives_steps: ClassVar[bool] = True

    model: ModelSettings
    format: FormatSpec = field(default_factory=FormatSpec)
    strategy: Strategy | None = None
    aggregation: Aggregation | None = None

    def __post_init__(self) -> None:
        require_named_kind(self.model, "process")
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise ConfigError(f"strategy={self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.model.convention is not None:
            self._convention(preset(self.model.convention))

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score a sample, in order.

        Raises:
            ConfigError: from the first call, for a model that cannot be loaded or would score wrongly.
        """
        return self._judge(samples)

    def score_steps(self, samples: Sequence[Sample], steps: Sequence[Sequence[Step]]) -> list[Score]:
        """The same for completions whose steps are known, as benchmarks give them.

        Args:
            samples: the completions.
            steps: of each, one or more; they cover its text from the start.

        Raises:
            ConfigError: as `score`.
        """
        return self._judge(samples, steps)

    def _judge(self, samples: Sequence[Sample], known: Sequence[Sequence[Step]] | None = None) -> list[Score]:
        if not samples:
            return []
        # Loads torch, which building and checking a configuration must not.
        from rewards.models.engine import reward_model
        from rewards.models.truncation import Request

        model = reward_model(self.model)
        require_kind(model.convention, "process", self.model)
        convention = self._convention(model.convention)
        steps = known or [cut(sample.text, self.format, convention.strategy) for sample in samples]
        requests = [
            Request(sample.problem.prompt, step_texts(sample, own))
            for sample, own in zip(samples, steps, strict=True)
        ]
        judged = model.judge(requests)
        return [
            _score(model, convention, sample, own, judgement)
            for sample, own, judgement in zip(samples, steps, judged, strict=True)
        ]

    def _convention(self, convention: Convention) -> Convention:
        """The convention with this scorer's own choices, which are checked against it."""
        return replace(
            convention,
            strategy=self.strategy or convention.strategy,
            aggregation=self.aggregation or convention.aggregation,
        )


def _score(
    model: RewardModel, convention: Convention, sample: Sample, steps: Sequence[Step], judgement: Judgement
) -> Score:
    version = f"prm/1:{model.version}"
    if judgement.prompt_tokens is not None:
        return no_room(judgement.prompt_tokens, model.max_length, version)
    if model.floor is not None and not is_visible(sample.text):
        empty = (StepScore(0, len(sample.text), model.floor),) if sample.text else ()
        return Score(Verdict.SCORED, model.floor, Reason.NO_STEPS, steps=empty, version=version)
    if judgement.failure is not None:
        return failed(judgement.failure, version)
    if not all(map(math.isfinite, judgement.values)):
        return failed(f"the model gave {judgement.values}", version)
    kept = steps[: judgement.kept]
    scored = tuple(
        StepScore(step.start, step.end, value) for step, value in zip(kept, judgement.values, strict=True)
    )
    notes = {
        "aggregation": convention.aggregation,
        **length_notes(judgement.kept, len(steps), judgement.cut),
    }
    value = aggregate(judgement.values, convention.aggregation)
    return Score(Verdict.SCORED, value, Reason.STEPS, steps=scored, version=version, notes=notes)
