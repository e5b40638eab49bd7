"""Files that are there whole or not at all, also after a kill or a power cut.

Knows the order of write, fsync and rename; nothing of what is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a file beside `path`, then puts it in place: a reader sees the old file or the new.

    The neighbour is `.writing-<name>`; a kill leaves it behind, and the next write of that name replaces it.
    """
    beside = path.with_name(f".writing-{path.name}")
    write(beside)
    sync(beside)
    os.replace(beside, path)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file whole."""
    write_whole(path, lambda beside: _fill(beside, text))


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes a json object whole; refuses NaN and infinities, which are not json."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sync(path: Path) -> None:
    """Has the system put a file's content, or a folder's list of names, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Syncs every file below `folder`, then the folders, deepest first."""
    entries = sorted(folder.rglob("*"), key=lambda entry: len(entry.parts), reverse=True)
    for entry in entries:
        sync(entry)
    sync(folder)


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
