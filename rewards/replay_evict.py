"""Which groups a replay buffer keeps when there are more than it may hold.

Pure: a function of the shards that are there and of nothing else, so that a folder opened again keeps what
the running buffer kept. What is evicted never comes back, and taking evicted groups away changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewards.replay_draw import mix64, stream_key
from rewards.replay_index import ShardIndex

Eviction = Literal["age", "reservoir"]
_STREAM = 0x65766963
"""Keeps these keys apart from those of draws."""


def kept_groups(
    shards: Sequence[ShardIndex], capacity: int | None, eviction: Eviction, seed: int
) -> list[NDArray[np.bool_]]:
    """(groups,) of each shard: which are kept. The last shard, the newest round, always is.

    capacity: groups of the other shards that are kept, None for all. "age" keeps the latest; "reservoir" a
    uniform sample without replacement of all there ever were: each group has a fixed random key, and the
    smallest keys stay (bottom-k sampling).
    """
    kept = [np.ones(len(shard.questions), dtype=np.bool_) for shard in shards]
    past = shards[:-1]
    total = sum(len(shard.questions) for shard in past)
    if capacity is None or total <= capacity:
        return kept
    if eviction == "age":
        ranks = np.arange(total)[::-1]
    else:
        ranks = np.concatenate([_keys(shard, seed) for shard in past])
    chosen = np.zeros(total, dtype=np.bool_)
    chosen[np.argsort(ranks, kind="stable")[:capacity]] = True
    ends = np.cumsum([len(shard.questions) for shard in past])
    return [*np.split(chosen, ends[:-1]), kept[-1]]


def _keys(shard: ShardIndex, seed: int) -> NDArray[np.uint64]:
    places = np.arange(len(shard.questions), dtype=np.uint64)
    return mix64(places ^ stream_key(seed, _STREAM, shard.round))
