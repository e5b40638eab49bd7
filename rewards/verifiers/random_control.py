"""Pays a random number: the control that every claim of learning needs. Reads the text only to hash it.

Nothing can be learned from this reward. A run whose accuracy rises all the same rises for another reason,
such as a cold start that was not yet at its end, and an equal rise under a real reward proves nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.types import Reason, Sample, Score

_VERSION = "random_control/1"
_BITS = 53
"""The digits of a float: the values are equally spaced and 1 is not among them."""


@dataclass(frozen=True, slots=True)
class RandomControl:
    """Scores uniformly in [0, 1): the same sample always alike, any other independently of it."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order."""
        return [Score.scored(draw(sample), Reason.RANDOM, version=_VERSION) for sample in samples]


def draw(sample: Sample) -> float:
    """A number in [0, 1) from a hash of problem, place in the group, policy version and text.

    The version is in it so that a text that was lucky once is not so at every step: luck cannot be learned.

    >>> from rewards.types import Problem
    >>> sample = Sample(Problem("one", "6*7="), "42")
    >>> draw(sample) == draw(sample), draw(sample) == draw(Sample(Problem("two", "6*7="), "42"))
    (True, False)
    """
    key = (sample.problem.id, str(sample.index), str(sample.policy_version), sample.text)
    # Lengths keep neighbours apart: ("a", "bc") and ("ab", "c") are two keys.
    text = "".join(f"{len(part)}:{part}" for part in key)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - _BITS)) / (1 << _BITS)
