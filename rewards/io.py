"""Files of records: streams jsonl, jsonl.gz, parquet and stdin; reads and writes problems.

Knows how files are opened and cut into records; what is in a record is rewards.records' business. Memory does
not grow with the file: one record (or one small parquet batch) is held at a time, and a line longer than
MAX_LINE_BYTES is reported, not loaded.
"""

from __future__ import annotations

import errno
import gzip
import importlib
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, cast

from rewards.errors import DataError
from rewards.records import (
    BrokenLine,
    RawRecord,
    decode_record,
    json_line,
    problem_from_record,
    problem_to_record,
)
from rewards.types import Problem

STDIN = "-"
MAX_LINE_BYTES = 64 * 2**20
_PARQUET_BATCH_ROWS = 256


class RecordReader:
    """Streams the raw records of one file as (line number from 1, record), undecoded.

    Undecoded, so that decoding can happen where the scoring does. Blank lines at the end of a file are no
    records; elsewhere they are, so that line n of an output belongs to line n of the input. Iterate it once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._done: float = 0.0
        self._total: float | None = None
        self._handle: IO[bytes] | None = None

    def __iter__(self) -> Iterator[tuple[int, RawRecord]]:
        """Raises DataError when the file cannot be opened or its compression is broken."""
        if self.path.endswith(".parquet"):
            return self._parquet_rows()
        return self._lines()

    def share_read(self) -> float | None:
        """How much of the file has been read, 0 to 1; None when its size is unknown (stdin)."""
        if not self._total:
            return None
        done = self._handle.tell() if self._handle and not self._handle.closed else self._done
        return min(1.0, done / self._total)

    def _lines(self) -> Iterator[tuple[int, RawRecord]]:
        number = 0
        blanks = 0
        try:
            with _open_bytes(self.path) as handle:
                if self.path != STDIN:
                    self._handle, self._total = handle, float(os.fstat(handle.fileno()).st_size)
                lines = gzip.GzipFile(fileobj=handle) if self.path.endswith(".gz") else handle
                for raw in _bounded_lines(cast(IO[bytes], lines)):
                    if isinstance(raw, bytes) and not raw.strip():
                        blanks += 1
                        continue
                    for _ in range(blanks):
                        number += 1
                        yield number, b""
                    blanks = 0
                    number += 1
                    yield number, raw
                self._done = self._total or 0.0
        except (gzip.BadGzipFile, EOFError, zlib.error) as err:
            raise DataError(f"{self.path}, after line {number}: the gzip stream is broken ({err})") from err
        except OSError as err:
            raise DataError(f"{self.path}: cannot be read ({err.strerror or err})") from err

    def _parquet_rows(self) -> Iterator[tuple[int, RawRecord]]:
        # Imported here: pyarrow takes a third of a second and only parquet files need it; untyped, hence Any.
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
        number = 0
        try:
            with parquet.ParquetFile(self.path) as table:
                self._total = float(table.metadata.num_rows)
                for batch in table.iter_batches(batch_size=_PARQUET_BATCH_ROWS):
                    for row in batch.to_pylist():
                        number += 1
                        self._done = float(number)
                        yield number, row
        except (arrow.ArrowException, OSError) as err:
            raise DataError(f"{self.path}, after row {number}: cannot be read as parquet ({err})") from err


def iter_jsonl(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, record) of a jsonl, jsonl.gz or parquet file, or of stdin for "-".

    Raises DataError naming file and line at the first record that is not a JSON object.
    """
    name = os.fspath(path)
    for number, raw in RecordReader(name):
        yield number, decode_record(name, number, raw)


def read_problems(path: str | os.PathLike[str]) -> list[Problem]:
    """The problems of a file. Raises DataError naming file, line and field."""
    return list(iter_problems(path))


def iter_problems(path: str | os.PathLike[str]) -> Iterator[Problem]:
    """Streams the problems of a file. Raises DataError naming file, line and field."""
    name = os.fspath(path)
    for number, record in iter_jsonl(name):
        yield problem_from_record(record, f"{name}, line {number}")


def write_problems(path: str | os.PathLike[str], problems: Iterable[Problem]) -> int:
    """Writes problems as `write_records` does and returns how many."""
    return write_records(path, map(problem_to_record, problems))


def write_records(path: str | os.PathLike[str], records: Iterable[Mapping[str, Any]]) -> int:
    """Writes records as jsonl (gzipped when the name ends in .gz) and returns how many.

    The file appears whole or not at all: it is written beside its place and renamed.

    Raises:
        DataError: it cannot be written there.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with _open_to_write(beside, target) as handle:
            # mtime=0 and no name: equal records give equal bytes.
            lines = gzip.GzipFile("", "wb", fileobj=handle, mtime=0) if target.suffix == ".gz" else handle
            for record in records:
                lines.write(json_line(record))
                count += 1
            if lines is not handle:
                lines.close()
        beside.replace(target)
    finally:
        with suppress(OSError):  # what could not be opened is not there
            beside.unlink()
    return count


def _open_to_write(beside: Path, target: Path) -> IO[bytes]:
    """Opens what will become the target, which must not be a folder."""
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        return beside.open("wb")
    except OSError as err:
        raise DataError(
            f"{target}: cannot be written ({err.strerror or err}): give a file in a folder of yours"
        ) from err


def _open_bytes(path: str) -> AbstractContextManager[IO[bytes]]:
    # stdin is not ours to close
    return nullcontext(cast(IO[bytes], sys.stdin.buffer)) if path == STDIN else Path(path).open("rb")


def _bounded_lines(handle: IO[bytes]) -> Iterator[bytes | BrokenLine]:
    """Lines without their end, the byte order mark of the file dropped; too long a line is passed over."""
    first = True
    while raw := handle.readline(MAX_LINE_BYTES + 1):
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = handle.readline(MAX_LINE_BYTES)
            yield BrokenLine(f"longer than {MAX_LINE_BYTES // 2**20} MiB: expected one JSON object per line")
        else:
            if first:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            yield raw.rstrip(b"\r\n")
        first = False
