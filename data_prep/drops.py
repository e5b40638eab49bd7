"""What was left out while preparing data, and why: no row disappears silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rewards.errors import DataError

OnError = Literal["stop", "skip"]
"""What becomes of a run when a row is not what its layout says."""


class DropReason(StrEnum):
    """Why a row, or an example of it, is not in the file."""

    MALFORMED = "malformed"
    """The row is not what its layout says (on_error=skip)."""
    NO_PROMPT = "no_prompt"
    """The question is empty."""
    NO_GOLD = "no_gold"
    """The gold is empty, or its field holds no mark or box to read it from."""
    UNVERIFIABLE = "unverifiable"
    """The gold, given as an answer, does not verify against itself."""
    DUPLICATE = "duplicate"
    """An earlier one has the same question (problems) or the same texts and labels (examples)."""
    CONFLICT = "conflict"
    """An earlier example has the same texts and other labels."""
    EVALUATION = "evaluation"
    """The question is one of an evaluation set."""
    EMPTY_COMPLETION = "empty_completion"
    """A completion, or a step that was judged, holds nothing visible."""
    NO_LABEL = "no_label"
    """Nobody judged any of its steps."""
    QUALITY_CONTROL = "quality_control"
    """Asked to check the people who label (PRM800K), not to be learned from."""
    SCREENING = "screening"
    """Asked to choose the people who label (PRM800K)."""
    BAD_PROBLEM = "bad_problem"
    """The labeller found the problem faulty (PRM800K)."""
    GAVE_UP = "gave_up"
    """The labeller did not finish (PRM800K)."""
    FLAGGED = "flagged"
    """The labeller flagged the step (PRM800K)."""
    STEP_MARKS = "step_marks"
    """Not every step has one heading and one tag, in order (Math-Shepherd, OpenR)."""
    NO_CONTEXT = "no_context"
    """The steps before the one that was judged are missing (OpenR)."""
    MISALIGNED = "misaligned"
    """The labelled text is not the text with its tags replaced (Math-Shepherd)."""
    TIE = "tie"
    """Both completions are rated alike."""
    MISRATED = "misrated"
    """The rejected completion is rated above the chosen one."""
    UNPAIRED = "unpaired"
    """No second rated completion stands beside it."""
    SAME_TEXT = "same_text"
    """Chosen and rejected are equal."""
    PROMPTS_DIFFER = "prompts_differ"
    """Chosen and rejected answer different conversations."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A row, or an example of it, that was left out: where names it for people, detail shows what helps."""

    where: str
    reason: DropReason
    detail: str = ""


def malformed(where: str, error: DataError, on_error: OnError) -> Drop:
    """The drop of a row that is not what it should be.

    Raises:
        DataError: on_error is stop.
    """
    if on_error == "stop":
        raise DataError(f"{error} (on_error=skip leaves such rows out and counts them)") from error
    return Drop(where, DropReason.MALFORMED, str(error).removeprefix(where).lstrip(":, "))


def count_drops(drops: Iterable[Drop]) -> dict[DropReason, int]:
    """How many were dropped for each reason that occurred, in order of occurrence."""
    return dict(Counter(drop.reason for drop in drops))
