"""One torch thread, whatever the caller set: a busy second core makes steps many times slower."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def program_env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of programs under test: this checkout's code, one cache for the whole session.

    Data and cold starts are cached as for a user's runs, so that equal ones are made once.
    """
    base = tmp_path_factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "PLUMBLINE_CACHE": str(session / "plumbline-cache"),
        "COLUMNS": "160",  # the width of a terminal must not decide where a line is cut
    }
