"""The same scoring on a Ray cluster: one reader task streams chunks to an actor pool of Ray Data, order kept.

Knows Ray, not scores. A row of the dataset is one pickled chunk, so that Ray's batching cannot move where a
chunk ends: the output is that of rewards.engines to the byte. Every machine must see the input under one
path. Needs the extra `ray`.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator
from typing import Any

from rewards.chunks import Judge, ScoredChunk, iter_chunks
from rewards.errors import ConfigError
from rewards.io import RecordReader

_COLUMN = "pickled"
_READER_CPUS = 0.5
"""Unlike an actor's, so that Ray keeps reading and scoring apart: fused, one actor would do all the work."""


def score_on_ray(
    path: str, judge: Judge, *, lines_done: int, limit: int | None, workers: int
) -> Iterator[ScoredChunk]:
    """Scores the chunks of a file that begin after `lines_done` lines, in order, on `workers` actors.

    Raises ConfigError when Ray is not installed.
    """
    try:
        # Imported here: an extra, and seconds to load; untyped, hence Any.
        ray: Any = importlib.import_module("ray")
        data: Any = importlib.import_module("ray.data")
    except ImportError as err:
        raise ConfigError('engine=ray: Ray is not installed: pip install "plumbline[ray]"') from err
    if not ray.is_initialized():
        ray.init(logging_level="warning", log_to_driver=False)
    context = data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    chunks = data.range(1, override_num_blocks=1).map_batches(
        pickled_chunks,
        fn_kwargs={"path": path, "lines_done": lines_done, "limit": limit},
        num_cpus=_READER_CPUS,
    )
    scored = chunks.map_batches(
        JudgeActor,
        fn_constructor_args=(judge,),
        batch_size=1,
        compute=data.ActorPoolStrategy(size=workers),
    )
    for row in scored.iter_rows():
        yield pickle.loads(row[_COLUMN])


class JudgeActor:
    """What an actor of the pool runs: a judge, built once."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Scores a batch of pickled chunks into a batch of pickled scored chunks."""
        return {_COLUMN: [pickle.dumps(self._judge.score(pickle.loads(row))) for row in batch[_COLUMN]]}


def pickled_chunks(
    _: dict[str, Any], path: str, lines_done: int, limit: int | None
) -> Iterator[dict[str, list[bytes]]]:
    """The chunks of a file that begin after `lines_done` lines, one pickled chunk a batch, as a stream."""
    for chunk in iter_chunks(RecordReader(path), limit):
        if chunk.first > lines_done:
            yield {_COLUMN: [pickle.dumps(chunk)]}
