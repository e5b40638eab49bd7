"""Algorithm 1 from a person's side: rewards learned from nothing, rounds, and what is kept of them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tiny_reward_models import tiny_folder
from training_runs import ROUNDS, Trainer, metrics_of, run_folders

from rewards.replay import ReplayBuffer, ReplaySettings

REFUSED = 2


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


@pytest.mark.parametrize(
    ("options", "part"),
    [(("reward=orm",), "orm"), (("reward=verifiable+prm", "credit=both"), "prm")],
    ids=["orm", "prm"],
)
def test_a_reward_model_is_fitted_from_nothing_and_keeps_up(
    trainer: Trainer, options: tuple[str, ...], part: str
) -> None:
    done = trainer.run(*options, *ROUNDS)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = run_folders(trainer.output)
    assert f"fitting the reward model '{part}' on completions of the policy" in done.stdout
    lines = metrics_of(run)
    assert [line["iterate/round"] for line in lines[1:]] == [0, 0, 1, 1]
    assert [line.get("refit/accepted") for line in lines[1:]] == [None, 1, None, 1]
    assert [line["iterate/reference_moved"] for line in lines[1:]] == [0, 1, 0, 1]
    assert all(line[f"verdict/{part}/failed"] == 0 for line in lines[1:])
    assert lines[4]["refit/drift"] > 0
    assert 0 < lines[4]["replay/history_share"] <= 0.15

    groups = list(ReplayBuffer(run / "replay", ReplaySettings()).groups())
    assert [group.round for group in groups] == [0] * 16 + [1] * 16
    assert all(len(group.samples) == 8 for group in groups)
    assert {group.policy_version for group in groups} == {1, 2, 3, 4}
    versions = [{group.reward_version for group in groups if group.round == number} for number in (0, 1)]
    assert [len(found) for found in versions] == [1, 1]
    assert versions[0] != versions[1], "the scorer was replaced at the round's end, not before"
    assert {label for group in groups for label in group.labels} == {True, False}
    assert [path.name for path in (run / "reward_models").iterdir()] == ["round_000001"]

    again = trainer.run(*options, *ROUNDS, "label=again", "steps=2")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "fitting the reward model" not in again.stdout, "it was kept"


def test_a_rule_is_paid_in_rounds_too(trainer: Trainer) -> None:
    rounds = [option for option in ROUNDS if "tolerance" not in option]
    refit_off = "iterate.reward_model.refit=off"
    run = trainer.finish("reward=verifiable", *rounds, refit_off, "steps=3", "iterate.reference.follow=never")
    lines = metrics_of(run)
    assert [line["iterate/round"] for line in lines[1:]] == [0, 0, 1]
    assert [line.get("replay/groups") for line in lines[1:]] == [None, 16, 24]
    assert not any(name.startswith("refit/") for line in lines for name in line)
    assert "iterate/reference_moved" not in lines[1]
    assert not (run / "reward_models").exists()


def test_a_policy_that_solves_nothing_has_nothing_to_fit_from(trainer: Trainer) -> None:
    done = trainer.run("reward=orm", *ROUNDS, "coldstart.steps=0")
    assert done.returncode == REFUSED
    assert "0 of 192 completions of the policy are right" in done.stderr


def test_an_implicit_process_reward_model_that_is_given_keeps_up(trainer: Trainer) -> None:
    folder = tiny_folder("implicit-prm", trainer.folder / "implicit")
    place = "reward.components.prm.scorer.model"
    given = (f"{place}.path={folder}", f"{place}.reference={folder / 'reference'}", f"{place}.device=cpu")
    done = trainer.run(
        "reward=prm", "credit=process", *ROUNDS, "steps=4", *given, f"{place}.convention=implicit-prm"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = run_folders(trainer.output)
    lines = metrics_of(run)
    assert [line.get("refit/accepted") for line in lines[1:]] == [None, 1, None, 1]
    assert all(line["verdict/prm/failed"] == 0 for line in lines[1:])
    assert lines[4]["refit/drift"] > 0
    fitted = run / "reward_models" / "round_000001"
    assert (fitted / "reference" / "model.safetensors").exists(), "it still compares with the same reference"
