"""How an evaluation measures: validated choices, no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewards.aggregate import Aggregation
from rewards.protocols.best_of_n import Ties

PROTOCOLS = ("best_of_n", "auc", "calibration", "pairs", "processbench", "steps")
FITTED = "fit-heldout"
"""The name of the result that a fit leaves of its held-out examples."""
Scale = Literal["auto", "logit", "probability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Settings of the protocols.

    Args:
        aggregation: step values -> completion; None tells the figures of each.
        ties: what equally good picks are worth.
        scale: what scores are where probabilities are needed; auto: probabilities where all lie in [0, 1],
            logits otherwise.
        threshold: below it a step is said to be wrong.
        threshold_set: the set on which the threshold is chosen instead, to be kept for the others.
        bins: of a reliability table.
        draws: of N completions of each question, for every N; all subsets where there are no more.
        level: of the intervals.
        resamples: of the questions, for the intervals.
        seed: of draws and resamples.
    """

    aggregation: Aggregation | None = None
    ties: Ties = "share"
    scale: Scale = "auto"
    threshold: float = 0.5
    threshold_set: str | None = None
    bins: int = 10
    draws: int = 400
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0
