"""How Monte-Carlo step labels are estimated: the settings, and what counts of right completions tell.

Knows numbers only; who asks for completions and judges them is in rewards.step_labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist
from typing import Literal, get_args

from rewards.errors import ConfigError

Method = Literal["soft", "hard", "first_error"]
Repair = Literal["none", "later_success", "first_failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabelSettings:
    """How steps are labelled.

    Args:
        method: soft, hard or first_error.
        completions: K, of one step at most.
        wave: completions of a step asked for before looking whether they are enough: one is right, or, for
            soft with a width, the interval is narrow. Small waves spare completions and take more rounds.
        width: soft: a step whose interval is no wider needs no more completions; 0 asks for all K. Shares
            near 0 and 1 get there first (at 95 % and width 0.35 with 8 of K, one half with 28). Since the
            counts decide when to stop, shares become a little more extreme and intervals a little too narrow.
        repair: what becomes of hard labels that rise again. later_success: a right completion of a later
            step is one of every earlier step too, so 0 becomes 1. first_failure: after a 0 all become 0.
        confidence: of the interval of a step's share, in (0, 1).
        seed: part of every request's key.
    """

    method: Method = "hard"
    completions: int = 8
    wave: int = 2
    width: float = 0.0
    repair: Repair = "none"
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("method", self.method, get_args(Method)),
            ("repair", self.repair, get_args(Repair)),
        ):
            if value not in choices:
                raise ConfigError(f"{name}={value!r}: expected one of {', '.join(choices)}")
        for name, count in (("completions", self.completions), ("wave", self.wave)):
            if count < 1:
                raise ConfigError(f"{name}={count}: expected >= 1")
        if not 0 <= self.width < 1:
            raise ConfigError(f"width={self.width}: expected 0 (all completions) or more, and below 1")
        if self.width and self.method != "soft":
            raise ConfigError(
                f"width={self.width}: is for method=soft; {self.method} stops at the first right completion"
            )
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence={self.confidence}: expected between 0 and 1")
        if self.repair != "none" and self.method != "hard":
            raise ConfigError(
                f"repair={self.repair}: is for method=hard; {self.method} labels "
                + ("may rise" if self.method == "soft" else "never rise again")
            )


@dataclass(frozen=True, slots=True)
class Counts:
    """Completions of one solution, one entry a step: asked for, judged, right; tokens: what all have cost."""

    asked: tuple[int, ...]
    trials: tuple[int, ...]
    successes: tuple[int, ...]
    tokens: int


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a share by Wilson (1927, JASA 22, 209-212): the shares that the count does not reject.

    >>> low, high = wilson_interval(0, 8)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.324)
    """
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = successes / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def repair_labels(labels: Sequence[float | None], repair: Repair) -> list[float | None]:
    """Hard labels that never rise again; None stays None.

    >>> repair_labels([1.0, 0.0, 1.0, 0.0], "later_success"), repair_labels([1.0, 0.0, 1.0], "first_failure")
    ([1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    """
    known = [label for label in labels if label is not None]
    match repair:
        case "none":
            return list(labels)
        case "later_success":
            monotone = list(accumulate(reversed(known), max))[::-1]
        case "first_failure":
            monotone = list(accumulate(known, min))
    values = iter(monotone)
    return [None if label is None else next(values) for label in labels]


def count_violations(labels: Sequence[float | None]) -> int:
    """How many labels of 0 stand before a later one above 0.

    >>> count_violations([1.0, 0.0, None, 0.0, 0.5, 0.0])
    2
    """
    known = [label for label in labels if label is not None]
    last = max((place for place, label in enumerate(known) if label > 0), default=0)
    return known[:last].count(0.0)
