r"""Runs functions on untrusted input in killable child processes with CPU, wall-clock and memory limits.

    outcomes = run_isolated("package.module:function", items)   # one Outcome an item, in order

A worker is a bare `python -c` child that talks pickles over its pipes (rewards.worker). It is no
multiprocessing or pebble process, and for these reasons no such pool would do: those refuse to start inside
daemonic processes (torch DataLoader workers), and under spawn or forkserver they import the caller's
`__main__` into every worker, which in a training script means torch, more than the memory limit allows.
A bare child works from Jupyter, Ray tasks, asyncio and any thread, and never forks a CUDA parent.

Who is at fault: the CPU limit and the memory limit depend on the item alone, so overrunning them is the
item's fault (TIMEOUT, MEMORY). The wall-clock limit is only a backstop, since a loaded machine can trip it:
that is ours (WALL_CLOCK), like a worker that dies twice on one item (WORKER_DIED) or a function that raises
(INTERNAL). Workers start on first use, are shared by all threads of the process, are killed and replaced
after an overrun, retire after `RETIRE_AFTER` items and end with the process. POSIX only.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, cast

from rewards.errors import ConfigError
from rewards.types import Reason

RETIRE_AFTER = 2000  # items; caches of a long-lived worker grow into its memory limit
_START_SECONDS = 60.0  # wall clock, for the interpreter and its imports on a loaded machine
_POLL_MILLISECONDS = 1000
_HEADER = 8  # bytes of a frame's length
_NOTE = 300  # characters
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from rewards.worker import main; main()"


@dataclass(frozen=True, slots=True)
class Limits:
    """Per item: seconds of CPU time, seconds from its start in a worker; and MB of address space a worker."""

    cpu_seconds: float = 2.0
    wall_seconds: float = 5.0
    memory_mb: int = 512

    def __post_init__(self) -> None:
        for name, value in (
            ("cpu_seconds", self.cpu_seconds),
            ("wall_seconds", self.wall_seconds),
            ("memory_mb", self.memory_mb),
        ):
            if not value > 0:
                raise ConfigError(f"Limits.{name}={value}: expected > 0")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item: a value (reason None), or why there is none, with a note for people."""

    value: object = None
    reason: Reason | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker is asked: to call target on item."""

    target: str
    item: object


@dataclass(frozen=True, slots=True)
class _Job:
    """What a call asks for: the function, and the modules to import before any item's clock runs."""

    target: str
    modules: tuple[str, ...]


