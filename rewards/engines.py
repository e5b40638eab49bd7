"""Runs a judge over chunks, in order: in this process, or in several at once.

Knows processes, not scores. At most two chunks a worker are in flight: memory does not grow with the input.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait

from rewards.chunks import Chunk, Judge, ScoredChunk
from rewards.errors import EngineError

_IN_FLIGHT_PER_WORKER = 2


def score_here(chunks: Iterable[Chunk], judge: Judge) -> Iterator[ScoredChunk]:
    """Scores in this process."""
    return map(judge.score, chunks)


def score_in_processes(chunks: Iterable[Chunk], judge: Judge, workers: int) -> Iterator[ScoredChunk]:
    """Scores in `workers` spawned processes and yields in the order of the chunks.

    Raises EngineError when a process dies; what was yielded before is complete.
    """
    # spawn: a fork of a process that holds threads or a CUDA context is not safe
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(judge,))
    waiting: deque[Future[ScoredChunk]] = deque()
    try:
        for chunk in chunks:
            with _interrupts_held():
                waiting.append(pool.submit(_score_in_worker, chunk))
            if len(waiting) >= _IN_FLIGHT_PER_WORKER * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as err:
        raise EngineError(
            f"a scoring process died (out of memory, or killed): with workers={workers}, give fewer workers"
        ) from err
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Ctrl-C reaches the whole process group, but is the parent's: a worker started here never gets it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_judge: Judge | None = None
"""What this worker process scores with; set once when it starts."""


def _start_worker(judge: Judge) -> None:
    global _judge
    _judge = judge
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends this worker when its parent was killed: the queue they share would never tell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _score_in_worker(chunk: Chunk) -> ScoredChunk:
    assert _judge is not None
    return _judge.score(chunk)
