"""The scorer interface: anything with `score` that keeps the contract below.

There is no base class, registry or decorator: a `_target_` in a yaml under conf/reward is the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from rewards.types import Sample, Score


class Scorer(Protocol):
    """Judges completions.

    Contract, checked by tests/test_contract.py for every conf/reward/*.yaml: same length and order as the
    input; empty in, empty out; a batch equals its samples one by one; deterministic; no mutation; never
    raises on any text; survives pickle; works from any thread; the constructor only validates.
    """

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Returns one Score per sample, in order."""
        ...


@runtime_checkable
class StepScorer(Scorer, Protocol):
    """A scorer whose scores have steps. It says so in a class attribute, `gives_steps = True`.

    What trains on steps asks for it before anything loads, and finds out whose steps they are.
    """

    gives_steps: ClassVar[bool]


def gives_steps(scorer: Scorer) -> bool:
    """Whether the scores of a scorer have steps, as it says itself."""
    return isinstance(scorer, StepScorer) and scorer.gives_steps
