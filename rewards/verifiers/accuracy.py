"""Pays for the right answer: extraction, comparison by rising cost, algebra in killable workers.

Most samples are settled in the calling process (string, number, structure: microseconds); what needs algebra
is collected over the whole batch, solved once per different (gold, answer), spread over the isolated workers
and remembered. Model text only becomes our own syntax tree: it never reaches eval, sympify or parse_expr.

Every zero has its reason. The problem's fault (no gold, a gold that cannot be read) abstains whatever the
completion says; a comparison that is too slow or too large is the completion's fault and earns the floor; a
worker that dies is ours and fails. An expression of the question, repeated instead of worked out, earns the
floor, and so does any calculation where a problem states answer_type="number". Where a question asks for a
percentage, the sign may be given or left out. A truncated completion earns
only what a closed box or answer block shows to be complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rewards.calculation import leaves_work
from rewards.errors import ConfigError
from rewards.extraction import Extraction, ExtractionSettings, Wanted
from rewards.format import FormatSpec
from rewards.isolation import Limits, Outcome, guarded, run_isolated
from rewards.text import Source, extract_answer
from rewards.types import Reason, Sample, Score, Verdict
from rewards.verifiers.equivalence import (
    AlgebraTask,
    Decision,
    EquivalenceSettings,
    Gold,
    decide,
    prepare_gold,
)

_VERSION = "accuracy/1"
_SOLVE = "rewards.verifiers.equivalence:solve"
_ALGEBRA = ("rewards.verifiers.equivalence.algebra",)
_NOTE = 200  # characters of an answer that a score keeps
_REMEMBERED = 25_000  # decisions of a generation
_MEMORABLE = 500  # characters of an answer, so that the memory of them stays small
_ASKS_PERCENT = re.compile(
    r"(?i)\b(?:what(?:\s+(?:is|was|are|were|will\s+be))?(?:\s+the)?|which|how\s+many|as\s+an?|in"
    r"|(?:find|calculate|determine|compute|nearest)(?:\s+the)?)\s+percent"
)
_OFFERS = re.compile(r"(?i)\b(?:or|either)\b")
_COMPLETIONS_FAULT = frozenset({Reason.TIMEOUT, Reason.MEMORY, Reason.TOO_LARGE})


@dataclass(frozen=True, slots=True)
class AccuracyVerifier:
    """Scores 1 where the completion's answer equals the gold, otherwise 0.

    format: the layout whose tags bound the thought and the answer. equivalence: the conventions of "same
    answer". extraction: how answers are found. limits: of one comparison in a worker. workers: processes of
    this process's shared pool; they start when the first comparison needs algebra.
    """

    format: FormatSpec = field(default_factory=FormatSpec)
    equivalence: EquivalenceSettings = field(default_factory=EquivalenceSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)
    limits: Limits = field(default_factory=Limits)
    workers: int = 2

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"workers={self.workers}: expected >= 1")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order; notes hold the extracted answer and the rung that found it."""
        looks = [guarded(self._look, sample) for sample in samples]
        tasks = {
            look.value.key: look.value.found
            for look in looks
            if isinstance(look.value, _Look) and isinstance(look.value.found, AlgebraTask)
        }
        solved = dict(zip(tasks, self._solve(list(tasks.values())), strict=True))
        for key, outcome in solved.items():
            if isinstance(outcome, Decision):
                _decisions.put(key, outcome)
        return [_conclude(look, solved) for look in looks]

    def _look(self, sample: Sample) -> Score | _Look:
        """Everything that is cheap: a score, a decision, or the task that will bring one."""
        problem = sample.problem
        conventions = _conventions(problem.prompt, self.equivalence)
        gold = prepare_gold(problem.gold, problem.answer_type, conventions)
        if isinstance(gold, Reason):
            return Score.abstained(gold, version=_VERSION)
        source = Source(sample.text, sample.prefill, problem.prompt, sample.truncated)
        extraction = extract_answer(source, self.format, self.extraction, wanted_from(gold, problem.gold))
        if extraction.answer is None:
            reason = extraction.reason or Reason.NO_ANSWER
            return Score.scored(0.0, reason, version=_VERSION, notes={"rung": str(extraction.rung)})
        if leaves_work(
            extraction.answer, problem.prompt, problem.gold, number=problem.answer_type == "number"
        ):
            notes = {"answer": _printable(extraction.answer), "rung": str(extraction.rung)}
            notes["note"] = "a calculation where its result is asked for"
            return Score.scored(0.0, Reason.MISMATCH, version=_VERSION, notes=notes)
        key = (problem.gold, problem.answer_type, extraction.answer, conventions, self.limits)
        found = _decisions.get(key) or decide(gold, extraction.answer, conventions)
        if isinstance(found, Decision):
            _decisions.put(key, found)
        return _Look(extraction, key, found)

    def _solve(self, tasks: list[AlgebraTask]) -> list[Decision | Outcome]:
        """A Decision per task (also where the comparison was too dear), or the Outcome of our failure."""
        outcomes = run_isolated(_SOLVE, tasks, preload=_ALGEBRA, limits=self.limits, workers=self.workers)
        return [_decision(outcome) for outcome in outcomes]


