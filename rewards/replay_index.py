"""The shards of a replay buffer on disk, and what is held of them in memory to draw from.

A shard is one round, `round_000003.parquet`: written beside its place, synced and renamed, never changed. Its
index is eight bytes for each group and thirteen for each completion, made from the shard alone, so there
is no second file that could disagree. Knows nothing of what is kept or drawn.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.durable import sync
from rewards.errors import DataError
from rewards.replay_records import SCHEMA

pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

_NAME = re.compile(r"round_(\d{6,})\.parquet")
_UNFINISHED = ".writing-"
_ROWS_TOGETHER = 256
"""Rows of a row group: what is read at least to have one completion, and held at most while reading."""
_INDEXED = ("round", "group", "question", "text_hash", "label")

Uint64s = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What a draw must know of a shard.

    questions: (groups,) hash of each group's question. group_of_row: (rows,) int32 place of each row's group.
    texts: (rows,) hash of each text. labels: (rows,) int8: 1 right, 0 wrong, -1 where the verifier could not
    tell.
    """

    path: Path
    round: int
    questions: Uint64s
    group_of_row: NDArray[np.int32]
    texts: Uint64s
    labels: NDArray[np.int8]


def shard_path(folder: Path, number: int) -> Path:
    """Where the shard of a round lies."""
    return folder / f"round_{number:06d}.parquet"


def find_shards(folder: Path) -> list[Path]:
    """The finished shards of a folder, by round."""
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=round_of)


def find_unfinished(folder: Path) -> list[Path]:
    """What a kill left of a shard that was being written."""
    names = (path for path in folder.iterdir() if path.name.startswith(_UNFINISHED))
    return sorted(path for path in names if _NAME.fullmatch(path.name.removeprefix(_UNFINISHED)))


def round_of(path: Path) -> int:
    """The round that the name of a shard tells."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise DataError(f"{path}: expected a name such as round_000003.parquet")
    return int(match[1])


def write_shard(path: Path, table: Any) -> None:
    """Writes a table of SCHEMA as a shard: it is there whole or not at all, also after a power cut.

    The bytes depend on the rows alone, not on how many pieces the table was put together from.
    """
    beside = path.with_name(_UNFINISHED + path.name)
    with pq.ParquetWriter(beside, SCHEMA, compression="zstd") as writer:
        for start in range(0, table.num_rows, _ROWS_TOGETHER):
            writer.write_table(table.slice(start, _ROWS_TOGETHER).combine_chunks())
    sync(beside)
    os.replace(beside, path)
    sync(path.parent)


def index_shard(path: Path) -> ShardIndex:
    """Reads the index of a finished shard.

    Raises:
        DataError: the file is none of ours, or belongs to another round than its name says.
    """
    number = round_of(path)
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise DataError(
                    f"{path}: other columns than a replay shard's: expected a file of this version"
                )
            table = file.read(columns=list(_INDEXED))
    except (pa.ArrowException, OSError) as err:
        raise DataError(
            f"{path}: cannot be read as parquet ({str(err).splitlines()[0]}): remove it to go on without"
        ) from err
    if set(table.column("round").unique().to_pylist()) - {number}:
        raise DataError(f"{path}: holds another round than its name says: give it back its name")
    return index_table(path, table)


def index_table(path: Path, table: Any) -> ShardIndex:
    """The index of the shard at a path whose rows are those of a table."""
    groups: NDArray[np.int32] = table.column("group").to_numpy()
    firsts = np.flatnonzero(np.diff(groups, prepend=np.int32(-1)))
    questions: Uint64s = table.column("question").to_numpy()
    labels: NDArray[np.int8] = table.column("label").cast(pa.int8()).fill_null(-1).to_numpy()
    texts: Uint64s = table.column("text_hash").to_numpy()
    return ShardIndex(path, round_of(path), questions[firsts], groups.copy(), texts.copy(), labels.copy())


def read_rows(path: Path, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The rows of a shard at ascending places; of the file, only what holds them is read."""
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        holders = np.searchsorted(ends, rows, side="right").tolist()
        pairs = zip(holders, rows, strict=True)
        for holder, wanted in groupby(pairs, key=lambda pair: pair[0]):
            start = int(ends[holder]) - sizes[holder]
            places = [row - start for _, row in wanted]
            yield from _few_rows(file, holder).take(places).to_pylist()


def read_all(path: Path) -> Iterator[Mapping[str, Any]]:
    """Every row of a shard, in order, a few at a time."""
    with pq.ParquetFile(path) as file:
        for holder in range(file.metadata.num_row_groups):
            yield from _few_rows(file, holder).to_pylist()


def _few_rows(file: Any, holder: int) -> Any:
    # So few rows are read sooner by one thread than many are woken, above all on a busy machine.
    return file.read_row_group(holder, use_threads=False)
