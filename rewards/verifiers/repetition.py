"""Punishes completions that repeat themselves, by the share of n-grams that are not new.

Formula (Yeo et al., Demystifying long chain-of-thought reasoning, 2025, arXiv 2502.03373, appendix; as in
open-r1):

    value = -penalty * (1 - different n-grams / all n-grams)

over lower-cased words, or characters for scripts that put no space between words. A completion shorter than n
repeats nothing and scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rewards.errors import ConfigError
from rewards.layout import end_of_turn
from rewards.types import Reason, Sample, Score

Unit = Literal["words", "characters"]

_VERSION = "repetition/1"


@dataclass(frozen=True, slots=True)
class RepetitionVerifier:
    """Scores in (-penalty, 0]: 0 where no n-gram of `ngram` units occurs twice."""

    ngram: int = 3
    penalty: float = 1.0
    unit: Unit = "words"

    def __post_init__(self) -> None:
        if self.ngram < 1:
            raise ConfigError(f"ngram={self.ngram}: expected >= 1")
        if not self.penalty > 0:
            raise ConfigError(f"penalty={self.penalty}: expected > 0")
        if self.unit not in get_args(Unit):
            raise ConfigError(f"unit={self.unit!r}: expected one of {', '.join(get_args(Unit))}")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Score:
        text = sample.text[: end_of_turn(sample.text)].lower()
        units = text.split() if self.unit == "words" else [char for char in text if not char.isspace()]
        share = repeated_share(units, self.ngram)
        notes = {"repeated": f"{share:.3f}"}
        return Score.scored(-self.penalty * share or 0.0, Reason.REPETITION, version=_VERSION, notes=notes)


def repeated_share(units: Sequence[str], ngram: int) -> float:
    """The share of n-grams that occurred before, in [0, 1); 0 for fewer units than one n-gram.

    >>> repeated_share("a b a b a".split(), 2)  # ab ba ab ba: two of four are new
    0.5
    """
    total = len(units) - ngram + 1
    if total <= 0:
        return 0.0
    different = len(set(zip(*(units[offset:] for offset in range(ngram)), strict=False)))
    return 1.0 - different / total
