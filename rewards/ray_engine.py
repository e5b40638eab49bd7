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
from rewards.errors import ConfigError, EngineError
from rewards.io import RecordReader

_COLUMN = "pickled"
_ACTOR_CPUS, _READER_CPUS = 0.75, 0.25
"""Together 1, so that as many actors as there are CPUs never starve the reader; and unlike each other, so
that Ray keeps reading and scoring apart: fused, one actor would do all the work."""


def score_on_ray(
    path: str, judge: Judge, *, lines_done: int, limit: int | None, workers: int
) -> Iterator[ScoredChunk]:
    """Scores the chunks of a file that begin after `lines_done` lines, in order, on `workers` actors.

    Raises ConfigError when Ray is not installed, EngineError when the cluster gives up.
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
    chunks = data.from_items([0]).map_batches(
        pickled_chunks,
        fn_kwargs={"path": path, "lines_done": lines_done, "limit": limit},
        num_cpus=_READER_CPUS,
    )
    scored = chunks.map_batches(
        JudgeActor,
        fn_constructor_args=(judge,),
        batch_size=1,
        num_cpus=_ACTOR_CPUS,
        compute=data.ActorPoolStrategy(size=workers),
    )
    try:
        for row in scored.iter_rows():
            yield pickle.loads(row[_COLUMN])
    except ray.exceptions.RayError as err:
        raise EngineError(f"engine=ray: {str(err).strip().splitlines()[-1]}") from err


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
