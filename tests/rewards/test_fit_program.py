"""`python -m rewards.fit` from a person's side: what it leaves, what rewards make of it, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tiny_reward_models import tiny_folder

from rewards.build import build_scorer
from rewards.config import SCORER
from rewards.errors import ConfigError
from rewards.evaluation.card import read_results
from rewards.fit_config import FIT
from rewards.labelled import OutcomeExample, ProcessExample, write_labelled
from rewards.models.conventions import save_convention
from rewards.models.presets import PRESETS
from rewards.types import Problem, Sample, Verdict

GIVEN = ["data=x.jsonl", "base=some/model", "output=folder"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model, outcomes, and solutions in steps."""
    folder = tmp_path_factory.mktemp("fit")
    tiny_folder("math-shepherd", folder / "base")
    sums = [(a, b) for a in range(8) for b in range(8)]
    write_labelled(
        folder / "outcomes.jsonl",
        [
            OutcomeExample(f"What is {a} + {b}?", f"It is {a + b}. {answer}.", float(answer == "Yes"))
            for a, b in sums
            for answer in ("Yes", "No")
        ],
    )
    write_labelled(
        folder / "steps.jsonl",
        [
            ProcessExample(f"What is {a} + {b}?", (f"Take {a}.\n\n", f"{answer}, {b}."), (1.0, float(right)))
            for a, b in sums
            for answer, right in (("Yes", True), ("No", False))
        ],
    )
    return folder


