"""A file of step labels that takes long to write: appended part by part, and continued after any end.

Beside FILE lies FILE.meta.json with the settings that made it and the number of parts that are whole. Parts
are cut from the input alone and written in order. Of the part in work the file beside it also holds what is
known of each solution so far (`begun`), so that a later run goes on from there. Knows lines and ids, not how
labels come about.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from rewards.durable import write_json
from rewards.errors import ConfigError, DataError
from rewards.records import decode_record, json_line


class LabelFile:
    """The file, open and locked; use it as a context manager.

    Args:
        path: of the file.
        settings: all that its lines depend on, as plain JSON values.

    Raises:
        ConfigError: the file was made with other settings, nobody knows with which, or another run writes it.
        DataError: a line of it is none of ours.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._meta = path.with_name(f"{path.name}.meta.json")
        self._settings: Mapping[str, Any] = json.loads(json.dumps(settings))
        self.parts = 0
        """Parts that are whole."""
        self.begun: Mapping[str, Mapping[str, Any]] = {}
        """What is known of the part in work, by id."""
        self.records: dict[str, dict[str, Any]] = {}
        """The lines that are there, by id."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            self._handle: IO[bytes] = undo.enter_context(path.open("a+b"))
            self._open()
            undo.pop_all()  # all is well: it stays open until __exit__

    def __enter__(self) -> LabelFile:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self._handle.close()

    def append(self, records: Iterable[Mapping[str, Any]], *, whole: bool) -> None:
        """Adds the records that are not there yet; whole says that their part is finished."""
        new = {str(record["id"]): dict(record) for record in records if record["id"] not in self.records}
        self._handle.write(b"".join(json_line(record) for record in new.values()))
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self.records |= new
        if whole:
            self.parts += 1
            self.begun = {}
            self._save({})

    def keep(self, begun: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores what is known of the part in work: plain JSON values by id."""
        self.begun = begun
        self._save({})

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Writes what is known of the whole file beside it."""
        self._save(facts)

    def _open(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"output={self.path}: another run is writing this file") from error
        self._handle.seek(0)
        lines = self._handle.read()
        if lines or self._is_begun():
            self._check_settings()
            whole = lines.rfind(b"\n") + 1  # what follows is a line that a killed run had begun
            self._handle.truncate(whole)
            for number, line in enumerate(lines[:whole].splitlines(), start=1):
                record = decode_record(str(self.path), number, line)
                if not isinstance(record.get("id"), str) or not isinstance(record.get("tokens"), int):
                    raise DataError(f"{self.path}, line {number}: is no line of step labels")
                self.records[record["id"]] = record
        else:
            self._save({})

    def _is_begun(self) -> bool:
        """Whether a run has left work, and no line yet."""
        try:
            return bool(json.loads(self._meta.read_text(encoding="utf-8")).get("begun"))
        except (OSError, ValueError, AttributeError):
            return False

    def _check_settings(self) -> None:
        try:
            meta = cast(dict[str, Any], json.loads(self._meta.read_text(encoding="utf-8")))
            made, self.parts = cast(dict[str, Any], meta["settings"]), int(meta["parts"])
            self.begun = cast(dict[str, dict[str, Any]], meta.get("begun", {}))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"output={self.path}: holds lines, but {self._meta.name}, which tells how they were made, is "
                "missing or broken: give another output"
            ) from error
        names = dict.fromkeys([*made, *self._settings])
        changed = [
            f"{name} was {made.get(name)}, now {self._settings.get(name)}"
            for name in names
            if made.get(name) != self._settings.get(name)
        ]
        if changed:
            raise ConfigError(
                f"output={self.path}: was made with other settings ({'; '.join(changed[:5])}): give another "
                "output"
            )

    def _save(self, facts: Mapping[str, Any]) -> None:
        begun = {"begun": self.begun} if self.begun else {}
        write_json(self._meta, {"settings": self._settings, "parts": self.parts, **facts, **begun})
