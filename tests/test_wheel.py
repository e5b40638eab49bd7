"""The installed wheel works from any folder, with its configuration inside."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest
from training_runs import ROOT, TINY, run_folders

PARTS = ("rewards", "grpo", "data_prep", "conf", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content alone; built from a copy, to leave no trace in the checkout."""
    if int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("building a wheel without network needs setuptools 77 or newer in the environment")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    offline = ["--no-deps", "--no-index"]
    built = [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(built, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("plumbline-*.whl")
    target = folder / "installed"
    subprocess.run([*pip, "install", *offline, "--target", str(target), str(wheel)], check=True, timeout=300)
    return target


def run(
    installed: Path, folder: Path, env: Mapping[str, str], *command: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**env, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_training_runs_from_another_folder(
    installed: Path, tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    done = run(installed, tmp_path, program_env, "-m", "grpo.train", *TINY, "reward=verifiable+format")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = run_folders(tmp_path / "outputs")
    assert (folder / "summary.json").exists()
    names = "rewards, grpo, data_prep, conf"
    code = f"import {names}; print(*(package.__path__[0] for package in ({names})))"
    places = run(installed, tmp_path, program_env, "-c", code).stdout.split()
    assert len(places) == 4
    assert all(os.path.commonpath([place, installed]) == str(installed) for place in places)


def test_scoring_runs_from_another_folder(
    installed: Path, tmp_path: Path, program_env: Mapping[str, str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"completion": "<think>x</think>\\\\boxed{42}", "gold": "42"}\n')
    done = run(installed, tmp_path, program_env, "-m", "rewards.score", "input=in.jsonl", "output=out.jsonl")
    assert done.returncode == 0, done.stderr
    assert '"value": 1.2' in (tmp_path / "out.jsonl").read_text()


def test_every_yaml_and_the_license_are_in_it(installed: Path) -> None:
    inside = {path.relative_to(installed / "conf") for path in (installed / "conf").rglob("*.yaml")}
    assert inside == {path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")}
    assert list(installed.glob("plumbline-*.dist-info/**/LICENSE"))
    assert not (installed / "tests").exists()
