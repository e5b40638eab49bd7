r"""Sets whose steps were judged one by one, as process examples.

Every step but the last ends as its source joins steps, so that a text is whole again when they are joined.
Each judgement of a person is in one example only: where a step occurs in several texts, it has its label in
the first, and None in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from data_prep.drops import DropReason
from data_prep.fields import Fields, Row, each_row, index_field, texts_field, truth_field
from rewards.errors import DataError
from rewards.labelled import ProcessExample, StepLabel
from rewards.records import id_field, text_field

Found = tuple[str, ProcessExample | DropReason]
Read = Iterator[tuple[str, ProcessExample | DropReason | DataError]]

TAG = "ки"
"""What ends a step of Math-Shepherd and of OpenR's files; `+` or `-` stands in its place in the labels."""
_FIRST_HEADING = re.compile(r"Step 1:")
_HEADING = re.compile(r"Step:? ?(\d{1,3}): ?")
_LABELS = {"+": 1.0, "-": 0.0}


def read_math_shepherd(rows: Iterable[Row]) -> Read:
    """Wang et al. 2023, arXiv:2312.08935: {"input", "label", "task"}, labels by Monte-Carlo completions.

    Question and solution are one text, parted at the first `Step 1:`. A text with several `Step 1:`, or
    with a step that lacks its heading or its tag, is dropped: it cannot be told which labels are whose.
    """
    return each_row(rows, _math_shepherd_row)


def _math_shepherd_row(number: int, where: str, row: Fields) -> Iterator[Found]:
    text, label = text_field(row, "input", where), text_field(row, "label", where)
    task = text_field(row, "task", where, default="")
    yield where, _math_shepherd(text, label, task, f"math_shepherd-{number:06d}")


def _math_shepherd(text: str, label: str, task: str, name: str) -> ProcessExample | DropReason:
    headings = list(_FIRST_HEADING.finditer(text))
    if len(headings) != 1:
        return DropReason.STEP_MARKS
    begin = headings[0].start()
    question = text[:begin].strip()
    if not question:
        return DropReason.NO_PROMPT
    steps = _tagged_steps(text[begin:])
    if steps is None:
        return DropReason.STEP_MARKS
    pieces = text[begin:].split(TAG)
    signs = _signs(text[:begin] + pieces[0], pieces[1:], label)
    if signs is None:
        return DropReason.MISALIGNED
    labels = tuple(_LABELS[sign] for sign in signs)
    return ProcessExample(question, joined_by(steps, "\n"), labels, "math_shepherd", name, {"task": task})


def _tagged_steps(solution: str) -> list[str] | None:
    """The steps of a tagged solution, without their tags; None when headings and tags do not match.

    >>> _tagged_steps("Step 1: a ки\\nStep 2: b ки")
    ['Step 1: a', 'Step 2: b']
    """
    *steps, rest = solution.split(TAG)
    if rest.strip() or not steps:
        return None
    for number, step in enumerate(steps, start=1):
        # A heading at the start of a later line belongs to a step that lost its tag.
        found = [int(m[1]) for line in step.strip().splitlines() if (m := _HEADING.match(line.strip()))]
        if found != [number]:
            return None
    return [step.strip() for step in steps]


def _signs(start: str, rests: Sequence[str], label: str) -> str | None:
    """The signs that stand in the label where the text has its tags; None when the two do not match."""
    if not label.startswith(start):
        return None
    at, signs = len(start), ""
    for rest in rests:
        if label[at : at + 1] not in _LABELS or not label.startswith(rest, at + 1):
            return None
        signs += label[at]
        at += 1 + len(rest)
    return signs if not label[at:].strip() else None


def read_processbench(rows: Iterable[Row]) -> Read:
    """Zheng et al. 2024, arXiv:2412.06559.

    {"id", "generator", "problem", "steps", "final_answer_correct", "label"}: label is the first wrong step
    counted from 0, or -1. Steps before it are right, those after it unjudged.
    """
    return each_row(rows, _processbench_row)


def _processbench_row(number: int, where: str, row: Fields) -> Iterator[Found]:
    question, steps = text_field(row, "problem", where), texts_field(row, "steps", where)
    error = index_field(row, "label", where)
    if not steps or not -1 <= error < len(steps):
        raise DataError(
            f"{where}, field 'label': expected -1 or the place of one of {len(steps)} steps from 0, "
            f"got {error}"
        )
    labels: list[StepLabel] = [1.0] * len(steps)
    if error >= 0:
        labels[error:] = [0.0, *[None] * (len(steps) - error - 1)]
    meta = {
        "generator": text_field(row, "generator", where, default=""),
        "final_answer_correct": str(truth_field(row, "final_answer_correct", where)).lower(),
    }
    given = id_field(row, "id", where)
    name = f"processbench-{number:06d}" if given is None else str(given)
    if not question.strip():
        yield where, DropReason.NO_PROMPT
    else:
        spans = joined_by(steps, "\n\n")
        yield where, ProcessExample(question, spans, tuple(labels), "processbench", name, meta)


def read_openr_prm800k(number: int, where: str, row: Fields) -> Iterator[Found]:
    """PRM800K as OpenR flattened it: {"question", "process", "label"} or {..., "labels"}, neutral as right.

    process holds the steps, each `Step: n: text ки`; label judges the last of them, labels all. Most rows of
    the file with a single label hold that one step alone, whatever its number: they are dropped, because a
    step is right or wrong only after those before it.
    """
    question, process = (text_field(row, name, where).strip() for name in ("question", "process"))
    steps, first = _tagged_steps(process), _HEADING.match(process)
    if "labels" in row:
        given = row["labels"]
        judged = [_binary(label, where) for label in given] if isinstance(given, list) else []
    else:
        judged = [_binary(row.get("label"), where)]
    if not question:
        yield where, DropReason.NO_PROMPT
    elif first is not None and first[1] != "1":
        yield where, DropReason.NO_CONTEXT
    elif steps is None or len(judged) not in (1, len(steps)):
        yield where, DropReason.STEP_MARKS
    else:
        plain = [_HEADING.sub("", step, count=1) for step in steps]
        labels = (*[None] * (len(steps) - len(judged)), *judged)
        name = f"prm800k-{number:06d}"
        yield where, ProcessExample(question, joined_by(plain, "\n"), labels, "prm800k", name)


def _binary(label: object, where: str) -> float:
    if label not in (0, 1) or isinstance(label, bool):
        raise DataError(f"{where}, field 'label': expected 0 or 1, got {label!r}")
    return 1.0 if label == 1 else 0.0


def joined_by(steps: Sequence[str], join: str) -> tuple[str, ...]:
    r"""The steps, each but the last followed by what joins them.

    >>> joined_by(["a", "b"], "\n")
    ('a\n', 'b')
    """
    return (*(step + join for step in steps[:-1]), steps[-1])
