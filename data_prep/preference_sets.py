"""Sets of pairs, one completion better than the other; the layout is told by the columns.

| layout | columns | what is paired |
|---|---|---|
| helpsteer2 | prompt, response, helpfulness, ... | two rows of one prompt in sequence, by helpfulness |
| helpsteer3 | context (messages), response1, response2, overall_preference | as preferred |
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
    each_row,
    fields_of,
    messages_field,
    number_field,
    object_field,
    objects_field,
    texts_field,
)
from rewards.errors import DataError
from rewards.labelled import PreferenceExample
from rewards.records import text_field

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
    subset: str = ""


Paired = tuple[str, _Pair | DropReason | DataError]
"""(place for people, what the row there makes)."""


def read_preferences(
    rows: Iterable[Row], rated_margin: bool = False
) -> Iterator[tuple[str, PreferenceExample | DropReason | DataError]]:
    """Reads rows of one layout of the table above.

    Args:
        rows: all of the layout of the first whose columns are of one.
        rated_margin: the difference of the ratings, where there are any, becomes the margin (as in Llama 2,
            Touvron et al. 2023, arXiv:2307.09288, eq. 2); otherwise margins are 0.
    """
    rest = iter(rows)
    for where, row in rest:
        try:
            layout = _layout_of(where, fields_of(row))
        except DataError as error:
            yield where, error
        else:
            pairs = LAYOUTS[layout](chain([(where, row)], rest))
            for number, (place, pair) in enumerate(pairs, start=1):
                yield place, _checked(pair, number, rated_margin)


def _checked(
    pair: _Pair | DropReason | DataError, number: int, rated_margin: bool
) -> PreferenceExample | DropReason | DataError:
    if not isinstance(pair, _Pair):
        return pair
    if not pair.question.strip():
        return DropReason.NO_PROMPT
    if not (pair.chosen.strip() and pair.rejected.strip()):
        return DropReason.EMPTY_COMPLETION
    if pair.chosen == pair.rejected:
        return DropReason.SAME_TEXT
    if pair.gap is not None and pair.gap <= 0:
        return DropReason.TIE if pair.gap == 0 else DropReason.MISRATED
    return _example(pair, number, rated_margin)


def _example(pair: _Pair, number: int, rated_margin: bool) -> PreferenceExample:
    return PreferenceExample(
        pair.question,
        pair.chosen,
        pair.rejected,
        margin=pair.gap if rated_margin and pair.gap is not None else 0.0,
        subset=pair.subset,
        source="preference",
        id=f"preference-{number:06d}",
        meta={} if pair.gap is None else {"gap": f"{pair.gap:g}"},
    )


def _layout_of(where: str, row: Fields) -> str:
    """The name of the layout that a row's columns tell."""
    if {"prompt", "response", "helpfulness"} <= row.keys():
        return "helpsteer2"
    if {"response1", "response2", "overall_preference"} <= row.keys():
        return "helpsteer3"
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
        "response and helpfulness; context, response1, response2 and overall_preference; instruction and "
        "completions; or chosen and rejected"
    )


def _subset(row: Fields) -> str:
    return next((str(row[name]) for name in _SUBSETS if isinstance(row.get(name), str)), "")


def _helpsteer2(rows: Iterable[Row]) -> Iterator[Paired]:
    """Wang et al. 2024, arXiv:2406.08673."""
    waiting: tuple[str, _Pair] | None = None
    for where, one in each_row(rows, _helpful):
        if isinstance(one, DataError):
            yield where, one
        elif waiting is None:
            waiting = where, one
        elif one.question == waiting[1].question:
            yield where, _of_two(waiting[1], one)
            waiting = None
        else:
            yield waiting[0], DropReason.UNPAIRED
            waiting = where, one
    if waiting is not None:
        yield waiting[0], DropReason.UNPAIRED


def _helpful(_: int, where: str, row: Fields) -> Iterator[tuple[str, _Pair]]:
    """Half of a pair: one response, and how helpful it is as the gap."""
    helpfulness, response = number_field(row, "helpfulness", where), text_field(row, "response", where)
    yield where, _Pair(text_field(row, "prompt", where), response, "", helpfulness, _subset(row))


def _of_two(*halves: _Pair) -> _Pair:
    """Two responses to one prompt, the more helpful one chosen."""
    worse, better = sorted(halves, key=lambda half: half.gap or 0.0)
    gap = (better.gap or 0.0) - (worse.gap or 0.0)
    return replace(halves[1], chosen=better.chosen, rejected=worse.chosen, gap=gap)