class _DiedError(Exception):
    """The worker ended, or never started; status is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"worker exit status {status}")
        self.status = status


class _OverdueError(Exception):
    """No answer before the deadline."""


class _Worker:
    """One child process and its two pipes. Used by one thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self.served = 0
        self.prepared: set[tuple[str, ...]] = set()  # modules it has imported
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _BOOT,
                json.dumps([str(entry) for entry in sys.path]),
                str(limits.memory_mb),
                str(limits.cpu_seconds),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C at the terminal is the parent's
        )
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._replies = cast("IO[bytes]", self._process.stdout)

    def ask(self, message: object, seconds: float) -> object:
        """The worker's reply; raises _DiedError or _OverdueError."""
        payload = pickle.dumps(message)
        try:
            self._requests.write(len(payload).to_bytes(_HEADER, "big") + payload)
        except BrokenPipeError:
            raise _DiedError(self.kill()) from None
        deadline = time.monotonic() + seconds
        size = int.from_bytes(self._read(_HEADER, deadline), "big")
        return cast("object", pickle.loads(self._read(size, deadline)))

    def _read(self, size: int, deadline: float) -> bytes:
        poller = select.poll()
        poller.register(self._replies, select.POLLIN)
        received = bytearray()
        while len(received) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _OverdueError
            if poller.poll(min(left * 1000, _POLL_MILLISECONDS)):
                chunk = self._replies.read(size - len(received))
                if not chunk:
                    raise _DiedError(self.kill())
                received += chunk
        return bytes(received)

    def kill(self) -> int:
        """Ends and reaps the process, closes its pipes; returns its exit status."""
        self._requests.close()
        self._replies.close()
        try:
            # A process that is ending by itself keeps its own status (which limit it broke).
            return self._process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class _Pool:
    """A fixed number of places for workers; a place is empty until first used and after a kill."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self._limits = limits
        self._size = workers
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._places.put(None)

    def run(self, job: _Job, items: Sequence[object]) -> list[Outcome]:
        if len(items) == 1:
            return [self._run_one(job, items[0])]
        with ThreadPoolExecutor(min(self._size, len(items)), "isolation") as threads:
            return list(threads.map(self._run_one, [job] * len(items), items))

    def _run_one(self, job: _Job, item: object) -> Outcome:
        worker = self._places.get()
        try:
            for attempt in range(2):
                fresh = worker is None
                if worker is None:
                    worker = _Worker(self._limits)
                outcome = self._attempt(worker, job, item)
                if outcome.reason not in (None, Reason.INTERNAL, Reason.TOO_LARGE):
                    worker.kill()
                    worker = None
                    # A worker that has served others may have been short of memory, or ill, before this item.
                    died = outcome.reason is Reason.WORKER_DIED
                    if attempt == 0 and (died or (outcome.reason is Reason.MEMORY and not fresh)):
                        continue
                elif worker.served >= RETIRE_AFTER:
                    worker.kill()
                    worker = None
                return outcome
            raise AssertionError("the second attempt returns")
        except BaseException:
            if worker is not None:
                worker.kill()  # its reply is still to come: it must not answer for another item
                worker = None
            raise
        finally:
            self._places.put(worker)

    def _attempt(self, worker: _Worker, job: _Job, item: object) -> Outcome:
        try:
            if job.modules not in worker.prepared:
                ready = cast("Outcome", worker.ask(job.modules, _START_SECONDS))
                if ready.reason is not None:
                    return Outcome(reason=Reason.INTERNAL, note=f"{job.target}: {ready.note or ready.reason}")
                worker.prepared.add(job.modules)
            worker.served += 1
            return cast("Outcome", worker.ask(Request(job.target, item), self._limits.wall_seconds))
        except _OverdueError:
            return Outcome(reason=Reason.WALL_CLOCK, note=f"no reply in {self._limits.wall_seconds:g} s")
        except _DiedError as death:
            if death.status == -signal.SIGPROF:
                return Outcome(reason=Reason.TIMEOUT, note=f"over {self._limits.cpu_seconds:g} s of CPU time")
            return Outcome(reason=Reason.WORKER_DIED, note=str(death))

    def close(self) -> None:
        """Ends the idle workers; those at work end by themselves when their pipes close."""
        while True:
            try:
                worker = self._places.get_nowait()
            except queue.Empty:
                return
            if worker is not None:
                worker.kill()


_pools: dict[tuple[int, Limits], _Pool] = {}
_pools_lock = threading.Lock()


def run_isolated(
    target: str,
    items: Sequence[object],
    *,
    preload: Sequence[str] = (),
    limits: Limits = Limits(),
    workers: int = 2,
) -> list[Outcome]:
    """Calls `target` ("module:function") on every item in worker processes; one Outcome an item, in order.

    Items and results are pickled. preload names modules that the function imports late, to be loaded before
    any item's clock runs. Returns within about wall_seconds for every round of `workers` items.

    >>> [outcome.value for outcome in run_isolated("math:sqrt", [4.0, 9.0])]
    [2.0, 3.0]
    """
    if workers < 1:
        raise ConfigError(f"workers={workers}: expected >= 1")
    if not items:
        return []
    with _pools_lock:
        pool = _pools.setdefault((workers, limits), _Pool(workers, limits))
    return pool.run(_Job(target, (target.partition(":")[0], *preload)), items)


def close_workers() -> None:
    """Ends this process's idle workers; the next call starts new ones."""
    with _pools_lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _forget_workers() -> None:
    """In a forked child: the workers are the parent's, and a thread that is not here may hold the lock."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


def guarded(function: Callable[[Any], object], item: object) -> Outcome:
    """The boundary, in the child or the caller: whatever the function does to the item becomes an Outcome."""
    try:
        return Outcome(function(item))
    except MemoryError:
        return Outcome(reason=Reason.MEMORY)
    except RecursionError:
        return Outcome(reason=Reason.TOO_LARGE, note="nested too deeply")
    except Exception as error:  # noqa: BLE001 - an unknown failure is ours: reported per item, never raised
        return Outcome(reason=Reason.INTERNAL, note=f"{type(error).__name__}: {error}"[:_NOTE])


atexit.register(close_workers)
os.register_at_fork(after_in_child=_forget_workers)
