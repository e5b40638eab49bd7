"""PRM800K in its own layout (Lightman et al. 2023, arXiv:2305.20050), with what its rows hide.

A row is one solution that a person judged step by step. Each step holds several completions with a rating
(-1 wrong, 0 neutral, 1 right, null none), and chosen_completion tells which one the solution went on with.
Where it is null the person, who found all of them wrong, wrote a right step (human_completion), or the row
ends there: phase 2 stops at the first wrong step, whose first completion is the solution's own. The other
completions of a step are alternatives to it; nothing is ever joined to an alternative, because what follows
was written after another step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from data_prep.drops import DropReason
from data_prep.fields import Fields, Row, each_row, fault, index_field, object_field, objects_field
from data_prep.process_sets import Found, Read, joined_by, read_openr_prm800k
from rewards.labelled import NEUTRAL, ProcessExample, StepLabel
from rewards.records import flag_field, text_field

RATINGS: dict[int, StepLabel] = {-1: 0.0, 0: NEUTRAL, 1: 1.0}
_NOT_FOR_TRAINING = {
    "is_quality_control_question": DropReason.QUALITY_CONTROL,
    "is_initial_screening_question": DropReason.SCREENING,
}
_UNUSABLE_ENDS = {"bad_problem": DropReason.BAD_PROBLEM, "give_up": DropReason.GAVE_UP}
_USABLE_ENDS = ("solution", "found_error")
_ANSWER_BLOCK = re.compile(r"\s*# Answer\s*")


@dataclass(frozen=True, slots=True)
class _Judged:
    """One completion of a step."""

    text: str
    label: StepLabel
    flagged: bool


def read_prm800k(rows: Iterable[Row], alternatives: bool = True) -> Read:
    """Rows of the original layout, or of OpenR's two flattened ones (`read_openr_prm800k`).

    A row gives the solution and, with alternatives, one text for each other completion that was rated: the
    steps before it, which have their labels in the solution alone, and it. Rows that only check or choose
    the people, and those given up or with a faulty problem, are dropped; so are flagged steps, with all that
    follows them.
    """

    def read(number: int, where: str, row: Fields) -> Iterator[Found]:
        if "process" in row:
            return read_openr_prm800k(number, where, row)
        return _row(number, where, row, alternatives)

    return each_row(rows, read)


def _row(number: int, where: str, row: Fields, alternatives: bool) -> Iterator[Found]:
    question = text_field(object_field(row, "question", where), "problem", where).strip()
    reason = _unusable(row, where) or (None if question else DropReason.NO_PROMPT)
    if reason is not None:
        yield where, reason
        return
    texts = _texts(object_field(row, "label", where), where, alternatives)
    for index, (place, steps) in enumerate(texts):
        name = f"prm800k-{number:06d}-{index}"
        yield place, steps if isinstance(steps, DropReason) else _example(question, steps, name)


def _unusable(row: Fields, where: str) -> DropReason | None:
    for name, reason in _NOT_FOR_TRAINING.items():
        if flag_field(row, name, where):
            return reason
    label = object_field(row, "label", where)
    end = text_field(label, "finish_reason", where)
    if end not in (*_USABLE_ENDS, *_UNUSABLE_ENDS):
        raise fault(label, "finish_reason", where, f"one of {', '.join([*_USABLE_ENDS, *_UNUSABLE_ENDS])}")
    return _UNUSABLE_ENDS.get(end)


def _texts(label: Fields, where: str, alternatives: bool) -> Iterator[tuple[str, list[_Judged] | DropReason]]:
    """The solution, then the alternatives to its steps: (place, steps), or why one is left out."""
    solution: list[_Judged] = []
    others: list[tuple[str, list[_Judged] | DropReason]] = []
    flagged: str | None = None
    for number, step in enumerate(objects_field(label, "steps", where)):
        place = f"{where}, step {number}"
        completions = _completions(step, place)
        chosen = _chosen(step, completions, place)
        before = [_Judged(own.text, None, own.flagged) for own in solution]
        for index, other in enumerate(completions):
            if alternatives and other is not chosen and other.label is not None:
                reason = _why_not(other)
                others.append((f"{place}, completion {index}", reason or [*before, other]))
        if chosen is None:
            break
        if _why_not(chosen) is not None:
            flagged = place
            break
        solution.append(chosen)
    if flagged is not None:
        yield flagged, DropReason.FLAGGED
    yield where, solution if any(own.label is not None for own in solution) else DropReason.NO_LABEL
    yield from others


def _completions(step: Fields, where: str) -> list[_Judged]:
    if step.get("completions") is None:
        return []
    return [_judged(completion, where) for completion in objects_field(step, "completions", where)]


def _chosen(step: Fields, completions: Sequence[_Judged], where: str) -> _Judged | None:
    """The completion that the solution went on with; None when it did not go on."""
    if step.get("chosen_completion") is not None:
        index = index_field(step, "chosen_completion", where)
        if not 0 <= index < len(completions):
            raise fault(
                step, "chosen_completion", where, f"the place of one of {len(completions)} completions"
            )
        return completions[index]
    if step.get("human_completion") is not None:
        written = object_field(step, "human_completion", where)
        return _Judged(_plain(text_field(written, "text", where)), 1.0, flag_field(written, "flagged", where))
    # Phase 2 stopped here, at a wrong step of the solution: its first completion. In phase 1 nothing was
    # good enough to go on with, and a wrong completion ends the solution all the same.
    first = completions[0] if completions else None
    return first if first is not None and first.label == 0.0 else None


def _judged(completion: Fields, where: str) -> _Judged:
    label: StepLabel = None
    if completion.get("rating") is not None:
        rating = index_field(completion, "rating", where)
        if rating not in RATINGS:
            raise fault(completion, "rating", where, "-1, 0, 1 or null")
        label = RATINGS[rating]
    return _Judged(
        _plain(text_field(completion, "text", where)), label, flag_field(completion, "flagged", where)
    )


def _why_not(completion: _Judged) -> DropReason | None:
    if completion.flagged:
        return DropReason.FLAGGED
    return None if completion.text else DropReason.EMPTY_COMPLETION


def _plain(text: str) -> str:
    r"""A step as a model would write it: the block with the final answer as a line.

    >>> _plain("That's it.\n\n# Answer\n\n29")
    "That's it.\nAnswer: 29"
    """
    return _ANSWER_BLOCK.sub("\nAnswer: ", text).strip()


def _example(question: str, steps: Sequence[_Judged], name: str) -> ProcessExample:
    texts = joined_by([step.text for step in steps], "\n")
    return ProcessExample(question, texts, tuple(step.label for step in steps), "prm800k", name)
