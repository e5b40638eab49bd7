"""Workers from the places people score in: a Ray task, a Jupyter kernel. Skipped where these are missing."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), str(ROOT / "tests")]
SCORE = r"""
from rewards import verify
from rewards.isolation import Limits, run_isolated

right = verify(gold=r"\sin(x)^2", prediction=r"\boxed{\frac{1 - \cos(2x)}{2}}")
wrong = verify(gold=r"\sin(x)^2", prediction=r"\boxed{\frac{1 - \cos(3x)}{2}}")
limits = Limits(cpu_seconds=0.3, wall_seconds=60.0)
outcomes = run_isolated("misbehaving:misbehave", ["spin", "allocate", "fine"], limits=limits)
found = [right.reason, wrong.reason, *(outcome.reason for outcome in outcomes)]
found = [str(reason) for reason in found]
"""
EXPECTED = ["match_symbolic", "mismatch", "timeout", "memory", "None"]


def test_from_a_ray_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")

    def score() -> list[str]:
        names: dict[str, list[str]] = {}
        exec(SCORE, names)
        return names["found"]

    paths = os.pathsep.join(PATHS)
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    try:
        task = ray.remote(score)
        assert ray.get([task.remote(), task.remote()]) == [EXPECTED, EXPECTED]
    finally:
        ray.shutdown()


def test_from_a_jupyter_kernel() -> None:
    """A kernel runs an event loop in its main thread, and its `__main__` is no file."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    cells = [
        f"import sys; sys.path[:0] = {PATHS!r}",
        SCORE,
        "print(found)",
        "await __import__('asyncio').sleep(0)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in [*cells, *cells[1:3]]])
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    printed = ["".join(out["text"] for out in cell["outputs"]) for cell in book["cells"] if cell["outputs"]]
    assert printed == [f"{EXPECTED}\n"] * 2
