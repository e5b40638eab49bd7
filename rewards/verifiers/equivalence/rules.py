"""The oracles and conventions a comparison runs under, and its three-valued logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewards.verifiers.equivalence.nodes import Node
from rewards.verifiers.equivalence.settings import EquivalenceSettings

Verdict3 = bool | None
Same = Callable[[Node, Node], Verdict3]
SLOW = 900
"""Pairs of members above which a set is left to the worker."""
Proportional = Callable[[Node, Node], Verdict3]


@dataclass(frozen=True, slots=True)
class Rules:
    """The scalar oracles and the conventions a comparison runs under."""

    same: Same
    """Equal values?"""
    proportional: Proportional
    """Equal up to a nonzero constant factor? For equations moved to one side."""
    settings: EquivalenceSettings
    patient: bool = False
    """True in a worker, where long comparisons of sets are run as well."""


def both(verdicts: Sequence[Verdict3]) -> Verdict3:
    """Conjunction: False wins, then unknown."""
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True