def run(folder: Path, env: Mapping[str, str], *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewards.fit", "device=cpu", "max_length=256", *overrides]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)


@pytest.mark.parametrize(("model", "data"), [("orm", "outcomes.jsonl"), ("prm", "steps.jsonl")])
def test_a_fit_leaves_a_reward(model: str, data: str, folder: Path, program_env: Mapping[str, str]) -> None:
    given = [f"model={model}", f"data={data}", "base=base", f"output={model}", "optim.learning_rate=2e-3"]
    given += ["optim.epochs=4", "optim.batch_size=16", "heldout_share=0.25"]
    done = run(folder, program_env, *given)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "new head" in done.stderr
    report = json.loads((folder / model / "fit.json").read_text())
    assert report["metrics"]["auc"] > 0.8
    (kept,) = read_results(folder / model / "evaluation")
    assert {measure.name: measure.value for measure in kept.findings.measures} == report["metrics"]
    assert 0 < kept.findings.questions < 64
    assert (kept.judge, kept.inputs) == (model, (data,))
    for name in ("card.md", "card.html"):
        assert f"{report['metrics']['auc']:.4f}" in (folder / model / "evaluation" / name).read_text()
    assert f"report card: {model}/evaluation/card.html" in done.stderr
    overrides = [f"reward={model}", f"reward.components.{model}.scorer.model.path='{folder / model}'"]
    scorer = build_scorer(
        SCORER.load([*overrides, f"reward.components.{model}.scorer.model.device=cpu"]).reward
    )
    problem = Problem("p", "What is 3 + 4?")
    texts = (
        ("It is 7. Yes.", "It is 7. No.") if model == "orm" else ("Take 3.\n\nYes, 4.", "Take 3.\n\nNo, 4.")
    )
    right, wrong = scorer.score([Sample(problem, text) for text in texts])
    assert right.verdict is wrong.verdict is Verdict.SCORED
    assert (right.value or 0) > (wrong.value or 0)
    again = run(folder, program_env, *given)
    assert again.returncode == 0
    assert "fitted already" in again.stderr
    assert json.loads((folder / model / "fit.json").read_text()) == report


def test_what_is_refused(folder: Path, program_env: Mapping[str, str]) -> None:
    done = run(folder, program_env, "modle=orm", "data=outcomes.jsonl", "base=base", "output=no")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did you mean 'model'" in done.stderr
    (folder / "broken.jsonl").write_text(
        '{"kind": "outcome", "question": "q", "completion": "c", "label": 7}\n'
    )
    done = run(folder, program_env, "data=broken.jsonl", "base=base", "output=no")
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: broken.jsonl, line 1: label=7.0: expected a number from 0 (wrong) to 1 (right)\n"
    )
    (folder / "empty.jsonl").touch()
    for given in (["data=empty.jsonl"], ["data=outcomes.jsonl", "heldout=empty.jsonl"]):
        done = run(folder, program_env, *given, "base=base", "output=no")
        assert done.stderr == f"error: {given[-1]}: is empty: expected labelled completions, one a line\n"
    (folder / "one.jsonl").write_text((folder / "outcomes.jsonl").read_text().split("\n")[0])
    done = run(folder, program_env, "data=one.jsonl", "heldout_share=0.9", "base=base", "output=no")
    assert done.stderr.startswith("error: heldout_share=0.9: all 1 examples of one.jsonl are held out")
    done = run(folder, program_env, "data=outcomes.jsonl", "base=nobase", "output=no")
    assert (done.returncode, done.stderr[:19]) == (2, "error: base=nobase:")
    assert not (folder / "no").exists()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["model=rm"], "model=rm: expected one of orm, prm"),
        (["optim.micro_batch=5"], "micro_batch=5: expected a divisor of batch_size=32"),
        (["convention=trl-prm"], "model=orm: the convention trl-prm is of kind process; expected outcome"),
        (["data=gsm8k"], "data=gsm8k: no such file; expected a .jsonl"),
        (["data=gsm8k_solution"], "did you mean 'gsm8k_solutions'"),
        (["convention=trl-prn"], "did you mean 'trl-prm'"),
        (["model=prm", "beta=0.1"], "beta=0.1: has an effect on a log-ratio"),
        (["source=y.jsonl"], "source=y.jsonl: is for the name of a set"),
        (["optim.warmup=1"], "optim.warmup=1.0: expected a finite number"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_loads(overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FIT.load([*GIVEN, *overrides])
    assert told in str(caught.value)


def test_the_convention_is_the_named_one_or_the_bases_own_or_the_kinds(tmp_path: Path) -> None:
    assert FIT.load(GIVEN).convention_of(None) == PRESETS["sequence-classifier"]
    assert FIT.load([*GIVEN, "model=prm"]).convention_of(tmp_path) == PRESETS["trl-prm"]
    implicit = FIT.load([*GIVEN, "model=prm", "convention=implicit-prm", "beta=0.05"]).convention_of(tmp_path)
    assert (implicit.head, implicit.beta) == ("log_ratio", 0.05)
    save_convention(tmp_path, PRESETS["pure-prm"])
    assert FIT.load([*GIVEN, "model=prm"]).convention_of(tmp_path) == PRESETS["pure-prm"]
    with pytest.raises(ConfigError, match="is of kind process; expected outcome"):
        FIT.load(GIVEN).convention_of(tmp_path)


def test_the_settings_are_those_of_training() -> None:
    given = ["lora_rank=8", "loss.neutral=mask", "optim.epochs=2", "trackers=[tensorboard]", "precision=bf16"]
    settings = FIT.load([*GIVEN, "attention=eager", *given]).settings(progress=True)
    assert settings.attention == "eager"
    assert settings.lora is not None
    assert (settings.lora.rank, settings.lora.alpha) == (8, 16.0)
    assert (settings.loss.neutral, settings.epochs, settings.precision) == ("mask", 2.0, "bf16")
    assert (settings.trackers, settings.progress) == (("tensorboard",), True)


def test_a_named_set_is_prepared_and_its_fault_is_told(folder: Path, program_env: Mapping[str, str]) -> None:
    solved = {"question": "1 + 1?", "m": {"is_correct": True, "solution": "2"}}
    unsolved = {"question": "2 + 2?", "m": {"is_correct": False, "solution": "5"}}
    (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (solved, unsolved)))
    given = ["base=base", "output=named", "heldout_share=0", "optim.batch_size=2", "optim.micro_batch=2"]
    done = run(folder, program_env, "data=gsm8k_solutions", f"source={folder / 'raw.jsonl'}", *given)
    assert done.returncode == 0, done.stderr
    assert "nothing held out" in done.stderr
    assert json.loads((folder / "named" / "fit.json").read_text())["examples"] == 2
    done = run(folder, program_env, "data=gsm8k_solutoins", f"source={folder / 'raw.jsonl'}", *given)
    assert done.returncode == 2
    assert "gsm8k_solutions" in done.stderr


def test_two_processes_learn_what_one_learns(folder: Path, program_env: Mapping[str, str]) -> None:
    given = ["data=outcomes.jsonl", "base=base", "heldout_share=0", "device=cpu", "max_length=256"]
    given += ["optim.batch_size=16", "optim.micro_batch=4", "optim.learning_rate=1e-3"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**program_env, "OMP_NUM_THREADS": "1"}
    for command, output in (([sys.executable], "alone"), (launch, "both")):
        whole = [*command, "-m", "rewards.fit", *given, f"output={output}"]
        done = subprocess.run(whole, capture_output=True, text=True, env=env, cwd=folder, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("new head") == 1  # one of them speaks
    alone, both = (json.loads((folder / name / "fit.json").read_text()) for name in ("alone", "both"))
    assert (alone["steps"], both["steps"]) == (8, 8)
    assert [loss for _, loss in both["losses"]] == pytest.approx(
        [loss for _, loss in alone["losses"]], abs=1e-5
    )
