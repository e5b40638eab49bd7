"""The folder of all runs: made where it is missing, refused where no run could be kept."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from rewards.errors import ConfigError


def make_folder(path: Path) -> None:
    """Makes the folder of all runs where it is missing. Raises ConfigError where there can be none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(path, error) from error


def check_folder(path: Path) -> None:
    """Raises ConfigError where no run could be kept in the folder; leaves everything as it was."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path)
    try:
        with TemporaryDirectory(dir=path):
            pass
    except OSError as error:
        raise _no_folder(path, error) from error
    finally:
        for folder in missing:
            folder.rmdir()


def _no_folder(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"output_dir={path}: no folder can be made or written there ({error.strerror or error}): give another"
    )
