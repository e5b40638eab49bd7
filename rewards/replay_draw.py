"""Which completions a refit set takes: from the newest round and, for a fixed share, from the rounds before.

Pure: the same shards and settings give the same rows on every machine. There is no generator whose state a
resumed run would have to bring back; every completion has a key, a hash of (seed, newest round, its round,
its row), and smaller keys go first. Knows index numbers, not files.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewards.replay_index import ShardIndex, Uint64s

Spread = Literal["rounds", "samples"]
Row = tuple[int, int]
"""(position of the shard among those given, row in it)."""

_CHUNK = 1024
_HELD_OUT = 0x68656C64
"""Keeps these keys apart from those of draws."""
_WEYL = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class DrawRules:
    """seed of the run; per_question: completions of one question at most; spread: see ReplaySettings."""

    seed: int
    per_question: int
    spread: Spread


@dataclass(slots=True)
class Choice:
    """What has been taken so far; decides whether a further completion may be."""

    shards: Sequence[ShardIndex]
    per_question: int
    taken: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    of_question: Counter[int] = field(default_factory=Counter[int])

    def accept(self, row: Row) -> bool:
        """Takes the row and says True, unless its text is taken already or its question has its fill."""
        shard = self.shards[row[0]]
        question = int(shard.questions[shard.group_of_row[row[1]]])
        identity = (question, int(shard.texts[row[1]]))
        if identity in self.taken or self.of_question[question] >= self.per_question:
            return False
        self.taken.add(identity)
        self.of_question[question] += 1
        return True


def history_size(n_new: int, history_share: float = 0.1) -> int:
    """How many old completions, beside n_new new ones, make up the share: n_new * share / (1 - share).

    >>> history_size(9000)
    1000
    """
    return round(n_new * history_share / (1 - history_share))


def choose(
    shards: Sequence[ShardIndex],
    allowed: Sequence[NDArray[np.bool_]],
    n: int,
    history_share: float,
    rules: DrawRules,
) -> tuple[list[Row], list[Row]]:
    """(new, old) rows of a set of n; the last shard is the newest round, allowed[i] (groups,) may be drawn.

    New rows come first; if they are too few, the history shrinks with them, so that its share stays. If the
    history is too small, further new rows take its place. What is left open then, nothing may fill.
    """
    choice = Choice(shards, rules.per_question)
    newest = len(shards) - 1
    pools = [_Pool(shards, allowed, places, rules, choice) for places in ([newest], range(newest))]
    n_old = round(n * history_share)
    new = pools[0].take(n - n_old)
    if len(new) < n - n_old:
        n_old = history_size(len(new), history_share)
    old = pools[1].take(n_old)
    new += pools[0].take(n - len(new) - len(old))
    return sorted(new), sorted(old)


def are_held_out(questions: Uint64s, share: float, seed: int) -> NDArray[np.bool_]:
    """Which questions are held out: about the share of all, always the same ones, by their hash and the seed.

    questions: (n,) hashes, as `rewards.replay_records.question_hash` gives them.
    """
    return mix64(questions ^ stream_key(seed, _HELD_OUT)) < np.uint64(round(share * _MASK))


def mix64(values: Uint64s) -> Uint64s:
    """A bijection of 64-bit numbers that looks random: SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = values + np.uint64(_WEYL)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def stream_key(*numbers: int) -> np.uint64:
    """One 64-bit number from several, in order."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = mix64(state ^ np.uint64(number & _MASK))
    return state[0]


class _Pool:
    """The completions of some rounds: those judged right and those judged wrong, each in its order."""

    def __init__(
        self,
        shards: Sequence[ShardIndex],
        allowed: Sequence[NDArray[np.bool_]],
        places: Sequence[int],
        rules: DrawRules,
        choice: Choice,
    ) -> None:
        key = stream_key(rules.seed, shards[-1].round)
        open_rows = {place: allowed[place][shards[place].group_of_row] for place in places}
        counts: dict[int, int] = {}
        self._rows: dict[int, Iterator[Row]] = {}
        for label in (0, 1):
            rows = {
                place: np.flatnonzero(mask & (shards[place].labels == label)).astype(np.int32)
                for place, mask in open_rows.items()
            }
            counts[label] = sum(len(found) for found in rows.values())
            rounds = {place: stream_key(int(key), shards[place].round) for place in places}
            self._rows[label] = _ordered(rows, rounds, rules.spread, choice)
        self._rarer = 0 if counts[0] <= counts[1] else 1

    def take(self, n: int) -> list[Row]:
        """n further rows, half of them right and half wrong as far as there are such; the rarer ones first.

        First, because the limit per question must not be used up by those there are plenty of.
        """
        rare, common = self._rows[self._rarer], self._rows[1 - self._rarer]
        rows = list(islice(rare, (n + 1) // 2))
        rows += islice(common, n - len(rows))
        rows += islice(rare, n - len(rows))
        return rows


def _ordered(
    rows: Mapping[int, NDArray[np.int32]], rounds: Mapping[int, np.uint64], spread: Spread, choice: Choice
) -> Iterator[Row]:
    """The rows that may be taken, taken as they are asked for: rounds in turn, or all by their keys."""
    places = sorted(rows, key=lambda place: int(rounds[place]))
    streams = [_by_key(place, rows[place], rounds[place]) for place in places]
    if spread == "samples":
        return filter(choice.accept, (row for _, row in heapq.merge(*streams)))
    return _in_turn([filter(choice.accept, (row for _, row in stream)) for stream in streams])


def _by_key(place: int, rows: NDArray[np.int32], key: np.uint64) -> Iterator[tuple[int, Row]]:
    """(key, row) of some rows of a shard by ascending key."""
    keys = mix64(rows.astype(np.uint64) ^ key)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    keys, rows = keys[order], rows[order]
    del order
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        for one, row in zip(keys[part].tolist(), rows[part].tolist(), strict=True):
            yield one, (place, row)


def _in_turn(streams: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """One row of each stream in turn, until all are at their end."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for row in stream:
            yield row
            waiting.append(stream)
            break
