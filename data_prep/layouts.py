"""Where each public set keeps its prompt and its gold: layouts as data, and the one reader for all of them.

Knows field names and how a gold is cut out of a field; does not know where rows come from or whether a gold
can be verified. A set with a new layout is a new `Layout`, from the config (`dataset=jsonl`) or from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from data_prep.drops import DropReason
from rewards.errors import ConfigError, DataError
from rewards.marks import find_boxes
from rewards.records import gold_field, id_field, text_field
from rewards.types import ANSWER_TYPES, AnswerType, Problem

GoldStyle = Literal["plain", "hashes", "boxed"]
"""plain: the whole field; hashes: what follows the last `####`; boxed: the inside of the last `\\boxed{}`."""

HASHES = "####"


@dataclass(frozen=True, slots=True)
class GoldField:
    """A field that may hold the gold, and how to cut the gold out of it."""

    name: str
    style: GoldStyle = "plain"

    def __post_init__(self) -> None:
        if self.style not in get_args(GoldStyle):
            raise ConfigError(f"gold style {self.style!r}: expected one of {', '.join(get_args(GoldStyle))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows of one set become problems.

    prompt names the fields whose texts, joined by a space, are the prompt. gold lists the places of the gold:
    the first one that a row has is read. id, where given, names the field of the identifier; without it rows
    are numbered. hub and subset are the set's place on the Hugging Face hub.
    """

    name: str
    prompt: tuple[str, ...]
    gold: tuple[GoldField, ...]
    id: str | None = None
    answer_type: AnswerType = "auto"
    hub: str | None = None
    subset: str | None = None

    def __post_init__(self) -> None:
        if not self.prompt or not all(self.prompt):
            raise ConfigError("fields.prompt: expected the name of at least one field")
        if self.answer_type not in ANSWER_TYPES:
            raise ConfigError(f"answer_type={self.answer_type}: expected one of {', '.join(ANSWER_TYPES)}")


LAYOUTS: Mapping[str, Layout] = {
    # Cobbe et al. 2021, arXiv 2110.14168: the last line of the answer is `#### 18`.
    "gsm8k": Layout(
        name="gsm8k",
        prompt=("question",),
        gold=(GoldField("answer", "hashes"),),
        answer_type="number",
        hub="openai/gsm8k",
        subset="main",
    ),
    # Hendrycks et al. 2021, arXiv 2103.03874: the last box of the solution; MATH-500 has an `answer` as well.
    "math": Layout(
        name="math",
        prompt=("problem",),
        gold=(GoldField("answer"), GoldField("solution", "boxed")),
        hub="DigitalLearningGmbH/MATH-lighteval",
    ),
}


def read_row(row: Mapping[str, object], layout: Layout, where: str, number: int) -> Problem | DropReason:
    """One row as a problem, or why it is none.

    Args:
        row: the row's fields.
        layout: where to find what.
        where: names the row in errors, such as `train.jsonl, line 7`.
        number: counted from 1; makes the identifier of a row whose layout names no field for it.

    Raises:
        DataError: a field of the layout is missing or holds something else than text (or, as gold, a number
            or a list of texts): the row is of another layout, and so are probably all others.
    """
    prompt = " ".join(_prompt_text(row, name, where) for name in layout.prompt).strip()
    if not prompt:
        return DropReason.NO_PROMPT
    gold = _gold(row, layout, where)
    if not gold:
        return DropReason.NO_GOLD
    identifier = f"{layout.name}-{number:06d}" if layout.id is None else _identifier(row, layout.id, where)
    return Problem(
        id=identifier, prompt=prompt, gold=gold, answer_type=layout.answer_type, source=layout.name
    )


def gold_after_hashes(text: str) -> str:
    """What follows the last `####`, or "".

    >>> gold_after_hashes("6 * 7 = <<6*7=42>>42\\n#### 42")
    '42'
    """
    _, mark, gold = text.rpartition(HASHES)
    return gold.strip() if mark else ""


def _gold(row: Mapping[str, object], layout: Layout, where: str) -> tuple[str, ...]:
    place = next((place for place in layout.gold if place.name in row), None)
    if place is None:
        raise _missing(row, " or ".join(place.name for place in layout.gold), where)
    golds = tuple(_cut(gold, place.style) for gold in gold_field(row, place.name, where))
    return golds if all(golds) else ()


def _cut(text: str, style: GoldStyle) -> str:
    match style:
        case "plain":
            return text.strip()
        case "hashes":
            return gold_after_hashes(text)
        case "boxed":
            boxes = find_boxes(text)
            return (boxes[-1].content or "").strip() if boxes else ""


def _prompt_text(row: Mapping[str, object], name: str, where: str) -> str:
    if name not in row:
        raise _missing(row, name, where)
    return text_field(row, name, where, default="").strip()


def _identifier(row: Mapping[str, object], name: str, where: str) -> str:
    if row.get(name) is None:
        raise _missing(row, name, where)
    return str(id_field(row, name, where))


def _missing(row: Mapping[str, object], name: str, where: str) -> DataError:
    return DataError(
        f"{where}: no field {name!r}; the row has {', '.join(sorted(row)) or 'no fields'}: "
        "with dataset=jsonl set fields.prompt, fields.gold and fields.id to its names"
    )
