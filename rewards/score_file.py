"""The score file on disk: appended chunk by chunk, and continued after any kind of end.

Beside `scores.jsonl` lies `scores.jsonl.run.json`: the settings that made it, and a digest of the input lines
scored so far. A run continues a file only when both still hold; it never mixes two rewards or two inputs in
one file. Knows bytes and lines, not how text is judged.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, cast

from rewards.chunks import Chunk, line_digest, line_id
from rewards.columns import Fields
from rewards.errors import ConfigError, DataError
from rewards.records import decode_record, score_from_record
from rewards.tally import Tally

_SECONDS_BETWEEN_STATES = 2.0
_BLOCK = 1 << 16


class Sink(Protocol):
    """Where output lines go."""

    def append(self, lines: Sequence[bytes], digests: Sequence[bytes]) -> None:
        """Takes output lines, each ending in a newline, and the digests of their input lines."""
        ...


class StandardOutput:
    """Output lines to stdout; nothing to continue."""

    def append(self, lines: Sequence[bytes], digests: Sequence[bytes]) -> None:
        """Writes the lines at once."""
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()


class ScoreFile:
    """A score file open for appending, locked against a second run. Use as a context manager.

    settings: what the scores depend on, as plain JSON values; compared when a file is continued. source:
    where the input lies, kept for people and comparisons. Raises ConfigError when the file was made with
    other settings, or nobody knows with which; such a file keeps every byte. ConfigError also where no file
    can be written.
    """

    def __init__(self, path: str, settings: Mapping[str, Any], source: str, overwrite: bool) -> None:
        self.path = Path(path)
        self._state_path = self.path.with_name(self.path.name + ".run.json")
        self._settings, self._source = settings, source
        self._digest = hashlib.blake2b(digest_size=16)
        self._lines = 0
        self._saved_lines, self._saved_digest = 0, ""
        self._saved_at = 0.0
        self._checked = False
        with ExitStack() as undo:
            self._handle: IO[bytes] = undo.enter_context(_open_to_append(self.path))
            self._lock()
            if overwrite:
                self._handle.truncate(0)
            if self._handle.seek(0, os.SEEK_END):
                self._check_state()
                _truncate_torn_line(self._handle)  # only now known to be ours to cut
            else:
                self._save_state()
            undo.pop_all()  # opened in order: it stays open until __exit__

    def __enter__(self) -> ScoreFile:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Saves the state and closes, whatever ended the run."""
        if self._checked:  # else what is there may not be ours to vouch for
            self._save_state()
        self._handle.close()

    def append(self, lines: Sequence[bytes], digests: Sequence[bytes]) -> None:
        """Appends output lines, flushed to the file; digests are those of their input lines."""
        self._handle.write(b"".join(lines))
        self._handle.flush()
        self._count(digests)
        if time.monotonic() - self._saved_at > _SECONDS_BETWEEN_STATES:
            self._save_state()

    def pick_up(self, chunks: Iterator[Chunk], input_path: str, fields: Fields) -> Resumption:
        """Checks the lines already there against the input, and says where scoring goes on.

        Raises DataError when they are not the scores of this input: other ids, changed lines, fewer lines.
        """
        done = self._present()
        tally = Tally()
        for chunk in chunks:
            of_chunk = Tally()
            for skip, raw in enumerate(chunk.records):
                number = chunk.first + skip
                present = next(done, None)
                if present is None:
                    self._checked = True
                    return Resumption(chain([chunk], chunks), skip, number - 1, tally)
                expected = line_id(input_path, number, raw, fields)
                where = f"{self.path}, line {number}"
                found, score = score_from_record(decode_record(str(self.path), number, present), where)
                if found != expected:
                    raise DataError(
                        f"{where}: scores id {found!r}, but line {number} of {input_path} "
                        f"is id {expected!r}: not the input that was scored; overwrite=true starts again"
                    )
                of_chunk.add(score)
                self._count([line_digest(raw)])
                if self._lines == self._saved_lines and self._digest.hexdigest() != self._saved_digest:
                    raise DataError(
                        f"{input_path}: the first {number:,} lines have changed since {self.path} was made "
                        "from them; overwrite=true starts again"
                    )
            tally.merge(of_chunk)
        if next(done, None) is not None:
            raise DataError(
                f"{self.path}: holds more lines than the {self._lines:,} to be scored of {input_path}: "
                "the input is shorter now, or limit is set; overwrite=true starts again"
            )
        self._checked = True
        return Resumption(iter(()), 0, self._lines, tally)

    def _present(self) -> Iterator[bytes]:
        with self.path.open("rb") as handle:
            yield from handle

    def _count(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._digest.update(digest)
            self._lines += 1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise ConfigError(f"output={self.path}: another run is writing this file") from err

    def _check_state(self) -> None:
        try:
            state = cast(dict[str, Any], json.loads(self._state_path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as err:
            raise ConfigError(
                f"output={self.path}: holds lines, but {self._state_path.name}, which tells how they were "
                "made, is missing or broken: give another output, or overwrite=true"
            ) from err
        changes = _changes(state["settings"], self._settings)
        if changes:
            raise ConfigError(
                f"output={self.path}: was made with other settings ({'; '.join(changes[:5])}): "
                "give another output, or overwrite=true"
            )
        self._saved_lines, self._saved_digest = state["lines"], state["digest"]

    def _save_state(self) -> None:
        self._handle.flush()
        os.fsync(self._handle.fileno())
        state = {
            "input": self._source,
            "lines": self._lines,
            "digest": self._digest.hexdigest(),
            "settings": self._settings,
        }
        beside = self._state_path.with_name(self._state_path.name + ".tmp")
        beside.write_text(json.dumps(state, indent=1), encoding="utf-8")
        beside.replace(self._state_path)
        self._saved_at = time.monotonic()


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where scoring goes on: the chunks left, and how many lines of the first of them are already written.

    lines: how many input lines are done; tally: the counts of the whole chunks among them.
    """

    chunks: Iterator[Chunk]
    skip: int
    lines: int
    tally: Tally


def _open_to_append(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b")
    except OSError as err:
        raise ConfigError(
            f"output={path}: cannot be written ({err.strerror or err}): give the name of a .jsonl file in a "
            "folder of yours"
        ) from err


def _truncate_torn_line(handle: IO[bytes]) -> None:
    """Cuts off what follows the last newline: a line that a killed run had begun."""
    end = size = handle.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        handle.seek(start)
        newline = handle.read(end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        handle.truncate(end)


def _changes(before: object, now: object, name: str = "") -> list[str]:
    """One entry for each setting that differs: `reward.format.weight was 0.1, now 0.2`."""
    if isinstance(before, dict) and isinstance(now, Mapping):
        old, new = cast(Mapping[str, object], before), cast(Mapping[str, object], now)
        return [
            change
            for key in dict.fromkeys([*old, *new])
            for change in _changes(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    # the file holds what JSON keeps: a tuple reads back as a list
    if before == json.loads(json.dumps(now)):
        return []
    return [f"{name} was {json.dumps(before)}, now {json.dumps(now)}"]
