"""Whether two completions of a problem give the same answer, for votes among them (self-consistency).

Answers are found as the accuracy verifier finds them, and compared as it compares an answer with a gold: one
takes the gold's place. Which of them is right does not matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rewards.isolation import guarded, run_isolated
from rewards.text import Source, extract_answer
from rewards.types import AnswerType, Reason, Sample
from rewards.verifiers.accuracy import AccuracyVerifier, wanted_from
from rewards.verifiers.equivalence import AlgebraTask, Decision, decide, prepare_gold
from rewards.verifiers.equivalence.normalise import clean, squeeze
from rewards.verifiers.equivalence.settings import MAX_CHARS

_SOLVE = "rewards.verifiers.equivalence:solve"
_ALGEBRA = ("rewards.verifiers.equivalence.algebra",)


def answer_of(sample: Sample, verifier: AccuracyVerifier) -> str | None:
    """The answer that the verifier judges; None where there is none, or no gold tells what to look for.

    >>> from rewards.types import Problem
    >>> answer_of(Sample(Problem("p", "", ("3",)), "so \\\\boxed{1+2}"), AccuracyVerifier())
    '1+2'
    """

    def find(sample: Sample) -> str | None:
        gold = prepare_gold(sample.problem.gold, sample.problem.answer_type, verifier.equivalence)
        if isinstance(gold, Reason):
            return None
        source = Source(sample.text, sample.prefill, sample.problem.prompt, sample.truncated)
        return extract_answer(source, verifier.format, verifier.extraction, wanted_from(gold)).answer

    found = guarded(find, sample).value
    return found if isinstance(found, str) else None


def same_answer(first: str, second: str, answer_type: AnswerType, verifier: AccuracyVerifier) -> bool:
    """Whether two answers to one problem are the same; too dear to compare, or unreadable, is no.

    >>> same_answer("1/2", "0.5", "auto", AccuracyVerifier())
    True
    """
    if max(len(first), len(second)) > MAX_CHARS:
        return False
    if squeeze(clean(first)) == squeeze(clean(second)):
        return True
    gold = prepare_gold((first,), answer_type, verifier.equivalence)
    if isinstance(gold, Reason):
        return False
    found = decide(gold, second, verifier.equivalence)
    if isinstance(found, AlgebraTask):
        (outcome,) = run_isolated(
            _SOLVE, [found], preload=_ALGEBRA, limits=verifier.limits, workers=verifier.workers
        )
        found = outcome.value
    return isinstance(found, Decision) and found.equal


def equivalence_classes(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> list[int | None]:
    """Numbers the answers so that equal ones share a number; None stays None.

    Each answer is compared with the first answer of every class so far, hence at most n times the number of
    classes calls of `same`, which need not be transitive.

    >>> equivalence_classes(["1/2", "0.5", None, "3"], lambda a, b: {a, b} == {"1/2", "0.5"})
    [0, 0, None, 1]
    """
    representatives: list[str] = []
    known: dict[str, int] = {}
    classes: list[int | None] = []
    for answer in answers:
        if answer is None:
            classes.append(None)
            continue
        if answer not in known:
            matches = (i for i, first in enumerate(representatives) if same(first, answer))
            known[answer] = next(matches, len(representatives))
            if known[answer] == len(representatives):
                representatives.append(answer)
        classes.append(known[answer])
    return classes
