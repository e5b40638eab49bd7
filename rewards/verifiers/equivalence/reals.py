"""Unions of real intervals: union, intersection, difference, with ends compared as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from rewards.verifiers.equivalence.answers import Answer, Items, Piece, Reals, Scalar
from rewards.verifiers.equivalence.nodes import Const, Node, neg
from rewards.verifiers.equivalence.probe import number

_INFINITE = Const("oo")
REAL_LINE = Reals((Piece(neg(_INFINITE), _INFINITE, False, False),))


def interval(
    low: Node, high: Node, low_closed: bool, high_closed: bool, *, inequality: bool = False
) -> Reals:
    """One interval; an infinite end is open whatever bracket stands there."""
    return Reals(
        (
            Piece(
                low,
                high,
                low_closed and place(low) not in (inf, -inf),
                high_closed and place(high) not in (inf, -inf),
            ),
        ),
        inequality=inequality,
    )


def from_points(points: list[Node]) -> Reals:
    """A finite set as intervals of no length; in rising order, doubles dropped."""
    pieces = [Piece(point, point, True, True) for point in points]
    if any(place(point) is None for point in points):
        return Reals(tuple(pieces))
    return _tidy(pieces)


def as_reals(answer: Answer) -> Reals | None:
    """The answer as a set of reals, where it can be one: an interval's brackets, a finite set of numbers."""
    match answer:
        case Reals():
            return answer
        case Items(shape="round" | "square", members=(Scalar(node=low), Scalar(node=high))):
            closed = answer.shape == "square"
            return Reals((Piece(low, high, closed, closed),), brackets=True)
        case Items(shape="set", members=members):
            nodes = [m.node for m in members if isinstance(m, Scalar)]
            return from_points(nodes) if len(nodes) == len(members) else None
        case Scalar(node=Const(name="empty")):
            return Reals(())
        case _:
            return None


def place(end: Node) -> float | None:
    """Where an end lies on the line; None where it is no number."""
    if end == _INFINITE:
        return inf
    if end == neg(_INFINITE):
        return -inf
    return number(end)


def _where(end: Node) -> float:
    found = place(end)
    assert found is not None, "ends are checked to be orderable before sets are combined"
    return found


def _tidy(pieces: list[Piece]) -> Reals:
    """Sorted pieces with those that touch or overlap joined."""
    kept = [p for p in pieces if _where(p.low) < _where(p.high) or (p.low_closed and p.high_closed)]
    kept.sort(key=lambda p: (_where(p.low), not p.low_closed))
    out: list[Piece] = []
    for piece in kept:
        if out and _touch(out[-1], piece):
            last = out[-1]
            end, other = _where(last.high), _where(piece.high)
            high = last if end > other or (end == other and last.high_closed) else piece
            out[-1] = Piece(last.low, high.high, last.low_closed, high.high_closed)
        else:
            out.append(piece)
    return Reals(tuple(out))


def _touch(left: Piece, right: Piece) -> bool:
    end, start = _where(left.high), _where(right.low)
    return start < end or (start == end and (left.high_closed or right.low_closed))


def unite(left: Reals, right: Reals) -> Reals:
    """Union."""
    return replace(_tidy([*left.pieces, *right.pieces]), inequality=left.inequality or right.inequality)


def intersect(left: Reals, right: Reals) -> Reals:
    """Intersection."""
    pieces: list[Piece] = []
    for a in left.pieces:
        for b in right.pieces:
            low = _tighter(a, b, _low_key)
            high = _tighter(a, b, _high_key)
            pieces.append(Piece(low.low, high.high, low.low_closed, high.high_closed))
    kept = [p for p in pieces if _where(p.low) <= _where(p.high)]
    return replace(_tidy(kept), inequality=left.inequality or right.inequality)


def _tighter(left: Piece, right: Piece, key: Callable[[Piece], tuple[float, bool]]) -> Piece:
    return left if key(left) >= key(right) else right


def _low_key(piece: Piece) -> tuple[float, bool]:
    return _where(piece.low), not piece.low_closed


def _high_key(piece: Piece) -> tuple[float, bool]:
    return -_where(piece.high), not piece.high_closed


def subtract(left: Reals, right: Reals) -> Reals:
    """left without right."""
    gaps = REAL_LINE
    for piece in right.pieces:
        outside = Reals(
            (
                Piece(neg(_INFINITE), piece.low, False, not piece.low_closed),
                Piece(piece.high, _INFINITE, not piece.high_closed, False),
            )
        )
        gaps = intersect(gaps, outside)
    return intersect(left, gaps)
