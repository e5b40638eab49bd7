"""The child's side of rewards.isolation: reads a request, runs it under limits, writes the reply.

The limits are the kernel's, so that no C code escapes them: memory is RLIMIT_AS, and an item that has spent
its CPU time (user and system) is ended by SIGPROF together with the process, which the parent replaces.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO, cast

from rewards.isolation import Outcome, Request, guarded

_HEADER = 8


def main() -> None:
    """Serves until the parent closes the pipe. argv: search path, memory in MB, CPU seconds an item."""
    memory = int(sys.argv[2]) * 2**20
    cpu_seconds = float(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 0)  # what is judged can neither read requests nor print replies
    os.dup2(silence, 1)
    while (message := _receive(requests)) is not None:
        if isinstance(message, Request):
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            reply = _reply(guarded(_call, message))
            signal.setitimer(signal.ITIMER_PROF, 0)
        else:
            reply = _reply(guarded(_load, message))
        replies.write(len(reply).to_bytes(_HEADER, "big") + reply)
        replies.flush()


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        importlib.import_module(module)


def _call(request: Request) -> object:
    module, _, name = request.target.partition(":")
    function = cast("Callable[[object], object]", getattr(importlib.import_module(module), name))
    return function(request.item)


def _receive(requests: BinaryIO) -> object | None:
    header = requests.read(_HEADER)
    if len(header) < _HEADER:
        return None
    return cast("object", pickle.loads(requests.read(int.from_bytes(header, "big"))))


def _reply(outcome: Outcome) -> bytes:
    """The pickled outcome; a result that cannot be pickled is a failure like any other."""
    packed = guarded(pickle.dumps, outcome)
    return cast("bytes", packed.value) if packed.reason is None else pickle.dumps(packed)
