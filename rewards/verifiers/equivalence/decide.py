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
from rewards.verifiers.equivalence.parameters import undeclared
from rewards.verifiers.equivalence.parse import parse
from rewards.verifiers.equivalence.rules import Rules
from rewards.verifiers.equivalence.scalars import same_value, terminates
from rewards.verifiers.equivalence.settings import MAX_CHARS, EquivalenceSettings
from rewards.verifiers.equivalence.structure import interpret

_PLAIN = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?\Z")
_LETTER = re.compile(r"[(\[{]?\s*([A-Ja-j])\s*[)\]}]?\s*(?:[.:)]\s*)?\Z")
_LETTER_TEXT = re.compile(r"(?:[(\[]\s*([A-J])\s*[)\]][.:]?|([A-J])\s*[).:])\s+\S")

_ROUGH = re.compile(
    r"(?:\\(?:approx|thickapprox|simeq|sim)(?![A-Za-z])|~|(?:\\text\s*\{\s*)?(?:about|approximately|approx\.?|roughly|around)\b)"
)
_EXISTS_NOT = re.compile(r"(?i)(?:DNE|(?:the\s+)?(?:limit\s+)?does\s+not\s+exist)\Z")
_YES_NO = ("yes", "no")
_YES_NO_SAID = re.compile(
    r"(?i)(?:(yes)|(no))\s*[,.;:—-]\s*(?:it|they|he|she|that|this|we|you|i|there)\s+"
    r"(?:is|are|does|do|can|will|was|were|has|have|did)(?(2)(?:\s+not|n't)?)[\s.]*\Z"
)
_CLOCK = re.compile(r"(?i)([0-9]{1,2})(?::([0-9]{2}))?(?::([0-9]{2}))?\s*([ap])\.?\s?m\.?\Z")


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
    if _is_rough(gold, text):
        return Decision(False, Reason.MISMATCH, "an approximation of an exact gold")
    if _EXISTS_NOT.match(words_of(gold.text)) and _EXISTS_NOT.match(words_of(text)):
        return Decision(True, Reason.MATCH_STRING)
    timed = _time_of_day(gold, text)
    if timed is not None:
        return timed
    if gold.parsed is None:
        return _text(gold, text, settings)
    plain = _plain_number(gold, text, settings)
    if plain is not None:
        return plain
    readings = read(text, gold, settings)
    if not readings:
        return Decision(False, Reason.UNPARSABLE)
    verdicts = [equal(gold.parsed, reading, cheap_rules(settings)) for reading in readings]
    for reading, verdict in zip(readings, verdicts, strict=True):
        if verdict is True:
            return Decision(True, match_reason(gold.parsed, reading))
    if None in verdicts:
        return AlgebraTask(gold, answer, settings)
    return Decision(False, Reason.MISMATCH)


def _is_rough(gold: Gold, text: str) -> bool:
    """Whether an answer calls itself an approximation where the gold is a whole number."""
    if not _ROUGH.match(text) or _ROUGH.match(gold.text) or not isinstance(gold.parsed, Scalar):
        return False
    node = gold.parsed.node
    return isinstance(node, Num) and node.value.denominator == 1 and "." not in gold.text


def _time_of_day(gold: Gold, text: str) -> Decision | None:
    """The decision where the gold is a time of day with am or pm; the half of the day is part of it."""
    wanted = _CLOCK.match(words_of(gold.text))
    if wanted is None:
        return None
    said = _CLOCK.match(words_of(text))
    same = said is not None and _clock(said) == _clock(wanted)
    return Decision(same, Reason.MATCH_STRUCTURE if same else Reason.MISMATCH)


def _clock(match: re.Match[str]) -> tuple[int, int, int, str]:
    hours, minutes, seconds, half = match.groups()
    return int(hours), int(minutes or 0), int(seconds or 0), half.lower()


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


def read(text: str, gold: Gold, settings: EquivalenceSettings) -> list[Answer]:
    """The readings of a cleaned answer; two where 1,234 may be a number or, against a list, two members."""
    text, _ = undeclared(text, gold.parameter)
    lists = gold.count > 1 or isinstance(gold.parsed, Items)
    words = settings.number_words or gold.in_words
    readings: list[Answer] = []
    for thousands in (True, False) if lists and re.search(r"\d,\d", text) else (True,):
        try:
            reading = interpret(parse(text, settings, thousands=thousands, words=words))
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
    if left != right and left.casefold() in _YES_NO:
        said = _YES_NO_SAID.match(text)
        left, right = left.casefold(), (said[1] or said[2]).casefold() if said else right
    return Decision(left == right, Reason.MATCH_STRING if left == right else Reason.MISMATCH)
