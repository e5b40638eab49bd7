"""`python -m grpo.train` from a person's side: what a run leaves, what is refused, what is only planned."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from training_runs import Trainer, completions_of, computed, metrics_of, run_folders, summary_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo import checkpoint
from grpo.names import unexplained

REFUSED = 2


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, program_env: Mapping[str, str]
) -> tuple[Trainer, Path, str]:
    """A trainer, the directory of the run it has finished, and what was printed."""
    trainer = Trainer(tmp_path_factory.mktemp("finished"), program_env)
    done = trainer.run("reward=verifiable+format", "checkpoint.every=2")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = run_folders(trainer.output)
    return trainer, run, done.stdout


def test_a_run_leaves_its_directory(finished: tuple[Trainer, Path, str]) -> None:
    _, run, _ = finished
    manifest = json.loads((run / "manifest.json").read_text())
    assert re.fullmatch(rf"run-\d{{8}}-\d{{6}}-{manifest['config_hash']}", run.name)
    assert manifest["seed"] == 0
    assert "-m grpo.train" in manifest["command"]
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == {
        "checkpoints",
        "completions",
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "model",
        "summary.json",
    }
    assert "group_size: 8" in (run / "config.yaml").read_text()
    assert summary_of(run)["after"]["eval/heldout/accuracy"] == metrics_of(run)[-1]["eval/heldout/accuracy"]


def test_every_metric_is_there_and_explained(finished: tuple[Trainer, Path, str]) -> None:
    _, run, _ = finished
    lines = metrics_of(run)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    names = {name for line in lines for name in line} - {"step"}
    assert unexplained(names) == []
    every_step = {
        "reward",
        "reward_std",
        "reward/accuracy/mean",
        "reward/format/mean",
        "verdict/total/scored",
        "frac_reward_zero_std",
        "completions/mean_length",
        "completions/clipped_ratio",
        "loss",
        "grad_norm",
        "learning_rate",
        "entropy",
        "num_tokens",
        "timing_s/step",
        "timing_s/gen",
        "perf/tokens_per_s",
    }
    assert [sorted(every_step - line.keys()) for line in lines[1:]] == [[]] * 4
    measured = {"eval/heldout/accuracy", "eval/heldout/greedy", "eval/heldout/pass@2", "eval/heldout/format"}
    assert measured <= lines[0].keys() & lines[-1].keys()
    assert all(0 < line["grad_norm"] < float("inf") for line in lines[1:])


def test_completions_can_be_read_and_are_paid_as_the_metrics_say(
    finished: tuple[Trainer, Path, str],
) -> None:
    _, run, _ = finished
    files = completions_of(run)
    end = AutoTokenizer.from_pretrained(run / "model").eos_token_id
    assert list(files) == [f"step_{step:06d}.parquet" for step in range(1, 5)]
    for line, rows in zip(metrics_of(run)[1:], files.values(), strict=True):
        assert len(rows) == 4 * 8
        assert sum(row["reward"] for row in rows) / len(rows) == pytest.approx(line["reward"])
        for row in rows:
            assert row["reward"] == pytest.approx(row["accuracy/value"] + 0.2 * row["format/value"])
            assert row["length"] == len(row["token_ids"])
            ended = row["token_ids"][-1] == end
            assert row["truncated"] == (not ended)
            assert ended or row["length"] == 40


def test_the_model_and_every_checkpoint_load(finished: tuple[Trainer, Path, str]) -> None:
    _, run, _ = finished
    steps = checkpoint.list_steps(run / "checkpoints")
    assert max(steps) == 4
    loaded = checkpoint.load_latest(run / "checkpoints")
    assert loaded is not None
    assert loaded.step == 4
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    same = AutoModelForCausalLM.from_pretrained(steps[4])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    messages = [{"role": "user", "content": "7+5="}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")[
        "input_ids"
    ]
    written = model.generate(ids, max_new_tokens=24, do_sample=False)
    assert "<think>" in tokenizer.decode(written[0])


def test_the_screen_tells_before_and_after(finished: tuple[Trainer, Path, str]) -> None:
    _, run, said = finished
    assert "cold start: loss" in said
    assert re.search(r"^before the first step: held-out accuracy \d\.\d{3}$", said, re.MULTILINE)
    assert len(re.findall(r"^step \d/4  reward .*accuracy .*tokens/s", said, re.MULTILINE)) == 4
    assert "before" in said
    assert f"run directory: {run}" in said


def test_a_finished_configuration_runs_anew_and_to_the_same_numbers(
    finished: tuple[Trainer, Path, str],
) -> None:
    trainer, run, _ = finished
    again = trainer.finish("reward=format+verifiable", "checkpoint.every=2")
    assert again != run
    assert computed(again) == computed(run)  # the order of a mix is no difference either


def test_a_dry_run_shows_the_step_and_leaves_nothing(trainer: Trainer) -> None:
    done = trainer.run("dry_run=true", "rollout.group_size=6")
    assert done.returncode == 0, done.stderr
    assert re.search(r"completions a step\W+24\W+6 of each prompt", done.stdout)
    assert "memory" in done.stdout
    assert "match_" in done.stdout  # the gold, laid out, is paid
    assert list(trainer.folder.iterdir()) == []


WRONG = {
    "learning_rat=1e-4": "learning_rate",
    "optim.learning_rat=1e-4": "optim.learning_rate",
    "steps=many": "steps",
    "rollout.group_size=1": "rollout.group_size=1: expected >= 2",
    "reward=verifiable+formt": "format",
    "algorithm=grppo": "grpo",
}
"""A wrong option -> what the one line about it must name."""


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_refused_in_a_line(trainer: Trainer, option: str) -> None:
    done = trainer.run(option, tiny=False)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert option.partition("=")[0] in line
    assert WRONG[option] in line
    assert list(trainer.folder.iterdir()) == []


def test_a_wrong_option_is_refused_before_torch_loads(trainer: Trainer) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules));"
        "sys.argv = ['grpo.train', 'stepz=3']; import grpo.train; grpo.train.main()"
    )
    done = trainer.call([sys.executable, "-c", code])
    assert done.returncode == REFUSED
    assert "stepz" in done.stderr
    assert done.stdout.strip() == "False"
