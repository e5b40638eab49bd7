"""A run's directory: made exclusively, locked while a process works in it, found again after a kill.

Knows names, the manifest, the lock and what finished means; nothing of what training writes into it.
`outputs/<label>-<date>-<config hash>/` holds a single run, `outputs/<label>-<config hash>/` a job of a sweep:
the same job always goes to the same place, so a finished one is skipped and a broken one continued.
The lock is flock(2): the system drops it when its process dies, however it dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpo.circumstances import circumstances
from grpo.output_dir import make_folder
from rewards.durable import write_json, write_text
from rewards.errors import ConfigError, EngineError


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run is, before it has a directory.

    config_text: the resolved config as yaml, written to config.yaml. config_hash: of the part of it that
    decides the result (see `grpo.config.config_hash`). scorer_versions: scorer name -> version.
    """

    label: str
    config_text: str
    config_hash: str
    seed: int
    scorer_versions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a finished run leaves in summary.json.

    seconds: of all steps. before, after: held-out metrics by name, around the reinforcement phase. reward:
    mean reward of the last step, None when nothing was scored.
    """

    steps: int
    seconds: float
    before: Mapping[str, float]
    after: Mapping[str, float]
    reward: float | None


_SUMMARY_FIELDS = tuple(field.name for field in fields(RunSummary))


class RunDir:
    """One run's directory. `note` says in a sentence what was found and where the run goes on.

    A context manager: leaving it gives the lock back. `resumed`: there was an earlier, unfinished process.
    """

    def __init__(self, path: Path, note: str, *, resumed: bool = False, lock: int | None = None) -> None:
        self.path = path
        self.note = note
        self.resumed = resumed
        self._lock = lock

    @property
    def checkpoints(self) -> Path:
        """Where `grpo.checkpoint` keeps its folders."""
        return self.path / "checkpoints"

    def summary(self) -> RunSummary | None:
        """What `mark_finished` wrote, or None while the run is not finished."""
        return read_summary(self.path)

    def mark_finished(self, summary: RunSummary) -> None:
        """Writes summary.json: from now on the run is finished. Refuses numbers that are not finite."""
        write_json(self.path / "summary.json", {"finished": _now(), **asdict(summary)})

    def close(self) -> None:
        """Gives the lock back; a second call does nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_run(output_dir: Path, record: RunRecord, resume: str = "auto") -> RunDir:
    """Finds or makes the directory of a single run and locks it.

    Args:
        output_dir: the folder of all runs; made if missing.
        record: what the run is.
        resume: `auto` continues the newest unfinished, unlocked run of this label and config, else anew;
            `never` starts anew; anything else is the path of the run to continue. A finished run given by
            path comes back unlocked, with its `summary()`.

    Raises:
        ConfigError: the path is no run directory, or of another config; output_dir can be no folder.
        EngineError: another process is working in the path.
    """
    if resume == "never":
        return _create(output_dir, record, "resume=never")
    if resume != "auto":
        return _continue_path(Path(resume), record)
    found = find_resumable(output_dir, record)
    if found is None:
        return _create(
            output_dir, record, f"no unfinished run of config {record.config_hash} in {output_dir}"
        )
    _note_resumed(found.path)
    return found


def open_job(output_dir: Path, record: RunRecord) -> RunDir:
    """The directory of a sweep's job, named by label and config hash alone.

    A finished job comes back unlocked with its `summary()`: the caller skips it. A broken one is resumed.

    Raises:
        EngineError: another process is working on this very job.
    """
    path = (output_dir / f"{_file_name(record.label)}-{record.config_hash}").absolute()
    if read_summary(path) is not None:
        return RunDir(path, f"{path}: finished earlier, skipped")
    make_folder(path)
    lock = _lock(path)
    if lock is None:
        raise _held(path)
    if read_summary(path) is not None:  # finished by another process between the look and the lock
        os.close(lock)
        return RunDir(path, f"{path}: finished earlier, skipped")
    if read_manifest(path) is None:
        _write_records(path, record)
        return RunDir(path, f"{path}: new job", lock=lock)
    _note_resumed(path)
    return RunDir(path, f"{path}: found unfinished, continued", resumed=True, lock=lock)


