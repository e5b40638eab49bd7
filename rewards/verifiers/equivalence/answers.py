"""What kinds of answer there are: the records the comparison works on. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewards.verifiers.equivalence.nodes import Node

Shape = Literal["bare", "either", "round", "square", "set"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value; unit is "" where none is written."""

    node: Node
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """subject = value, or subject in a set of values; equation is left minus right where it is one."""

    subject: Node
    value: Answer
    equation: Node | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """Several members: a bare list, alternatives joined by "or", brackets (order counts), or a set."""

    shape: Shape
    members: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval; a point is closed with both ends equal."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Reals:
    """A union of disjoint intervals in rising order (where the ends can be ordered)."""

    pieces: tuple[Piece, ...]
    brackets: bool = False
    """True where it was written as one bracket pair that could also be a tuple or a list."""
    inequality: bool = False
    """True where it was written with inequality signs."""


@dataclass(frozen=True, slots=True)
class Equation:
    """difference = 0."""

    difference: Node


@dataclass(frozen=True, slots=True)
class Inequality:
    """difference > 0 (strict) or >= 0, in several unknowns or of higher degree."""

    difference: Node
    strict: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A matrix, a column or a row."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Parts that must agree one by one under one label: a ratio, a based number, set operations, chains."""

    label: str
    parts: tuple[Answer, ...]
    symmetric: bool = False


Answer = Scalar | Named | Items | Reals | Equation | Inequality | Table | Ordered
