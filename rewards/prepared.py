"""Prepared data, made on first use by `python -m data_prep.run` and kept.

Knows the command and the cache; nothing of what is in the files. The command runs as a process of its own,
because preparing and training meet in files only. Jobs that start together may share a cache: a folder in it
appears whole, by a rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from rewards.errors import DataError

CACHE_VARIABLE = "PLUMBLINE_CACHE"
PREPARED_FILE = "problems.jsonl"
"""The one file in the folder of a prepared set; arithmetic has train, eval and coldstart .jsonl instead."""

Setting = str | int | float | None


def cache_folder() -> Path:
    """Where prepared data is kept: $PLUMBLINE_CACHE, or ~/.cache/plumbline."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/plumbline").expanduser()


def ensure_prepared(settings: Mapping[str, Setting], cache: Path) -> Path:
    """The folder with what `python -m data_prep.run` makes of these settings; made if it is not there.

    Args:
        settings: overrides of conf/data_prep.yaml, such as {"dataset": "gsm8k", "split": "test"}; without
            output. They are the cache's key, with the version of the code that prepares and, when source is a
            file, its size and time of change.
        cache: the folder of all prepared data; two jobs may share it and start together.

    Raises:
        DataError: preparing failed; its own message is on stderr.
    """
    dataset = str(settings["dataset"])
    folder = cache / "data" / f"{dataset}-{_cache_key(settings)}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _run_data_prep(settings, partial if dataset == "arithmetic" else partial / PREPARED_FILE)
        try:
            partial.rename(folder)
        except OSError:
            # Another job put the same data there first; anything else is an error.
            if not folder.is_dir():
                raise
        print(f"kept as {folder}", file=sys.stderr)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _cache_key(settings: Mapping[str, Setting]) -> str:
    facts: dict[str, object] = {"code": _code_version(), **settings}
    source = Path(str(settings.get("source") or "")).expanduser()
    if source.is_file():
        facts["source"] = str(source.resolve())
        facts["source_version"] = [source.stat().st_size, source.stat().st_mtime_ns]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _code_version() -> str:
    """Names the code that prepares, so that a cache is not used after it has changed; does not import it."""
    spec = find_spec("data_prep")
    if spec is None or spec.origin is None:
        raise DataError("the package data_prep is not installed: install the project, pip install -e .")
    digest = hashlib.sha256()
    for source in sorted(Path(spec.origin).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _run_data_prep(settings: Mapping[str, Setting], output: Path) -> None:
    overrides = [f"{name}={_quoted(value)}" for name, value in {**settings, "output": str(output)}.items()]
    command = [sys.executable, "-m", "data_prep.run", *overrides]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    # Its table goes to stderr: our own stdout is for what our caller prints.
    print(run.stdout, end="", file=sys.stderr)
    if run.returncode != 0:
        raise DataError(
            f"{' '.join(command[1:])}: preparing the data failed with exit status {run.returncode}, see above"
        )


def _quoted(value: Setting) -> str:
    """A value in the grammar of Hydra's overrides; text in quotes, so that any path passes."""
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
