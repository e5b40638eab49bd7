"""SmolLM2-135M-Instruct on questions of GSM8K: a model, a template and data that were not made for us."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from shared_cases import shared
from smollm import smollm
from training_runs import Trainer, completions_of, metrics_of
from transformers import AutoModelForCausalLM

OPTIONS = (
    "model=hub",
    "model.precision=fp32",
    "data=gsm8k",
    "data.eval_size=2",
    # Random numbers beside the rule: a small model that knows no layout yet would be paid nothing at all.
    "reward=verifiable+format+random",
    "device=cpu",
    "steps=2",
    "optim.warmup_steps=0",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "rollout.max_completion_tokens=16",
    "eval.samples=1",
    "checkpoint.keep_best=false",
)


@pytest.fixture
def trainer(tmp_path: Path, program_env: Mapping[str, str]) -> Trainer:
    return Trainer(tmp_path, program_env)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """The first rows of GSM8K's test set, in its own layout."""
    with shared("data/gsm8k/test.jsonl").open(encoding="utf-8") as file:
        lines = list(islice(file, 6))
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_two_steps_on_a_real_model(trainer: Trainer, questions: Path) -> None:
    folder = smollm()
    run = trainer.finish(*OPTIONS, f"model.name={folder}", f"data.path={questions}", tiny=False)
    asked = {json.loads(line)["question"] for line in questions.read_text(encoding="utf-8").splitlines()}
    for step, rows in enumerate(completions_of(run).values(), start=1):
        assert len(rows) == 4
        assert {row["prompt"] for row in rows} < asked
        assert all(row["gold"][0].lstrip("-").isdigit() for row in rows), step
        assert all(0 < row["length"] <= 16 for row in rows)
    for line in metrics_of(run)[1:]:
        assert 0 < line["grad_norm"] < float("inf")
        # The sampler and the trainer are one function: one left-out mask or position would show here.
        assert line["sampling/sampling_logp_difference/max"] < 1e-4
    before = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    after = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32)
    moved = [not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert sum(moved) > 0.9 * len(moved)


def test_low_rank_adapters_are_trained_against_the_model_without_them(
    trainer: Trainer, questions: Path
) -> None:
    folder = smollm()
    run = trainer.finish(
        *OPTIONS,
        f"model.name={folder}",
        f"data.path={questions}",
        "model.lora_rank=4",
        "algorithm.kl_coefficient=0.1",
        "optim.learning_rate=1e-3",
        tiny=False,
    )
    first, second = metrics_of(run)[1:]
    assert first["kl"] == 0  # a new adapter adds nothing, so policy and reference are equal
    assert second["kl"] > 0
    assert 0 < first["grad_norm"] < float("inf")
    weights = load_file(run / "model" / "adapter_model.safetensors")
    trained = {name: tensor for name, tensor in weights.items() if "lora_B" in name}
    assert trained
    assert all(tensor.abs().max() > 0 for tensor in trained.values())
    assert all(min(tensor.shape) == 4 for tensor in trained.values())
