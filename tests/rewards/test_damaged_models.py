"""Folders of reward models whose files are damaged, doubled or of a kind that is not read: each is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_reward_models import tiny_folder

from rewards.errors import ConfigError
from rewards.models.conventions import CONVENTION_FILE, save_convention
from rewards.models.engine import RewardModel
from rewards.models.heads import HEAD_FILE
from rewards.models.presets import PRESETS
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request

PRESET = "qwen2.5-math-prm"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
REQUEST = Request("Q", ("It is 7.", "So 7."))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(PRESET, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def load(folder: Path, convention: str | None = PRESET) -> RewardModel:
    return RewardModel(ModelSettings(path=str(folder), convention=convention, device="cpu"))


def refused(folder: Path, convention: str | None = PRESET) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, convention)
    return str(caught.value)


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def values(folder: Path) -> tuple[float, ...]:
    return load(folder).judge([REQUEST])[0].values


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (WEIGHTS, None),
        (WEIGHTS, b""),
        (HEAD_FILE, b"garbage"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b'{"added_tokens": [], "model": {"type": "XX"}}'),
        ("tokenizer.json", None),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"pad_token": 5}'),
        ("tokenizer_config.json", b'{"model_max_length": "x"}'),
        ("config.json", b"null"),
        ("config.json", None),
    ],
)
def test_a_damaged_file_is_named(name: str, content: bytes | None, folder: Path) -> None:
    file = folder / name
    file.write_bytes(file.read_bytes()[:-50] if content is None else content)
    told = refused(folder)
    assert str(folder) in told
    assert name in told
    assert "copy" in told or "expected" in told


@pytest.mark.parametrize(
    "change", [{"hidden_size": "x"}, {"hidden_act": "nope"}, {"num_hidden_layers": 1}, {"vocab_size": 10}]
)
def test_a_config_of_another_model_is_named(change: dict[str, object], folder: Path) -> None:
    edit(folder / "config.json", **change)
    assert "config.json" in refused(folder)


@pytest.mark.parametrize("content", [b"garbage", b"", b"PK"])
def test_damaged_pickles_are_refused(content: bytes, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "its weights cannot be loaded" in refused(folder)


@pytest.mark.parametrize("template", ["{{ messages + 5 }}", "{{ 5 / 0 }}"])
def test_templates_that_break_are_refused(template: str, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert "the chat template refuses" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"convention": []},
        {"example": []},
        {"example": {"question": "Q", "steps": "abc", "values": [0.5]}},
        {"example": {"question": "Q", "steps": [], "values": []}},
        {"example": {"question": "Q", "steps": ["a"], "values": ["0.5"]}},
    ],
)
def test_a_damaged_convention_is_named(change: dict[str, object], folder: Path) -> None:
    save_convention(folder, PRESETS[PRESET], load(folder).worked_example())
    load(folder, None)
    edit(folder / CONVENTION_FILE, **change)
    assert f"{folder / CONVENTION_FILE}: " in refused(folder, None)


def test_a_beta_that_is_no_number_is_refused(folder: Path) -> None:
    settings = {"kind": "process", "layout": "chat", "read_at": "step", "head": "log_ratio"}
    for beta in ("NaN", "Infinity"):
        text = json.dumps({"convention": settings}).replace('"log_ratio"', f'"log_ratio", "beta": {beta}')
        (folder / CONVENTION_FILE).write_text(text)
        assert "beta=" in refused(folder, None)


def test_weights_in_pickles_are_to_be_converted(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    assert "convert its weights to safetensors" in refused(folder)


def test_a_head_is_read_from_the_checkpoint_and_not_from_a_file_beside_it(folder: Path) -> None:
    right = values(folder)
    tensors = load_file(folder / WEIGHTS)
    head = {key: tensor + 1 for key, tensor in tensors.items() if key.startswith("score.")}
    save_file(head, folder / "zz_old.safetensors")
    assert values(folder) == right
    save_file(head, folder / HEAD_FILE)
    assert f"{HEAD_FILE} and {WEIGHTS} and zz_old.safetensors each have a head score" in refused(folder)


def test_shards_are_those_of_the_index(folder: Path) -> None:
    right = values(folder)
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    head = {key: tensor for key, tensor in tensors.items() if key.startswith("score.")}
    body = {key: tensor for key, tensor in tensors.items() if key not in head}
    shards = {"model-00001-of-00002.safetensors": body, "model-00002-of-00002.safetensors": head}
    for name, part in shards.items():
        save_file(part, folder / name, {"format": "pt"})
    places = {key: name for name, part in shards.items() for key in part}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    old = {key: tensor + 1 for key, tensor in head.items()}
    save_file(old, folder / "model-00003-of-00003.safetensors", {"format": "pt"})
    assert values(folder) == right
    save_file(body | old, folder / "model-00001-of-00002.safetensors", {"format": "pt"})
    assert "each have a head score" in refused(folder)


def test_two_heads_beside_the_checkpoint_are_refused(folder: Path) -> None:
    right = values(folder)
    tensors = load_file(folder / WEIGHTS)
    head = {key: tensor for key, tensor in tensors.items() if key.startswith("score.")}
    save_file({key: t for key, t in tensors.items() if key not in head}, folder / WEIGHTS, {"format": "pt"})
    save_file(head, folder / "value_head.safetensors")
    assert values(folder) == right
    save_file(head, folder / HEAD_FILE)
    assert f"{HEAD_FILE} and value_head.safetensors each have a head score" in refused(folder)
