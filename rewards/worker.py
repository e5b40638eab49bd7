"""The child's side of rewards.isolation: reads a request, runs it under limits, writes the reply.

The limits are the kernel's, so that no C code escapes them: memory is RLIMIT_AS, and an item that has spent
its CPU time (user and system) is ended by SIGPROF together with the process, which the parent replaces.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from typing import BinaryIO, cast

from rewards.isolation import Outcome, guarded, resolve

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
        if isinstance(message, str):
            reply = _reply(guarded("rewards.worker:prepare", message))
        else:
            target, item = cast("tuple[str, object]", message)
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            reply = _reply(guarded(target, item))
            signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(len(reply).to_bytes(_HEADER, "big") + reply)
        replies.flush()


def prepare(target: str) -> None:
    """Imports the target, before any item's clock runs."""
    resolve(target)


def _receive(requests: BinaryIO) -> object | None:
    header = requests.read(_HEADER)
    if len(header) < _HEADER:
        return None
    return cast("object", pickle.loads(requests.read(int.from_bytes(header, "big"))))


def _reply(outcome: Outcome) -> bytes:
    """The pickled outcome; a result that cannot be pickled is a failure like any other."""
    packed = guarded("pickle:dumps", outcome)
    return cast("bytes", packed.value) if packed.reason is None else pickle.dumps(packed)
