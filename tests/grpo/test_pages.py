"""Freed memory that is kept: asked for again, no page of it is mapped anew."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import resource
from grpo.pages import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
print(new_pages())
keep_freed_memory()
new_pages()
print(new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc hands large buffers back at once")
def test_a_large_buffer_is_served_from_what_was_freed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT
    )
    before, after = map(int, done.stdout.split())
    assert before >= 32  # 16384 pages of 4 KB, 32 of 2 MB
    assert after < before / 2
