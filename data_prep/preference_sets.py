"""Sets of pairs, one completion better than the other; the layout is told by the columns.

| layout | columns | what is paired |
|---|---|---|
| helpsteer2 | prompt, response, helpfulness, ... | two rows of one prompt in sequence, by helpfulness |
| ultrafeedback | instruction, completions | the best and the worst by the mean of their aspect ratings |
| binarized | chosen, rejected (messages), score_chosen, score_rejected | as given |
| messages | chosen, rejected (messages) | as given: Skywork, open-instruct |
| transcripts | chosen, rejected (one text each, with Human and Assistant marks) | as given: hh-rlhf |
| pairs | prompt, chosen, rejected (texts) | as given: RewardBench |
| lists | prompt, chosen, rejected (lists of texts) | all with all: RewardBench 2, RM-Bench |

UltraFeedback's overall_score is not read: some of its tens should be ones. The question of a conversation of
several turns is all of it, each turn after its speaker's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from data_prep.drops import DropReason
from data_prep.fields import (
    Fields,
    Row,
    messages_field,
    number_field,
    object_field,
    objects_field,
    texts_field,
)
from rewards.errors import DataError
from rewards.labelled import PreferenceExample
from rewards.records import text_field

Found = tuple[str, PreferenceExample | DropReason]

HUMAN, ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
"""hh-rlhf's marks (Bai et al. 2022, arXiv:2204.05862)."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SUBSETS = ("subset", "domain", "source", "dataset")
"""Where rows keep what they are a part of; the first that a row has is read."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """gap: by how much the chosen completion was rated above the rejected one; None: nobody says."""

    question: str
    chosen: str
    rejected: str
    gap: float | None = None


Paired = tuple[str, Fields, _Pair | DropReason]
"""(place for people, fields of the row, what they make)."""


def read_preferences(rows: Iterable[Row], rated_margin: bool = False) -> Iterator[Found]:
    """Reads rows of one layout of the table above.

    Args:
        rows: all of the layout of the first.
        rated_margin: the difference of the ratings, where there are any, becomes the margin (as in Llama 2,
            Touvron et al. 2023, arXiv:2307.09288, eq. 2); otherwise margins are 0.

    Raises:
        DataError: the columns are of no known layout; a field is not what its layout says.
    """
    rest = iter(rows)
    first = next(rest, None)
    if first is None:
        return
    pairs = LAYOUTS[_layout_of(*first)](chain([first], rest))
    for number, (where, row, pair) in enumerate(pairs, start=1):
        if isinstance(pair, DropReason):
            yield where, pair
        elif not pair.question.strip():
            yield where, DropReason.NO_PROMPT
        elif not (pair.chosen.strip() and pair.rejected.strip()):
            yield where, DropReason.EMPTY_COMPLETION
        elif pair.chosen == pair.rejected:
            yield where, DropReason.SAME_TEXT
        elif pair.gap is not None and pair.gap <= 0:
            yield where, DropReason.TIE if pair.gap == 0 else DropReason.MISRATED
        else:
            yield where, _example(row, pair, number, rated_margin)


def _example(row: Fields, pair: _Pair, number: int, rated_margin: bool) -> PreferenceExample:
    subset = next((str(row[name]) for name in _SUBSETS if isinstance(row.get(name), str)), "")
    return PreferenceExample(
        pair.question,
        pair.chosen,
        pair.rejected,
        margin=pair.gap if rated_margin and pair.gap is not None else 0.0,
        subset=subset,
        source="preference",
        id=f"preference-{number:06d}",
        meta={} if pair.gap is None else {"gap": f"{pair.gap:g}"},
    )


def _layout_of(where: str, row: Fields) -> str:
    """The name of the layout that a row's columns tell."""
    if {"prompt", "response", "helpfulness"} <= row.keys():
        return "helpsteer2"
    if {"instruction", "completions"} <= row.keys():
        return "ultrafeedback"
    if {"chosen", "rejected"} <= row.keys():
        chosen = row["chosen"]
        if isinstance(chosen, str):
            return "pairs" if "prompt" in row else "transcripts"
        if isinstance(chosen, list) and chosen and isinstance(chosen[0], str):
            return "lists"
        return "binarized" if "score_chosen" in row else "messages"
    raise DataError(
        f"{where}: has the columns {', '.join(sorted(row))}: expected those of a preference set: prompt, "
        "response and helpfulness; instruction and completions; or chosen and rejected"
    )


def _helpsteer2(rows: Iterable[Row]) -> Iterator[Paired]:
    """Wang et al. 2024, arXiv:2406.08673."""
    waiting: Row | None = None
    for where, row in rows:
        if waiting is None:
            waiting = where, row
        elif text_field(row, "prompt", where) == text_field(waiting[1], "prompt", waiting[0]):
            yield where, row, _rated_pair(waiting, (where, row))
            waiting = None
        else:
            yield *waiting, DropReason.UNPAIRED
            waiting = where, row
    if waiting is not None:
        yield *waiting, DropReason.UNPAIRED


def _rated_pair(*rows: Row) -> _Pair:
    """Two rows of one prompt, the more helpful one chosen."""
    rated = [
        (number_field(row, "helpfulness", where), text_field(row, "response", where)) for where, row in rows
    ]
    worse, better = sorted(rated, key=lambda one: one[0])
    where, row = rows[0]
    return _Pair(text_field(row, "prompt", where), better[1], worse[1], better[0] - worse[0])


