"""A policy that goes on from a prefix, as those see it who only judge what it writes.

Knows neither models nor tokens: whatever keeps the protocol `Completer` will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rewards.types import Problem


@dataclass(frozen=True, slots=True)
class Request:
    """`number` completions of a prefix, each different, all decided by the key.

    prefix: the text of the assistant's turn so far, without the prefill; may be followed at once. prefill:
    what the chat template had put before it.
    """

    problem: Problem
    prefix: str
    number: int
    key: str
    prefill: str = ""


@dataclass(frozen=True, slots=True)
class Continuation:
    """What follows the prefix, without a stop token; tokens: what it cost, as the budget counts."""

    text: str
    tokens: int
    truncated: bool = False


class Completer(Protocol):
    """Writes on. Equal keys, prefixes and policies give equal texts, whatever else is asked in the call."""

    def complete(self, requests: Sequence[Request]) -> Sequence[Sequence[Continuation]]:
        """For every request, in order, its `number` continuations."""
        ...
