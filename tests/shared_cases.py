"""Where the shared cases and data lie; tests that need them skip, visibly, where they are not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("PLUMBLINE_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))


def shared(relative: str) -> Path:
    """The path of a shared file; skips the calling test when the folder is not there."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"{path} is not here: set PLUMBLINE_SHARED to the folder of shared cases and data")
    return path


def shared_rows(relative: str) -> list[dict[str, Any]]:
    """The rows of a shared jsonl file; skips the calling test when the folder is not there."""
    return [json.loads(line) for line in shared(relative).read_text(encoding="utf-8").splitlines() if line]
