"""The decision in the calling process: string, number, structure; what needs algebra is handed on as a task.

Pure Python, no sympy, bounded by static limits; never raises on any text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rewards.types import Reason
from rewards.verifiers.equivalence.answers import Answer, Items, Scalar
from rewards.verifiers.equivalence.compare import equal
from rewards.verifiers.equivalence.equations import proportional
from rewards.verifiers.equivalence.gold import Gold
from rewards.verifiers.equivalence.nodes import Node, Num, symbols
from rewards.verifiers.equivalence.normalise import clean, squeeze, words_of
from rewards.verifiers.equivalence.parse import parse
from rewards.verifiers.equivalence.rules import Rules
from rewards.verifiers.equivalence.scalars import same_value, terminates
from rewards.verifiers.equivalence.settings import MAX_CHARS, EquivalenceSettings
from rewards.verifiers.equivalence.structure import interpret

_PLAIN = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?\Z")
_LETTER = re.compile(r"[(\[{]?\s*([A-Ja-j])\s*[)\]}]?\s*(?:[.:)]\s*)?\Z")
_LETTER_TEXT = re.compile(r"(?:[(\[]\s*([A-J])\s*[)\]][.:]?|([A-J])\s*[).:])\s+\S")


@dataclass(frozen=True, slots=True)
class Decision:
    """equal and why; note is a short fact for people."""

    equal: bool
    reason: Reason
    note: str = ""


@dataclass(frozen=True, slots=True)
class AlgebraTask:
    """A comparison that only a worker can finish: give it to `solve`."""

    gold: Gold
    answer: str
    settings: EquivalenceSettings


def decide(gold: Gold, answer: str, settings: EquivalenceSettings) -> Decision | AlgebraTask:
    """Whether answer (already extracted) says what gold says, or a task where algebra must decide."""
    if len(answer) > MAX_CHARS:
        return Decision(False, Reason.TOO_LARGE)
    text = clean(answer)
    if not text:
        return Decision(False, Reason.NO_ANSWER)
    if squeeze(text) == gold.key:
        return Decision(True, Reason.MATCH_STRING)
    if gold.choices:
        return _choice(gold, text)
    if gold.parsed is None:
        return _text(gold, text, settings)
    plain = _plain_number(gold, text, settings)
    if plain is not None:
        return plain
    readings = read(text, settings, lists=gold.count > 1 or isinstance(gold.parsed, Items))
    if not readings:
        return Decision(False, Reason.UNPARSABLE)
    verdicts = [equal(gold.parsed, reading, cheap_rules(settings)) for reading in readings]
    for reading, verdict in zip(readings, verdicts, strict=True):
        if verdict is True:
            return Decision(True, match_reason(gold.parsed, reading))
    if None in verdicts:
        return AlgebraTask(gold, answer, settings)
    return Decision(False, Reason.MISMATCH)


def _plain_number(gold: Gold, text: str, settings: EquivalenceSettings) -> Decision | None:
    """The common case, a plain number against a plain number, without parsing; None for all others.

    Two numbers with a finite decimal are compared exactly, so that no other rule could make them equal.
    """
    if not (isinstance(gold.parsed, Scalar) and isinstance(gold.parsed.node, Num)):
        return None
    units_drop = not settings.units_required and (settings.degrees_optional or gold.parsed.unit != "deg")
    exact = not settings.rel_tol and terminates(gold.parsed.node.value)
    if not units_drop or not exact or not _PLAIN.match(text):
        return None
    same = gold.parsed.node.value == Fraction(text)
    return Decision(same, Reason.MATCH_NUMERIC if same else Reason.MISMATCH)


@lru_cache(maxsize=64)
def cheap_rules(settings: EquivalenceSettings) -> Rules:
    """The rules with the oracles of this process."""

    def same(left: Node, right: Node) -> bool | None:
        return same_value(left, right, settings)

    return Rules(same, proportional, settings)


def read(text: str, settings: EquivalenceSettings, *, lists: bool) -> list[Answer]:
    """The readings of a cleaned answer; two where 1,234 may be a number or, against a list, two members."""
    readings: list[Answer] = []
    for thousands in (True, False) if lists and re.search(r"\d,\d", text) else (True,):
        try:
            reading = interpret(parse(text, settings, thousands=thousands))
        except ValueError:
            continue
        if reading not in readings:
            readings.append(reading)
    return readings


def match_reason(gold: Answer, answer: Answer) -> Reason:
    """Which rung found the match."""
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        free = symbols(gold.node) or symbols(answer.node)
        return Reason.MATCH_SYMBOLIC if free else Reason.MATCH_NUMERIC
    return Reason.MATCH_STRUCTURE


def _choice(gold: Gold, text: str) -> Decision:
    words = clean(words_of(text, keep_marks=True))
    match = _LETTER.match(words) or _LETTER_TEXT.match(words)
    if match is None:
        return Decision(False, Reason.UNPARSABLE)
    letter = next(group for group in match.groups() if group).upper()
    return Decision(
        letter in gold.choices, Reason.MATCH_STRING if letter in gold.choices else Reason.MISMATCH
    )


def _text(gold: Gold, text: str, settings: EquivalenceSettings) -> Decision:
    left, right = words_of(gold.text), words_of(text)
    if not settings.case_sensitive_text:
        left, right = left.casefold(), right.casefold()
    return Decision(left == right, Reason.MATCH_STRING if left == right else Reason.MISMATCH)