def _helpsteer3(where: str, row: Fields) -> Iterator[_Pair]:
    """Wang et al. 2025, arXiv:2503.04378: the preference goes from -3, the first is much better, to 3."""
    preference = number_field(row, "overall_preference", where)
    first, second = (text_field(row, name, where) for name in ("response1", "response2"))
    chosen, rejected = (second, first) if preference > 0 else (first, second)
    yield _Pair(conversation(messages_field(row, "context", where)), chosen, rejected, abs(preference))


def _ultrafeedback(where: str, row: Fields) -> Iterator[_Pair | DropReason]:
    """Cui et al. 2023, arXiv:2310.01377."""
    rated: list[tuple[float, str]] = []
    for completion in objects_field(row, "completions", where):
        rating = _mean_rating(object_field(completion, "annotations", where), where)
        if rating is not None:
            rated.append((rating, text_field(completion, "response", where)))
    if len(rated) < 2:
        yield DropReason.UNPAIRED
        return
    # Of equally rated ones the first in the row, so that nothing depends on the texts.
    best = max(rated, key=lambda one: one[0])
    worst = min(rated, key=lambda one: one[0])
    yield _Pair(text_field(row, "instruction", where), best[1], worst[1], best[0] - worst[0])


def _mean_rating(annotations: Fields, where: str) -> float | None:
    """The mean of the aspects' ratings (1 to 5 as texts or numbers, or "N/A"); None when there is none."""
    ratings: list[float] = []
    for aspect in annotations:
        place = f"{where}, field 'annotations', field {aspect!r}"
        judged = object_field(annotations, aspect, where)
        rating = judged.get("Rating")
        if rating is None or rating == "N/A":
            continue
        if not isinstance(rating, str):
            ratings.append(number_field(judged, "Rating", place))
        elif _NUMBER.fullmatch(rating):
            ratings.append(float(rating))
        else:
            raise DataError(f"{place}, field 'Rating': expected a number or N/A, got {rating!r}")
    return fmean(ratings) if ratings else None


def _binarized(where: str, row: Fields) -> Iterator[_Pair | DropReason]:
    """Tunstall et al. 2023, arXiv:2310.16944."""
    gap = number_field(row, "score_chosen", where) - number_field(row, "score_rejected", where)
    for pair in _messages(where, row):
        yield pair if isinstance(pair, DropReason) else replace(pair, gap=gap)


def _messages(where: str, row: Fields) -> Iterator[_Pair | DropReason]:
    chosen, rejected = (messages_field(row, side, where) for side in ("chosen", "rejected"))
    yield _same_start(chosen, rejected)


def _transcripts(where: str, row: Fields) -> Iterator[_Pair | DropReason]:
    chosen, rejected = (_turns(text_field(row, side, where), where) for side in ("chosen", "rejected"))
    yield _same_start(chosen, rejected)


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


def _pairs(where: str, row: Fields) -> Iterator[_Pair]:
    question, chosen, rejected = (text_field(row, name, where) for name in ("prompt", "chosen", "rejected"))
    yield _Pair(question, chosen, rejected)


def _lists(where: str, row: Fields) -> Iterator[_Pair]:
    question = text_field(row, "prompt", where)
    for chosen in texts_field(row, "chosen", where):
        for rejected in texts_field(row, "rejected", where):
            yield _Pair(question, chosen, rejected)


def _by_row(
    read: Callable[[str, Fields], Iterator[_Pair | DropReason]],
) -> Callable[[Iterable[Row]], Iterator[Paired]]:
    """The reader of a layout whose rows are read one by one."""

    def read_row(_: int, where: str, row: Fields) -> Iterator[tuple[str, _Pair | DropReason]]:
        for pair in read(where, row):
            yield where, replace(pair, subset=_subset(row)) if isinstance(pair, _Pair) else pair

    return lambda rows: each_row(rows, read_row)


LAYOUTS: Mapping[str, Callable[[Iterable[Row]], Iterator[Paired]]] = {
    "helpsteer2": _helpsteer2,
    "helpsteer3": _by_row(_helpsteer3),
    "ultrafeedback": _by_row(_ultrafeedback),
    "binarized": _by_row(_binarized),
    "messages": _by_row(_messages),
    "transcripts": _by_row(_transcripts),
    "pairs": _by_row(_pairs),
    "lists": _by_row(_lists),
}
"""The readers of the table above."""