def _ultrafeedback(rows: Iterable[Row]) -> Iterator[Paired]:
    """Cui et al. 2023, arXiv:2310.01377."""
    for where, row in rows:
        rated: list[tuple[float, str]] = []
        for completion in objects_field(row, "completions", where):
            rating = _mean_rating(object_field(completion, "annotations", where), where)
            if rating is not None:
                rated.append((rating, text_field(completion, "response", where)))
        if len(rated) < 2:
            yield where, row, DropReason.UNPAIRED
            continue
        # Of equally rated ones the first in the row, so that nothing depends on the texts.
        best = max(rated, key=lambda one: one[0])
        worst = min(rated, key=lambda one: one[0])
        question = text_field(row, "instruction", where)
        yield where, row, _Pair(question, best[1], worst[1], best[0] - worst[0])


def _mean_rating(annotations: Fields, where: str) -> float | None:
    """The mean of the aspects' ratings (texts from "1" to "5", or "N/A"); None when there is none."""
    ratings: list[float] = []
    for aspect in annotations:
        place = f"{where}, field 'annotations', field {aspect!r}"
        rating = text_field(object_field(annotations, aspect, where), "Rating", place, default="N/A")
        if rating == "N/A":
            continue
        if not _NUMBER.fullmatch(rating):
            raise DataError(f"{place}, field 'Rating': expected a number or N/A, got {rating!r}")
        ratings.append(float(rating))
    return fmean(ratings) if ratings else None


def _binarized(rows: Iterable[Row]) -> Iterator[Paired]:
    """Tunstall et al. 2023, arXiv:2310.16944."""
    for where, row, pair in _messages(rows):
        gap = number_field(row, "score_chosen", where) - number_field(row, "score_rejected", where)
        yield where, row, pair if isinstance(pair, DropReason) else replace(pair, gap=gap)


def _messages(rows: Iterable[Row]) -> Iterator[Paired]:
    for where, row in rows:
        chosen, rejected = (messages_field(row, side, where) for side in ("chosen", "rejected"))
        yield where, row, _same_start(chosen, rejected)


def _transcripts(rows: Iterable[Row]) -> Iterator[Paired]:
    for where, row in rows:
        chosen, rejected = (_turns(text_field(row, side, where), where) for side in ("chosen", "rejected"))
        yield where, row, _same_start(chosen, rejected)


def _turns(transcript: str, where: str) -> list[tuple[str, str]]:
    r"""(role, content) of each turn of an hh-rlhf text.

    >>> _turns("\n\nHuman: Hi.\n\nAssistant: Hello.", "x")
    [('user', 'Hi.'), ('assistant', 'Hello.')]
    """
    if not transcript.lstrip().startswith(HUMAN.strip()):
        raise DataError(f"{where}: expected a text that starts with {HUMAN.strip()!r} and has marked turns")
    turns: list[tuple[str, str]] = []
    for part in f"\n\n{transcript.lstrip()}".split(HUMAN)[1:]:
        human, *replies = part.split(ASSISTANT)
        turns += [("user", human.strip()), *(("assistant", reply.strip()) for reply in replies)]
    return turns


def _same_start(chosen: Sequence[tuple[str, str]], rejected: Sequence[tuple[str, str]]) -> _Pair | DropReason:
    """The pair of the last turns, which must be replies to the same conversation."""
    sides = (chosen, rejected)
    if not chosen or chosen[:-1] != rejected[:-1] or any(side[-1][0] == "user" for side in sides):
        return DropReason.PROMPTS_DIFFER
    return _Pair(conversation(chosen[:-1]), chosen[-1][1], rejected[-1][1])


def conversation(turns: Sequence[tuple[str, str]]) -> str:
    r"""The question that a conversation asks: its only turn, or all turns with their speakers.

    >>> conversation([("user", "Hi."), ("assistant", "Yes?"), ("user", "1+1?")])
    'User: Hi.\n\nAssistant: Yes?\n\nUser: 1+1?'
    """
    if len(turns) == 1:
        return turns[0][1]
    return "\n\n".join(f"{role.capitalize()}: {content}" for role, content in turns)


def _pairs(rows: Iterable[Row]) -> Iterator[Paired]:
    for where, row in rows:
        question, chosen, rejected = (
            text_field(row, name, where) for name in ("prompt", "chosen", "rejected")
        )
        yield where, row, _Pair(question, chosen, rejected)


def _lists(rows: Iterable[Row]) -> Iterator[Paired]:
    for where, row in rows:
        question = text_field(row, "prompt", where)
        for chosen in texts_field(row, "chosen", where):
            for rejected in texts_field(row, "rejected", where):
                yield where, row, _Pair(question, chosen, rejected)


LAYOUTS: Mapping[str, Callable[[Iterable[Row]], Iterator[Paired]]] = {
    "helpsteer2": _helpsteer2,
    "ultrafeedback": _ultrafeedback,
    "binarized": _binarized,
    "messages": _messages,
    "transcripts": _transcripts,
    "pairs": _pairs,
    "lists": _lists,
}
"""The readers of the table above."""
