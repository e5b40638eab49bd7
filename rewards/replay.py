"""The replay buffer: what past rounds sampled, kept for the next training of the reward model.

    buffer = ReplayBuffer(run / "replay", ReplaySettings(seed=0), evaluation=[p.prompt for p in held_out])
    buffer.add(groups)            # as often as wanted during a round
    buffer.finish_round()         # one immutable Parquet shard
    drawn = buffer.draw(len(new) + history_size(len(new)))      # nine parts new, one part history

DeepSeekMath (arXiv 2402.03300, 4.1.4) trains on with "10 % of historical data" and leaves open of what: here
it is a tenth of each refit set. A round becomes readable when its shard is finished; a kill before that loses
that round, which the next opening says, unless a checkpoint kept it (`save_open_round`). Knows nothing of how
texts are judged, of training or of ranks: one process writes a folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from rewards.errors import ConfigError, DataError, EngineError
from rewards.questions import question_hash
from rewards.replay_draw import DrawRules, Row, Spread, are_held_out, choose, history_size
from rewards.replay_evict import Eviction, kept_groups
from rewards.replay_index import (
    ShardIndex,
    find_shards,
    find_unfinished,
    index_shard,
    index_table,
    read_all,
    read_rows,
    shard_path,
    write_shard,
)
from rewards.replay_records import (
    SCHEMA,
    ReplayGroup,
    groups_of,
    rescore,
    sample_of,
    score_of,
    table_of,
)
from rewards.types import Sample, Score

__all__ = [
    "Draw",
    "Drawn",
    "ReplayBuffer",
    "ReplayGroup",
    "ReplaySettings",
    "history_size",
    "is_held_out",
    "question_hash",
    "rescore",
]

pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What is kept, and how it is drawn."""

    seed: int = 0
    capacity: int | None = None
    """Groups of past rounds that are kept; the newest round stands whole beside them. None for all."""
    eviction: Eviction = "age"
    """Which go beyond the capacity: the oldest, or any, so that what stays is a uniform sample of all there
    ever were."""
    spread: Spread = "rounds"
    """Whether history gives every past round the same number of completions, or every completion the same
    chance."""
    per_question: int = 128
    """Completions of one question in a draw at most: twice the paper's group of 64, a new group and as much
    history."""
    heldout_share: float = 0.0
    """Of questions, chosen by their hash, that no draw holds: a refit is measured on them."""

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity < 1:
            raise ConfigError(f"replay.capacity={self.capacity}: expected 1 or more groups, or null for all")
        if self.per_question < 1:
            raise ConfigError(f"replay.per_question={self.per_question}: expected 1 or more")
        if not 0 <= self.heldout_share < 1:
            raise ConfigError(f"replay.heldout_share={self.heldout_share}: expected a share in [0, 1)")
        for name, value, known in (
            ("eviction", self.eviction, get_args(Eviction)),
            ("spread", self.spread, get_args(Spread)),
        ):
            if value not in known:
                raise ConfigError(f"replay.{name}={value}: expected one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One completion of a draw: the verifier's label beside the score it was paid, of reward_version."""

    sample: Sample
    label: bool
    score: Score
    reward_version: str
    round: int


@dataclass(frozen=True, slots=True)
class Draw:
    """A refit set: completions of the newest round and of the rounds before, in the order of their places.

    asked: the n of the draw. Fewer are there when no further completion may be taken.
    """

    new: tuple[Drawn, ...]
    old: tuple[Drawn, ...]
    asked: int

    @property
    def history_share(self) -> float:
        """Of history in what was drawn; 0.0 for an empty draw."""
        return len(self.old) / max(1, len(self.new) + len(self.old))


def is_held_out(prompt: str, settings: ReplaySettings) -> bool:
    """Whether no draw of a buffer with these settings holds a completion of this question."""
    hashes = np.array([question_hash(prompt)], dtype=np.uint64)
    return bool(are_held_out(hashes, settings.heldout_share, settings.seed)[0])


class ReplayBuffer:
    """The groups of a folder of shards.

    Args:
        folder: made when it is not there.
        evaluation: the prompts of held-out problems; a group of one of them is never stored nor drawn.

    Attributes:
        found: sentences on what opening the folder found, for the log; empty when all is well.
        refused: groups that `add` left out because they are evaluation problems.

    Raises:
        DataError: a shard cannot be read or is none of ours.
    """

    def __init__(self, folder: Path, settings: ReplaySettings, evaluation: Iterable[str] = ()) -> None:
        self.folder = folder
        self.settings = settings
        self.refused = 0
        self._evaluation = np.unique(
            np.array([question_hash(prompt) for prompt in evaluation], dtype=np.uint64)
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.found = tuple(_remove_unfinished(folder))
        self._shards = [index_shard(path) for path in find_shards(folder)]
        self._open: list[Any] = []
        self._open_round: int | None = None
        self._open_groups = 0
        self._kept = self._decide()

    @property
    def last_round(self) -> int | None:
        """The newest finished round; None when there is none."""
        return self._shards[-1].round if self._shards else None

    def __len__(self) -> int:
        """Groups kept, of finished rounds."""
        return int(sum(kept.sum() for kept in self._kept))

    def add(self, groups: Sequence[ReplayGroup]) -> None:
        """Takes groups of one round, later than every finished one; they can be drawn once it is finished.

        Raises:
            DataError: the groups are of several rounds, of a finished one, or of another than the open one.
        """
        for group in groups:
            self._open_to(group.round)
        kept = [group for group in groups if not self._is_evaluation(group)]
        self.refused += len(groups) - len(kept)
        if kept:
            self._open.append(table_of(kept, self._open_groups))
            self._open_groups += len(kept)

    def finish_round(self) -> Path | None:
        """Writes the open round as a shard and evicts what is beyond the capacity.

        Returns the shard, or None when nothing was added. A round all of whose groups were refused is a shard
        without rows: the newest round then has nothing to draw, instead of being taken for the one before.
        """
        if self._open_round is None:
            return None
        path, table = shard_path(self.folder, self._open_round), self._open_table()
        write_shard(path, table)
        self._forget_open()
        self._shards.append(index_table(path, table))
        self._kept = self._decide()
        return path

    def draw(self, n: int, history_share: float = 0.1) -> Draw:
        """n completions to train on: round(n * history_share) of past rounds, the others of the newest one.

        Only completions the verifier has judged; in both parts half of them right and half wrong, as far as
        there are such; none twice (same question, same text up to spacing); of a question at most
        `per_question`; never of an evaluation problem or a held-out question. Without history (the first
        round) all n are new; if the newest round has too few, history shrinks with it and keeps its share.
        The same buffer gives the same draw.

        Raises:
            ConfigError: n is negative, or history_share not in [0, 1).
            EngineError: a round is open.
        """
        if n < 0 or not 0 <= history_share < 1:
            raise ConfigError(
                f"draw(n={n}, history_share={history_share}): expected n of 0 or more, a share in [0, 1)"
            )
        if self._open_round is not None:
            raise EngineError(f"replay: round {self._open_round} is open: finish_round() comes before draw()")
        if not self._shards:
            return Draw((), (), n)
        rules = DrawRules(self.settings.seed, self.settings.per_question, self.settings.spread)
        allowed = [
            kept & ~np.isin(shard.questions, self._evaluation) & ~self._held_out(shard)
            for kept, shard in zip(self._kept, self._shards, strict=True)
        ]
        new, old = choose(self._shards, allowed, n, history_share, rules)
        return Draw(tuple(self._read(new)), tuple(self._read(old)), n)

    def groups(self) -> Iterator[ReplayGroup]:
        """Every group kept, by round, read as it is asked for."""
        for shard, kept in zip(self._shards, self._kept, strict=True):
            yield from groups_of(row for row in read_all(shard.path) if kept[row["group"]])

    def held_out_groups(self) -> Iterator[ReplayGroup]:
        """The groups kept that no draw holds, by round; of the shards only these are read."""
        for shard, kept in zip(self._shards, self._kept, strict=True):
            wanted = kept & self._held_out(shard)
            rows = np.flatnonzero(wanted[shard.group_of_row]).tolist()
            yield from groups_of(read_rows(shard.path, rows))

    def rewind(self, last_round: int | None) -> None:
        """Back to the state after a round (None: before the first): for a run resumed from a checkpoint.

        Later shards are deleted, the open round is forgotten; the resumed run writes them again.
        """
        self._forget_open()
        while self._shards and (last_round is None or self._shards[-1].round > last_round):
            self._shards.pop().path.unlink()
        self._kept = self._decide()

    def save_open_round(self, path: Path) -> None:
        """Writes the groups of the open round to a Parquet file, for a checkpoint inside a round."""
        number = -1 if self._open_round is None else self._open_round
        table = self._open_table()
        pq.write_table(table.replace_schema_metadata({"open_round": str(number)}), path)

    def load_open_round(self, path: Path) -> None:
        """Goes on with the open round that `save_open_round` wrote, in place of the present one.

        Raises:
            DataError: the file cannot be read, or its round is finished already: rewind first.
        """
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as err:
            raise DataError(f"{path}: cannot be read as parquet ({str(err).splitlines()[0]})") from err
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        if b"open_round" not in metadata:
            raise DataError(f"{path}: expected a file that save_open_round wrote")
        self._forget_open()
        number = int(metadata[b"open_round"])
        if number >= 0:
            self._open_to(number)
        if table.num_rows:
            self._open = [table.replace_schema_metadata(SCHEMA.metadata)]
            self._open_groups = int(table.column("group")[-1].as_py()) + 1

    def drop_evicted(self) -> list[Path]:
        """Deletes the shards of which nothing is kept and returns them.

        Apart from eviction, because an older checkpoint may still need them: call it when the checkpoint that
        a run would resume from is later than the eviction. What is drawn afterwards is the same.
        """
        pairs = list(zip(self._shards[:-1], self._kept[:-1], strict=True))
        gone = [shard.path for shard, kept in pairs if not kept.any()]
        for path in gone:
            path.unlink()
        self._shards = [shard for shard in self._shards if shard.path not in gone]
        self._kept = self._decide()
        return gone

    def _open_to(self, number: int) -> None:
        last = self.last_round
        if last is not None and number <= last:
            raise DataError(f"replay: round {number} is finished, the last one is {last}: rewind() goes back")
        if self._open_round not in (None, number):
            raise DataError(
                f"replay: a group of round {number} while round {self._open_round} is open: "
                "finish_round() comes first"
            )
        self._open_round = number

    def _open_table(self) -> Any:
        return pa.concat_tables(self._open) if self._open else SCHEMA.empty_table()

    def _forget_open(self) -> None:
        self._open, self._open_round, self._open_groups = [], None, 0

    def _is_evaluation(self, group: ReplayGroup) -> bool:
        return bool(np.isin(np.uint64(question_hash(group.problem.prompt)), self._evaluation))

    def _decide(self) -> list[NDArray[np.bool_]]:
        return kept_groups(self._shards, self.settings.capacity, self.settings.eviction, self.settings.seed)

    def _held_out(self, shard: ShardIndex) -> NDArray[np.bool_]:
        return are_held_out(shard.questions, self.settings.heldout_share, self.settings.seed)

    def _read(self, rows: Sequence[Row]) -> Iterator[Drawn]:
        for place, members in groupby(rows, key=lambda row: row[0]):
            for row in read_rows(self._shards[place].path, [number for _, number in members]):
                yield Drawn(
                    sample_of(row), bool(row["label"]), score_of(row), row["reward_version"], row["round"]
                )


def _remove_unfinished(folder: Path) -> Iterator[str]:
    for path in find_unfinished(folder):
        path.unlink()
        yield f"{path}: a shard that was being written when the run ended: its round is lost and was removed"