def find_resumable(output_dir: Path, record: RunRecord) -> RunDir | None:
    """The newest unfinished run of this label and config that no process holds, locked for the caller."""
    candidates = sorted(_unfinished(output_dir, record), reverse=True)
    for _, path in candidates:
        lock = _lock(path)
        if lock is None:
            continue
        if read_summary(path) is None:
            note = f"{path}: found unfinished (config {record.config_hash}), continued"
            return RunDir(path, note, resumed=True, lock=lock)
        os.close(lock)
    return None


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of a run directory, or None where there is none yet."""
    return _read_json(path / "manifest.json")


def read_summary(path: Path) -> RunSummary | None:
    """The summary of a finished run, or None."""
    content = _read_json(path / "summary.json")
    return None if content is None else RunSummary(**{name: content[name] for name in _SUMMARY_FIELDS})


def create_folder(parent: Path, name: str) -> Path:
    """Makes `parent/name`, or the first free of `name-2`, `name-3`, ...: no other process gets the same."""
    parent = parent.absolute()
    make_folder(parent)
    for attempt in count(1):
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("count() does not end")


def _create(output_dir: Path, record: RunRecord, why: str) -> RunDir:
    """A new directory, locked before it gets its manifest: nobody resumes what is only being made."""
    date = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path = create_folder(output_dir, f"{_file_name(record.label)}-{date}-{record.config_hash}")
    lock = _lock(path)
    if lock is None:
        raise _held(path)
    _write_records(path, record)
    return RunDir(path, f"{path}: new run ({why})", lock=lock)


def _continue_path(path: Path, record: RunRecord) -> RunDir:
    """The run that `resume=<path>` names."""
    path = path.absolute()
    manifest = read_manifest(path)
    if manifest is None:
        raise ConfigError(
            f"resume={path}: expected auto, never or a run directory, and there is no manifest.json in it"
        )
    if manifest["config_hash"] != record.config_hash:
        raise ConfigError(
            f"resume={path}: that run has config {manifest['config_hash']}, this command "
            f"{record.config_hash}; give the options of its config.yaml, or start anew with resume=never"
        )
    if read_summary(path) is not None:
        return RunDir(path, f"{path}: finished earlier, nothing to do")
    lock = _lock(path)
    if lock is None:
        raise _held(path)
    _note_resumed(path)
    return RunDir(path, f"{path}: unfinished (resume=path), continued", resumed=True, lock=lock)


def _unfinished(output_dir: Path, record: RunRecord) -> Iterator[tuple[str, Path]]:
    """(creation time, path) of the unfinished runs of a label and config."""
    asked = (record.label, record.config_hash)
    for manifest_file in output_dir.absolute().glob("*/manifest.json"):
        path = manifest_file.parent
        manifest = _read_json(manifest_file) or {}
        if (manifest.get("label"), manifest.get("config_hash")) == asked and read_summary(path) is None:
            yield str(manifest.get("created", "")), path


def _lock(path: Path) -> int | None:
    """The descriptor that holds the directory's lock, or None when another process holds it."""
    descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
    return descriptor


def _held(path: Path) -> EngineError:
    holder = (path / ".lock").read_text(encoding="utf-8") or "another process"
    return EngineError(f"{path}: {holder} is working here; wait for it or stop it, then start again")


def _write_records(path: Path, record: RunRecord) -> None:
    write_text(path / "config.yaml", record.config_text)
    write_json(
        path / "manifest.json",
        {
            "label": record.label,
            "config_hash": record.config_hash,
            "seed": record.seed,
            "scorer_versions": dict(record.scorer_versions),
            "created": _now(),
            **circumstances(),
            "resumed": [],
        },
    )


def _note_resumed(path: Path) -> None:
    """Adds time, command and versions of the continuing process to the manifest."""
    manifest = read_manifest(path)
    assert manifest is not None
    manifest["resumed"].append({"at": _now(), **circumstances()})
    write_json(path / "manifest.json", manifest)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise EngineError(
            f"{path} is not json ({error}): remove the directory, or restore the file"
        ) from error


def _file_name(label: str) -> str:
    """A label as part of a file name that needs no quotes in a shell or in a Hydra override."""
    return re.sub(r"[^\w.+-]+", "_", label)[:80] or "run"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
