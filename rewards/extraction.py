"""The records of answer extraction: what was found, by which rung of the ladder, under which settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from rewards.errors import ConfigError
from rewards.types import Reason

Mode = Literal["strict", "lenient"]
Kind = Literal["math", "choice", "text"]


class Rung(StrEnum):
    """The step of the ladder that found the answer."""

    BOX = "box"
    TAGS = "tags"
    HASH = "hash"
    ANNOUNCED = "announced"
    WHOLE = "whole"
    FORMULA = "formula"
    NUMBER = "number"
    CHOICE = "choice"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Extraction:
    """The one answer of a completion; answer is None exactly when reason says why there is none.

    span: half-open character span, in the completion, of the mark or sentence that holds the answer.
    """

    answer: str | None
    rung: Rung
    reason: Reason | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """mode: lenient climbs the whole ladder, strict takes boxes, answer blocks and `####` lines only.

    last_number: whether the lenient ladder ends at the last plain number. max_boxes: more different boxes
    than that are a spray of candidates and earn nothing.
    """

    mode: Mode = "lenient"
    last_number: bool = True
    max_boxes: int = 16

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ConfigError(f"extraction mode={self.mode!r}: expected one of {', '.join(get_args(Mode))}")
        if self.max_boxes < 1:
            raise ConfigError(f"extraction max_boxes={self.max_boxes}: expected >= 1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the gold is: its kind decides how loose text is read, values how many results are required.

    percent: the gold has a percent sign, so that one behind the box belongs to the answer; without, the box
    leaves the sign out on purpose. number: the gold is one number, so that of a formula left in running text,
    `x + y = 42`, the value on the right is meant. spelling: the gold as written, where there is one: a text
    or an announcement that is just this is read whole.
    """

    kind: Kind = "math"
    values: int = 1
    percent: bool = False
    number: bool = False
    spelling: str = ""
