"""Memory that is freed and asked for again: kept by the process, not handed back to the system each time.

A training step on a CPU frees and asks for the same large buffers again and again. The C library maps each of
them anew, and the system clears every page of it: a tenth of a step's processor time. Knows nothing else.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The names of mallopt(3) for these numbers: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD."""
MOST = 2**31 - 1


def keep_freed_memory() -> None:
    """Lets glibc serve buffers of every size from its heap and keep what is freed; elsewhere does nothing.

    For the whole process. What it holds stays what it held at most.
    """
    if platform.libc_ver()[0] == "glibc":
        allocator = ctypes.CDLL(None)
        for parameter in (TRIM_THRESHOLD, MMAP_THRESHOLD):
            allocator.mallopt(parameter, MOST)
