"""Conventions as data: what is refused, and the file that carries one."""

import json
from pathlib import Path
from typing import Any

import pytest

from rewards.errors import ConfigError
from rewards.models.conventions import (
    CONVENTION_FILE,
    Convention,
    WorkedExample,
    read_convention,
    save_convention,
)
from rewards.models.outcome import OutcomeScorer
from rewards.models.presets import PRESETS, preset
from rewards.models.process import ProcessScorer
from rewards.models.settings import ModelSettings

PLAIN: dict[str, Any] = {"kind": "process", "layout": "plain", "tag": "\n"}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "both"}, "kind='both': expected one of outcome, process"),
    ({"layout": "table"}, "layout='table'"),
    ({"tokenise": "apart"}, "tokenise='apart'"),
    ({"aggregation": "max"}, "aggregation='max'"),
    ({"strategy": "lines"}, "strategy='lines'"),
    ({"head": "scalar", "activation": "softmax"}, "head=scalar takes none or sigmoid"),
    ({"head": "classes", "activation": "none"}, "head=classes takes softmax or difference"),
    ({"tag": ""}, "read_at=tag: needs tag or tag_id"),
    ({"tag_id": 7}, "tag and tag_id: give one"),
    ({"layout": "turns", "tag": "+", "read_at": "end"}, "layout=turns: expected read_at=tag"),
    (
        {"layout": "turns", "tag": "+", "step_join": "\n"},
        "step_join, step_label and before_tag have no place",
    ),
    ({"layout": "turns", "tag": "+", "tokenise": "alone"}, "expected tokenise=together"),
    ({"read_at": "end"}, "one position cannot serve several steps"),
    ({"offset": 1}, "offset=1: expected 0 or -1"),
    ({"positive_index": -1}, "positive_index=-1"),
    ({"head": "vocabulary", "activation": "softmax", "positive_token": "+"}, "two different strings"),
    ({"aggregation": "product"}, "aggregation=product: needs probabilities"),
    ({"beta": 0.0}, "beta=0.0: expected > 0"),
    ({"system": "Be exact."}, "layout=plain has no system turn"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Convention(**PLAIN | change)
    assert message in str(refused.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Convention(**PLAIN | {"offset": 3, "beta": -1.0})
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize("name", PRESETS)
def test_a_folder_carries_its_convention(name: str, tmp_path: Path) -> None:
    example = WorkedExample("Wie viele?", ("Erstens …", "ки"), (0.25, -1.5))
    save_convention(tmp_path, PRESETS[name], example)
    assert read_convention(tmp_path / CONVENTION_FILE) == (PRESETS[name], example)
    save_convention(tmp_path, PRESETS[name])
    assert read_convention(tmp_path / CONVENTION_FILE) == (PRESETS[name], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"example": null}', "expected a JSON object with the key convention"),
        ('{"convention": {"kind": "outcome", "layout": "chat", "taag": "x"}}', "did you mean 'tag'?"),
        ('{"convention": {"kind": "outcome", "layout": "chat", "offset": "0"}}', "expected int"),
        ('{"convention": {"layout": "chat"}}', "convention.kind: missing"),
        (
            '{"convention": {"kind": "outcome", "layout": "plain", "read_at": "end"}, "example": {}}',
            "example:",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_fault(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / CONVENTION_FILE
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_convention(file)
    assert message in str(refused.value)
    assert str(file) in str(refused.value)


def test_the_file_says_only_what_differs(tmp_path: Path) -> None:
    save_convention(tmp_path, PRESETS["skywork-reward"])
    record = json.loads((tmp_path / CONVENTION_FILE).read_text())
    assert record == {"convention": {"kind": "outcome", "layout": "chat", "read_at": "end"}}


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'math-shepherd'\?"):
        preset("math-sheperd")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": ""}, "model.path: expected"),
        ({"convention": "none"}, "model.convention=none"),
        ({"convention": "implicit-prm"}, "model.reference=None: expected a path"),
        ({"convention": "trl-prm", "reference": "x"}, "model.reference=x"),
        ({"dtype": "fp8"}, "model.dtype=fp8"),
        ({"device": "tpu"}, "model.device=tpu"),
        ({"device": "cpu:1"}, "model.device=cpu:1"),
        ({"attention": "flash"}, "model.attention=flash"),
        ({"max_length": 8}, "model.max_length=8"),
        ({"tokens_per_batch": 0}, "model.tokens_per_batch=0"),
    ],
)
def test_settings_are_checked_before_anything_loads(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ModelSettings(**{"path": "some/model"} | change)
    assert message in str(refused.value)


def test_scorers_refuse_the_other_kind_and_an_aggregation_that_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="use reward=orm"):
        ProcessScorer(model=ModelSettings(path="x", convention="skywork-reward"))
    with pytest.raises(ConfigError, match="use reward=prm"):
        OutcomeScorer(model=ModelSettings(path="x", convention="trl-prm"))
    with pytest.raises(ConfigError, match="aggregation=product"):
        ProcessScorer(model=ModelSettings(path="x", convention="pure-prm"), aggregation="product")
    with pytest.raises(ConfigError, match="strategy='lines'"):
        ProcessScorer(model=ModelSettings(path="x"), strategy="lines")  # type: ignore[arg-type]
