"""Punishes completions that come close to the length limit (soft overlong punishment of DAPO).

Formula (Yu et al., DAPO, 2025, arXiv 2503.14476, equation 13), with L the length, M = max_length, B = buffer:

    value = 0                         for L <= M - B
    value = -factor * (L - M + B) / B for M - B < L <= M
    value = -factor                   beyond M

Departs from the paper in the unit: a Sample is text and has no token count, so L is counted in characters or
in words between white space; choose max_length accordingly. A completion that the token limit cut off is as
long as it can be and gets the whole punishment, whatever its text measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rewards.errors import ConfigError
from rewards.layout import end_of_turn
from rewards.types import Reason, Sample, Score

Unit = Literal["characters", "words"]

_VERSION = "length/1"


@dataclass(frozen=True, slots=True)
class LengthVerifier:
    """Scores in [-factor, 0]: 0 up to max_length - buffer, then linearly down to -factor at max_length.

    max_length, buffer: in `unit`; trailing end-of-turn tokens do not count.
    """

    max_length: int = 4000
    buffer: int = 1000
    factor: float = 1.0
    unit: Unit = "characters"

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.max_length:
            raise ConfigError(
                f"buffer={self.buffer}, max_length={self.max_length}: expected 0 < buffer <= max_length"
            )
        if not self.factor > 0:
            raise ConfigError(f"factor={self.factor}: expected > 0")
        if self.unit not in get_args(Unit):
            raise ConfigError(f"unit={self.unit!r}: expected one of {', '.join(get_args(Unit))}")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Score:
        text = sample.text[: end_of_turn(sample.text)]
        length = len(text) if self.unit == "characters" else len(text.split())
        notes = {"length": f"{length} {self.unit}"}
        excess = self.buffer if sample.truncated else length - (self.max_length - self.buffer)
        value = -self.factor * min(max(excess, 0) / self.buffer, 1.0)
        reason = Reason.TRUNCATED if sample.truncated else Reason.LENGTH
        return Score.scored(value or 0.0, reason, version=_VERSION, notes=notes)
