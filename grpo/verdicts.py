"""Right or wrong, laid out or not: what the verifiers say of a step's completions, whatever is paid.

The gold that a learned reward is held against, and the labels that a reward model is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo.collect import score_completions
from grpo.summaries import ACCURACY, component, is_correct
from grpo.types import RolloutGroup
from rewards.scorer import Scorer
from rewards.types import Score

Verdicts = list[list[bool | None]]
"""(P, G); None: the problem has no gold that could decide, or our own machinery failed."""


def right_answers(
    judge: Scorer, groups: Sequence[RolloutGroup], scores: Sequence[Sequence[Score]]
) -> Verdicts:
    """Whether each completion is right: by the accuracy component where one is paid, else by the judge.

    Args:
        judge: the accuracy verifier of the run's format; asked only where no score holds its verdict.
        groups: (P, G) completions.
        scores: (P, G) what the reward said of them.
    """
    if all(component(score, ACCURACY) is not None for row in scores for score in row):
        return [[is_correct(score) for score in row] for row in scores]
    return passed(judge, groups)


def passed(judge: Scorer, groups: Sequence[RolloutGroup]) -> Verdicts:
    """Whether each completion passes a verifier."""
    scores = iter(score_completions(judge, groups))
    return [[_pass(next(scores)) for _ in group.completions] for group in groups]


def _pass(score: Score) -> bool | None:
    return None if score.value is None else score.value > 0
