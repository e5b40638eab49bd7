"""Asks scorers: values for completions, steps and pairs, and the verifier for right and wrong.

Knows scorers and what was read from files; knows no protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from rewards.agreement import answer_of, equivalence_classes, same_answer
from rewards.composite import Composite
from rewards.errors import EngineError
from rewards.evaluation.completions import Completion
from rewards.evaluation.files import Values
from rewards.evaluation.pairs import Pair
from rewards.evaluation.solutions import Solution
from rewards.models.process import ProcessScorer
from rewards.scorer import Scorer
from rewards.steps import Step
from rewards.types import Sample, Score, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier

Item = TypeVar("Item")
Progress = Callable[[int], None]
"""Told how many more samples are scored."""
_AT_ONCE = 512
_MAX_FAILED_SHARE = 0.01


Scored = tuple[list[Item], list[str]]
"""Items with their values, and what is to be said of these."""


def score_completions(rows: Sequence[Completion], scorer: Scorer, progress: Progress) -> Scored[Completion]:
    """The completions with values of the scorer; of their steps where a process reward model stands alone."""
    samples = [row.sample for row in rows if row.sample is not None]
    steps = isinstance(only(scorer), ProcessScorer)
    scores = _scores(scorer, samples, progress)
    rest = iter(scores)
    scored = [row if row.sample is None else replace(row, values=_values(next(rest), steps)) for row in rows]
    return scored, _part_abstained(scores)


def score_pairs(pairs: Sequence[Pair], scorer: Scorer, progress: Progress) -> Scored[Pair]:
    """The pairs with values of the scorer for every side."""
    steps = isinstance(only(scorer), ProcessScorer)
    scores = _scores(scorer, [sample for pair in pairs for sample in pair.samples], progress)
    rest = iter(scores)
    scored = [replace(pair, sides=tuple(_values(next(rest), steps) for _ in pair.samples)) for pair in pairs]
    return scored, _part_abstained(scores)


def score_solutions(rows: Sequence[Solution], scorer: Scorer, progress: Progress) -> Scored[Solution]:
    """The solutions with values of the scorer for the steps that they are given in.

    A process reward model is asked about these steps. Other scorers cut the text themselves: a step's value
    is then the lowest of the parts that begin in it, or of the part that it lies in.
    """
    process = only(scorer)
    if isinstance(process, ProcessScorer):

        def given(part: Sequence[Solution]) -> list[Score]:
            steps = [[Step(start, end, "text") for start, end in row.spans] for row in part]
            return process.score_steps([row.sample for row in part], steps)

        scores = _in_turn(given, rows, progress)
    else:
        scores = _scores(scorer, [row.sample for row in rows], progress)
    scored = [
        replace(row, values=tuple(_value_in(score, span) for span in row.spans))
        for row, score in zip(rows, scores, strict=True)
    ]
    return scored, _part_abstained(scores)


def _part_abstained(scores: Sequence[Score]) -> list[str]:
    """One line for each part of a mix that was paid for none or only some of what has a score."""
    scored = [score for score in scores if score.value is not None]
    missing = Counter(
        part.name
        for score in scored
        for part in score.parts
        if part.weight != 0 and part.name in score.notes.get("abstained", "").split(",")
    )
    return [
        f"part_abstained: {count:,} of {len(scored):,} scores are without {name!r}, which could not judge "
        "their problems: these measure the other parts alone"
        for name, count in missing.items()
    ]


def _value_in(score: Score, span: tuple[int, int]) -> float | None:
    start, end = span
    own = [step.value for step in score.steps if start <= step.start < end]
    around = [step.value for step in score.steps if step.start < start < step.end]
    return min(own) if own else next(iter(around), None)


def verify(rows: Sequence[Completion], verifier: AccuracyVerifier) -> tuple[list[Completion], list[str]]:
    """All completions, judged where nobody told whether they are right; left out where they cannot be."""
    unknown = [row for row in rows if row.correct is None]
    samples = [row.sample for row in unknown if row.sample is not None]
    scores = iter(verifier.score(samples))
    judged = [row if row.correct is not None else replace(row, correct=_passed(next(scores))) for row in rows]
    kept = [row for row in judged if row.correct is not None]
    lost = len(rows) - len(kept)
    return kept, [f"left out: {lost:,} completions that cannot be verified"] if lost else []


def with_classes(rows: Sequence[Completion], verifier: AccuracyVerifier) -> list[Completion]:
    """The completions with the number of their class of equivalent answers, within a question, as answer."""
    answers = [
        answer_of(row.sample, verifier) if row.answer is None and row.sample is not None else row.answer
        for row in rows
    ]
    members: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        members.setdefault(row.question, []).append(place)
    named = list(rows)
    for places in members.values():
        classes = equivalence_classes(
            [answers[place] for place in places], lambda a, b: same_answer(a, b, "auto", verifier)
        )
        for place, number in zip(places, classes, strict=True):
            named[place] = replace(rows[place], answer=None if number is None else str(number))
    return named


def only(scorer: Scorer) -> Scorer:
    """The scorer that a mix of one consists of."""
    if isinstance(scorer, Composite) and len(scorer.components) == 1:
        return next(iter(scorer.components.values())).scorer
    return scorer


def _passed(score: Score) -> bool | None:
    return None if score.value is None else score.value > 0


def _values(score: Score, steps: bool) -> Values | None:
    if score.value is None:
        return None
    return tuple(step.value for step in score.steps) if steps and score.steps else (score.value,)


def _scores(scorer: Scorer, samples: Sequence[Sample], progress: Progress) -> list[Score]:
    return _in_turn(scorer.score, samples, progress)


def _in_turn(
    score: Callable[[Sequence[Item]], list[Score]], items: Sequence[Item], progress: Progress
) -> list[Score]:
    """Scores of all items, some at a time.

    Raises:
        EngineError: when more than a hundredth failed through no fault of theirs.
    """
    scores: list[Score] = []
    for first in range(0, len(items), _AT_ONCE):
        part = items[first : first + _AT_ONCE]
        scores += score(part)
        progress(len(part))
    failed = [score for score in scores if score.verdict is Verdict.FAILED]
    if len(failed) > _MAX_FAILED_SHARE * len(scores):
        notes = next((note for score in failed for note in _notes(score)), failed[0].reason.value)
        raise EngineError(f"{len(failed):,} of {len(scores):,} could not be scored: {notes}")
    return scores


def _notes(score: Score) -> list[str]:
    return [*score.notes.values(), *(note for part in score.parts for note in part.score.notes.values())]
