"""Composition and the program decorator: mixes, refusals in one line each, exit status, multirun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewards.config import SCORER, ScorerConfig
from rewards.errors import ConfigError
from rewards.overrides import alternatives, compose_checked

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = str(TESTS / "fakes_config.py")


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        SCORER.load(overrides)
    return str(caught.value)


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    command = [sys.executable, PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def test_a_mix_equals_the_list_in_any_order() -> None:
    mixes = ["verifiable+format", "format+verifiable", "[verifiable,format]", "[format,verifiable]"]
    loaded = [SCORER.load([f"reward={mix}"]) for mix in mixes]
    assert all(other == loaded[0] for other in loaded)
    assert set(loaded[0].reward.components) == {"accuracy", "format"}


def test_a_mix_may_be_written_with_spaces() -> None:
    assert SCORER.load(["reward=verifiable + format"]) == SCORER.load(["reward=verifiable+format"])


def test_a_mix_may_name_rewards_of_the_users_own_folder(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "mine.yaml").write_text(
        "components:\n  mine:\n    weight: 0.5\n    gate: accuracy\n    scorer:\n"
        "      _target_: fakes_config.Constant\n      value: 1.0\n"
    )
    loaded = SCORER.load([f"hydra.searchpath=[file://{tmp_path}]", "reward=mine+verifiable+format"])
    assert list(loaded.reward.components) == ["mine", "accuracy", "format"]
    assert loaded.reward.components["mine"].gate == "accuracy"


def test_a_program_takes_a_folder_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "own" / "reward").mkdir(parents=True)
    (tmp_path / "own" / "reward" / "mine.yaml").write_text(
        "components: {mine: {weight: 0.5, gate: null, scorer: {_target_: fakes_config.Constant}}}"
    )
    done = run("--config-dir", "own", "reward=mine+verifiable", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ran {'mine': 0.5, 'accuracy': 1.0} False\n"


def test_two_rewards_with_a_component_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "other.yaml").write_text(
        "components:\n  accuracy:\n    weight: 2.0\n    gate: null\n"
    )
    text = refusal(f"hydra.searchpath=[file://{tmp_path}]", "reward=verifiable+other")
    both = "verifiable and other both have a component 'accuracy'"
    assert text == f"reward=verifiable+other: {both}; choose one of them"


def test_the_format_reaches_the_scorers() -> None:
    loaded = SCORER.load(["reward=verifiable+format", "format=answer_tags", 'format.think_open="<t>"'])
    for component in loaded.reward.components.values():
        assert component.scorer["format"] == loaded.format
    assert (loaded.format["think_open"], loaded.format["answer_style"]) == ("<t>", "tags")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["reward=verifable"],
            ["reward=verifable: no such reward; expected one of ", "did you mean 'verifiable'?"],
        ),
        (["reward=format+verifable"], ["reward=verifable: no such reward"]),
        (["reward=[format,verifable]"], ["reward=verifable: no such reward"]),
        (["reward=format+"], ["reward=format+: a name is missing; expected one of "]),
        (["reward="], ["reward=: a name is missing; expected one of "]),
        (["reward=null"], ["reward=null: expected a name, one of arithmetic_steps, "]),
        (["reward=5"], ["reward=5: expected a name, one of arithmetic_steps, "]),
        (["format=null"], ["format=null: expected a name, one of answer_tags, "]),
        (["reward=format+format"], ["reward=format+format: a reward is named twice; name each once"]),
        (
            ["reward=format,verifiable"],
            ["several values are a multirun (add -m); a list is written reward=[a,b]"],
        ),
        (["format=thnk"], ["format=thnk: no such format; expected one of ", "did you mean 'think'?"]),
        (["rewrd=format"], ["rewrd=format: unknown option 'rewrd'; did you mean 'reward'?"]),
        (["format.mod=off"], ["format.mod=off: unknown option 'format.mod'; did you mean 'format.mode'?"]),
        (["banana=1"], ["banana=1: unknown option 'banana'; the top level has reward, format"]),
        (
            ["reward.components.accuracy.weight=heavy"],
            ["reward.components.accuracy.weight=heavy: expected float"],
        ),
        (["reward.components.accuracy.weight"], ["expected key=value"]),
        (
            ["format.think_open=(x"],
            ["format.think_open=(x: expected key=value; a value with special characters"],
        ),
        (
            ["+reward.components.accuracy.wait=1"],
            ["accuracy.wait=1: unknown option; expected weight, gate, scorer"],
        ),
        (["hydra.run.dirr=x"], ["hydra.run.dirr=x: Key 'dirr' not in 'RunDir'"]),
    ],
)
def test_refusals_name_the_option_what_was_expected_and_the_nearest(
    overrides: list[str], expected: list[str]
) -> None:
    text = refusal(*overrides)
    assert len(text.splitlines()) == 1
    for part in expected:
        assert part in text


def test_all_faults_of_a_command_line_are_told_at_once() -> None:
    lines = refusal("reward.components.accuracy.weight=x", "banana=1", "format.mode=off").splitlines()
    assert [line.split(":")[0] for line in lines] == ["reward.components.accuracy.weight=x", "banana=1"]


def test_alternatives_hold_every_value_of_a_sweep() -> None:
    jobs = alternatives(["reward=verifiable,format+verifiable", "format.mode=off", "seed=range(0,3)"])
    assert jobs == [
        ["reward=verifiable", "format.mode=off", "seed=0"],
        ["reward=format+verifiable", "format.mode=off", "seed=0"],
        ["reward=verifiable", "format.mode=off", "seed=1"],
        ["reward=verifiable", "format.mode=off", "seed=2"],
    ]
    assert alternatives(["rate=interval(0.1,0.5)"]) == [["rate=0.1"]]


def test_composing_inside_a_hydra_program_leaves_its_state_alone() -> None:
    SCORER.register()
    outer = compose_checked("scorer", ScorerConfig, ["reward=format"])
    SCORER.load(["reward=verifiable"])
    assert list(outer.reward.components) == ["format"]


def test_a_program_runs_without_torch(tmp_path: Path) -> None:
    done = run("reward=format+verifiable", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ran {'format': 0.2, 'accuracy': 1.0} False\n"


def test_a_refused_program_says_one_line_and_exits_with_2(tmp_path: Path) -> None:
    done = run("reward=verifable", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: reward=verifable: no such reward; expected one of ")
    assert done.stderr.count("\n") == 1


def test_an_error_of_ours_while_running_is_a_line_and_a_bug_a_traceback(tmp_path: Path) -> None:
    bad_data = run("reward.components.accuracy.weight=13", folder=tmp_path)
    assert (bad_data.returncode, bad_data.stderr) == (2, "error: problems.jsonl: line 3: no gold\n")
    bug = run("reward.components.accuracy.weight=99", folder=tmp_path)
    assert bug.returncode == 1
    assert "RuntimeError: a bug" in bug.stderr


def test_a_multirun_goes_on_after_a_refused_job(tmp_path: Path) -> None:
    done = run(
        "-m",
        "reward=verifiable,format+verifiable",
        "reward.components.accuracy.weight=1,13,2",
        folder=tmp_path,
    )
    assert done.returncode == 2
    ran = [line for line in done.stdout.splitlines() if line.startswith("ran")]
    assert ran == [
        "ran {'accuracy': 1.0} False",
        "ran {'accuracy': 2.0} False",
        "ran {'format': 0.2, 'accuracy': 1.0} False",
        "ran {'format': 0.2, 'accuracy': 2.0} False",
    ]
    assert done.stderr.splitlines() == [
        "error: job 1: problems.jsonl: line 3: no gold",
        "error: job 4: problems.jsonl: line 3: no gold",
    ]


def test_a_multirun_with_a_wrong_value_starts_no_job(tmp_path: Path) -> None:
    done = run("-m", "reward=verifiable,verifable", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "reward=verifable: no such reward" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--cfg", "job"], "AccuracyVerifier"),
        (["--help"], "verifiable"),
        (["--info", "defaults"], "reward/verifiable"),
    ],
)
def test_hydras_own_flags_work(flags: list[str], shown: str, tmp_path: Path) -> None:
    done = run(*flags, folder=tmp_path)
    assert done.returncode == 0
    assert shown in done.stdout
    assert "ran {" not in done.stdout
