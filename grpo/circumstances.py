"""What a run was started with: command, commit and versions, for its manifest. Knows no config."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from pathlib import Path

_PACKAGES = ("plumbline", "torch", "transformers", "math-verify", "sympy")


def circumstances() -> dict[str, object]:
    """The command line, the commit, and the versions of Python and the packages that decide a result."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "command": shlex.join(sys.orig_argv),
        "git": _git_commit(),
        "versions": versions,
    }


def _git_commit() -> str | None:
    """The commit this code runs from, with `-dirty` where files differ; None outside a checkout of it."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
