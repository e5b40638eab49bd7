"""What is told before anything is trained, on the tiny model."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from transformers.utils import logging

from grpo.config import TRAIN, TrainConfig
from grpo.materials import Materials, gather_materials
from grpo.models import save_policy
from grpo.plan import limit_notes, show_plan

TINY = [
    "model.hidden_size=16",
    "model.layers=1",
    "data.max_operand=9",
    "data.train_size=40",
    "data.eval_size=4",
    "rollout.prompts_per_step=2",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Materials]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        config = TRAIN.load(TINY)
        return config, gather_materials(config)


def test_a_limit_below_the_layout_is_told(loaded: tuple[TrainConfig, Materials]) -> None:
    config, materials = loaded
    assert limit_notes(config, materials) == []
    (note,) = limit_notes(_limited(config, 1), materials)
    needed = int(note.split("the layout alone takes ")[1].split()[0])
    assert note.startswith("rollout.max_completion_tokens=1: ")
    assert len(limit_notes(_limited(config, needed - 1), materials)) == 1
    assert limit_notes(_limited(config, needed), materials) == []


def test_a_plan_tells_what_pays_nothing(loaded: tuple[TrainConfig, Materials]) -> None:
    _, materials = loaded
    stepped = TRAIN.load([*TINY, "reward=verifiable+arithmetic_steps", "credit=process"])
    console = Console(file=io.StringIO(), width=400)
    show_plan(stepped, materials, console)
    assert isinstance(console.file, io.StringIO)
    assert "accuracy: logged, not paid" in console.file.getvalue()


def test_a_plan_shows_the_note_and_no_advantage(loaded: tuple[TrainConfig, Materials]) -> None:
    config, materials = loaded
    console = Console(file=io.StringIO(), width=160)
    show_plan(_limited(config, 1), materials, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "rollout.max_completion_tokens=1: the layout alone takes" in " ".join(text.split())
    assert "match_" in text
    assert "+0.000" not in text


def test_a_saved_model_draws_no_bar(
    loaded: tuple[TrainConfig, Materials], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, materials = loaded
    before = logging.is_progress_bar_enabled()
    save_policy(materials.policy, materials.tokenizer, tmp_path / "model")
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled() == before
    assert (tmp_path / "model" / "model.safetensors").exists()


def _limited(config: TrainConfig, tokens: int) -> TrainConfig:
    return replace(config, rollout=replace(config.rollout, max_completion_tokens=tokens))