_Key = tuple[tuple[str, ...], str, str, EquivalenceSettings, Limits]


@dataclass(frozen=True, slots=True)
class _Look:
    """A sample with an answer: what decides it, or will."""

    extraction: Extraction
    key: _Key
    found: Decision | AlgebraTask


class _Decisions:
    """The latest decisions by (gold, answer, settings); bounded, shared by all verifiers and threads.

    Two generations: when the younger is full, the older is dropped. Each step is one operation on a dict, so
    there is no lock that a fork could leave held.
    """

    def __init__(self) -> None:
        self._young: dict[_Key, Decision] = {}
        self._old: dict[_Key, Decision] = {}

    def get(self, key: _Key) -> Decision | None:
        return self._young.get(key) or self._old.get(key)

    def put(self, key: _Key, decision: Decision) -> None:
        if len(key[2]) > _MEMORABLE:
            return
        if len(self._young) >= _REMEMBERED:
            self._old, self._young = self._young, {}
        self._young[key] = decision


_decisions = _Decisions()


def _conventions(question: str, stated: EquivalenceSettings) -> EquivalenceSettings:
    """The conventions for one question: where it asks for a percentage, 10 and 10 % are the same answer."""
    return replace(stated, percent="lenient") if _ASKS_PERCENT.search(question) else stated


def wanted_from(gold: Gold, written: Sequence[str] = ()) -> Wanted:
    """What extraction has to look for, given what the gold is and how it is written."""
    if gold.answer_type == "choice":
        return Wanted("choice")
    kind = "text" if gold.answer_type == "text" else "math"
    spelling = written[0].strip() if len(written) == 1 else ""
    percent = gold.text.endswith(("%", "percent", "pct"))
    number = gold.answer_type == "number"
    return Wanted(kind, gold.count, percent=percent, number=number, spelling=spelling)


def _decision(outcome: Outcome) -> Decision | Outcome:
    if isinstance(outcome.value, Decision):
        return outcome.value
    if outcome.reason is not None and outcome.reason in _COMPLETIONS_FAULT:
        return Decision(False, outcome.reason, outcome.note)
    return outcome


def _conclude(look: Outcome, solved: dict[_Key, Decision | Outcome]) -> Score:
    if isinstance(look.value, Score):
        return look.value
    if not isinstance(look.value, _Look):
        return _failure(look)
    found = look.value.found
    settled = solved[look.value.key] if isinstance(found, AlgebraTask) else found
    if isinstance(settled, Outcome):
        return _failure(settled)
    answer = look.value.extraction.answer or ""
    notes = {"answer": _printable(answer), "rung": str(look.value.extraction.rung)}
    if settled.note:
        notes["note"] = _printable(settled.note)
    reason = settled.reason
    if reason in (Reason.MISMATCH, Reason.UNPARSABLE) and _OFFERS.search(answer):
        reason = Reason.AMBIGUOUS
    return Score(Verdict.SCORED, 1.0 if settled.equal else 0.0, reason, version=_VERSION, notes=notes)


def _failure(outcome: Outcome) -> Score:
    reason = outcome.reason or Reason.INTERNAL
    return Score.failed(reason, version=_VERSION, notes={"note": _printable(outcome.note)})


def _printable(text: str) -> str:
    """A bounded piece of any text that every file format can hold."""
    cut = text if len(text) <= _NOTE else text[: _NOTE - 1] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()
