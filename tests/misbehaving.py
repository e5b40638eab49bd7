"""Functions that the isolated workers are asked to run: good, bad and hostile (imported in the children)."""

import contextlib
import os
import signal
import sys
import time


def double(item: int) -> int:
    return 2 * item


def misbehave(item: str) -> object:
    """One of the ways in which judged code goes wrong."""
    match item:
        case "spin":
            while True:
                pass
        case "spin in C":
            return len(str(7 ** (7**12)))
        case "swallow":
            while True:
                with contextlib.suppress(BaseException):
                    double(1)
        case "sleep":
            time.sleep(60)
        case "nap":
            time.sleep(1.0)
        case "allocate":
            return bytes(2**30)
        case "recurse":
            return misbehave("recurse")
        case "raise":
            raise ValueError("broken on purpose")
        case "unpicklable":
            return lambda: None
        case "die":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "print":
            print("noise", flush=True)
            sys.stdin.read()
        case "hash":
            return hash("text")
        case "pid":
            return os.getpid()
    return item
