"""An outcome reward model as a scorer: one value for the whole completion.

Knows samples and scores; what needs torch is loaded by the first call of `score`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rewards.format import FormatSpec
from rewards.layout import is_visible
from rewards.models.judging import (
    cut,
    failed,
    length_notes,
    no_room,
    require_kind,
    require_named_kind,
    step_texts,
)
from rewards.models.settings import ModelSettings
from rewards.types import Reason, Sample, Score

if TYPE_CHECKING:
    from rewards.models.engine import Judgement, RewardModel


@dataclass(frozen=True, slots=True)
class OutcomeScorer:
    """Scores completions with an outcome reward model.

    A completion in which nothing is visible earns the floor of the convention (0 for probabilities); where
    values have no floor the model judges it. Of a completion that is too long the model reads the first whole
    steps, which the notes say. A question that leaves no room abstains. Pickles as its settings: weights are
    loaded again.

    Args:
        model: the weights and how they run.
        format: names the tags of the thought, for cutting completions that are too long.
    """

    model: ModelSettings
    format: FormatSpec = field(default_factory=FormatSpec)

    def __post_init__(self) -> None:
        require_named_kind(self.model, "outcome")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score a sample, in order.

        Raises:
            ConfigError: from the first call, for a model that cannot be loaded or would score wrongly.
        """
        if not samples:
            return []
        # Loads torch, which building and checking a configuration must not.
        from rewards.models.engine import reward_model
        from rewards.models.truncation import Request

        model = reward_model(self.model)
        require_kind(model.convention, "outcome", self.model)
        steps = [cut(sample.text, self.format, model.convention.strategy) for sample in samples]
        requests = [
            Request(sample.problem.prompt, step_texts(sample, own))
            for sample, own in zip(samples, steps, strict=True)
        ]
        judged = model.judge(requests)
        return [
            _score(model, sample, len(own), judgement)
            for sample, own, judgement in zip(samples, steps, judged, strict=True)
        ]


def _score(model: RewardModel, sample: Sample, steps: int, judgement: Judgement) -> Score:
    version = f"orm/1:{model.version}"
    if judgement.prompt_tokens is not None:
        return no_room(judgement.prompt_tokens, model.max_length, version)
    if model.floor is not None and not is_visible(sample.text):
        return Score.scored(model.floor, Reason.EMPTY_ANSWER, version=version)
    if judgement.failure is not None:
        return failed(judgement.failure, version)
    (value,) = judgement.values
    if not math.isfinite(value):
        return failed(f"the model gave {value}", version)
    notes = length_notes(judgement.kept, steps, judgement.cut)
    return Score.scored(value, Reason.MODEL, version=version, notes=notes)
