"""Calibration: recovers what was planted, keeps the order, survives its file, applies where asked."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from tiny_reward_models import tiny_folder

from rewards.errors import ConfigError
from rewards.models.calibrating import (
    CALIBRATION_FILE,
    Calibration,
    fit_calibration,
    log_odds,
    read_calibration,
    save_calibration,
)
from rewards.models.conventions import save_convention
from rewards.models.engine import RewardModel
from rewards.models.outcome import OutcomeScorer
from rewards.models.presets import PRESETS
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request
from rewards.types import Problem, Sample


def drawn(scale: float, shift: float, count: int = 4000) -> tuple[list[float], list[float]]:
    """Log-odds of which the truth is sigmoid(scale z + shift), and labels drawn by it."""
    draw = random.Random(0)
    odds = [draw.gauss(0, 3) for _ in range(count)]
    labels = [float(draw.random() < 1 / (1 + math.exp(-(scale * z + shift)))) for z in odds]
    return odds, labels


@pytest.mark.parametrize(("scale", "shift"), [(0.5, 0.0), (2.0, 0.0), (0.7, -1.2)])
def test_what_was_planted_is_found(scale: float, shift: float) -> None:
    odds, labels = drawn(scale, shift)
    platt = fit_calibration(odds, labels, "platt")
    assert platt.scale == pytest.approx(scale, rel=0.1)
    assert platt.shift == pytest.approx(shift, abs=0.12)
    if shift == 0:
        assert fit_calibration(odds, labels, "temperature").scale == pytest.approx(scale, rel=0.1)


def test_log_odds_of_any_size_are_calibrated_alike() -> None:
    odds, labels = drawn(0.7, 0.0)
    tiny = fit_calibration([z * 1e-4 for z in odds], labels, "temperature")
    assert tiny.scale * 1e-4 == pytest.approx(fit_calibration(odds, labels, "temperature").scale, rel=1e-4)


@pytest.mark.parametrize("labels", [[1.0, 1.0, 0.0, 0.0], [1.0] * 4, [0.0] * 4, [0.0, 0.0, 1.0, 1.0]])
@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_separable_one_sided_and_reversed_values_give_a_finite_calibration(
    labels: list[float], method: str
) -> None:
    found = fit_calibration([3.0, 2.0, -2.0, -3.0], labels, method)  # pyright: ignore[reportArgumentType]
    probabilities = [found.probability(z, "none") for z in (3.0, 2.0, -2.0, -3.0)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(0 <= p <= 1 for p in probabilities)


def test_values_of_every_activation_stand_for_log_odds() -> None:
    assert log_odds(1.5, "none") == 1.5
    assert log_odds(0.8, "sigmoid") == pytest.approx(math.log(4))
    assert log_odds(0.8, "softmax") == pytest.approx(math.log(4))
    assert log_odds(0.6, "difference") == pytest.approx(math.log(4))
    assert log_odds(1.0, "softmax") == pytest.approx(-log_odds(0.0, "softmax"))
    assert Calibration(1.0).probability(-800.0, "none") == pytest.approx(0.0)


def test_a_calibration_survives_its_file_and_a_broken_one_is_named(tmp_path: Path) -> None:
    save_calibration(tmp_path, Calibration(0.3, -1.25))
    assert read_calibration(tmp_path) == Calibration(0.3, -1.25)
    (tmp_path / CALIBRATION_FILE).write_text('{"scale": -1, "shift": 0}')
    with pytest.raises(ConfigError, match="scale=-1"):
        read_calibration(tmp_path)
    with pytest.raises(ConfigError, match=r"rewards\.fit writes it"):
        read_calibration(tmp_path / "nowhere")


def test_it_applies_where_the_settings_ask_for_it(tmp_path: Path) -> None:
    folder = tiny_folder("skywork-reward", tmp_path / "model")
    save_convention(folder, PRESETS["skywork-reward"])
    save_calibration(folder, Calibration(0.5, 1.0))
    raw = RewardModel(ModelSettings(path=str(folder), device="cpu"))
    calibrated = RewardModel(ModelSettings(path=str(folder), device="cpu", calibrated=True))
    requests = [Request("1 + 1?", ("It is 2.",)), Request("1 + 1?", ("It is 3.",))]
    for own, told in zip(raw.judge(requests), calibrated.judge(requests), strict=True):
        assert told.values[0] == pytest.approx(1 / (1 + math.exp(-(0.5 * own.values[0] + 1.0))))
    assert raw.version != calibrated.version
    assert (raw.floor, calibrated.floor) == (None, 0.0)
    empty = Sample(Problem("p", "1 + 1?"), " ")
    (score,) = OutcomeScorer(ModelSettings(path=str(folder), device="cpu", calibrated=True)).score([empty])
    assert score.value == 0.0
