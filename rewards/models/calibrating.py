"""Values of a reward model -> probabilities that are as often right as they say, by held-out questions.

A calibration is p = sigmoid(scale * log-odds + shift): temperature scaling (Guo and others 2017, 1706.04599)
where only 1 / scale is fitted, Platt's (1999) where both are. It changes no order of values, and applies
where `ModelSettings.calibrated` asks for it. Knows nothing of text or models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from rewards.errors import ConfigError
from rewards.models.conventions import Activation

CALIBRATION_FILE = "calibration.json"
"""The file of a model's folder that holds its calibration."""
_CLOSEST = 1e-7  # a probability is taken to be at least this far from 0 and 1
_LOG_SCALES = 7.0  # scales from 1/1000 to 1000, of log-odds that are about 1 in size


@dataclass(frozen=True, slots=True)
class Calibration:
    """p = sigmoid(scale * log-odds + shift).

    Raises:
        ConfigError: scale is not above 0, or a number is not finite.
    """

    scale: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.shift)):
            raise ConfigError(f"calibration: scale={self.scale}, shift={self.shift}: expected scale > 0")

    def probability(self, value: float, activation: Activation) -> float:
        """The probability in [0, 1] that a value of a model of this activation stands for.

        >>> round(Calibration(scale=2.0).probability(0.75, "sigmoid"), 6)  # odds of 3 become 9
        0.9
        """
        odds = self.scale * log_odds(value, activation) + self.shift
        return 1 / (1 + math.exp(-odds)) if odds > 0 else 1 - 1 / (1 + math.exp(odds))


def log_odds(value: float, activation: Activation) -> float:
    """What the activation was taken of: probabilities and 2 p - 1 become log-odds, other values stay.

    Probabilities that fp32 could not tell from 0 or 1 count as 1e-7 away from it.
    """
    if activation == "none":
        return value
    share = (value + 1) / 2 if activation == "difference" else value
    share = min(max(share, _CLOSEST), 1 - _CLOSEST)
    return math.log(share) - math.log1p(-share)


def fit_calibration(
    odds: Sequence[float], labels: Sequence[float], method: Literal["temperature", "platt"]
) -> Calibration:
    """The calibration of the lowest cross-entropy.

    Targets are Platt's, which keep the optimum finite where values part right and wrong wholly: a right one
    counts as (R + 1) / (R + 2), a wrong one as 1 / (W + 2), with R right and W wrong ones in all.

    Args:
        odds: log-odds, one or more; of pairs the difference of their scores.
        labels: in [0, 1]; of pairs all 1.
        method: temperature fits the scale alone.
    """
    z = torch.tensor(list(odds), dtype=torch.float64)
    y = torch.tensor(list(labels), dtype=torch.float64)
    right, wrong = float(y.sum()), float((1 - y).sum())
    size = z.abs().mean().clamp_min(1e-12)  # a log-ratio may be of the order of 1e-3
    targets = y * (right + 1) / (right + 2) + (1 - y) / (wrong + 2)
    log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros((), dtype=torch.float64, requires_grad=method == "platt")
    fitted = [log_scale, shift] if method == "platt" else [log_scale]
    optimiser: Any = torch.optim.LBFGS(
        fitted, max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def scale() -> Tensor:
        return log_scale.clamp(-_LOG_SCALES, _LOG_SCALES).exp() / size

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss: Any = functional.binary_cross_entropy_with_logits(scale() * z + shift, targets)
        loss.backward()
        return loss

    optimiser.step(closure)
    return Calibration(scale().item(), shift.item())


def save_calibration(folder: Path, calibration: Calibration) -> None:
    """Writes CALIBRATION_FILE into a model's folder."""
    text = json.dumps(asdict(calibration), indent=1) + "\n"
    (folder / CALIBRATION_FILE).write_text(text, encoding="utf-8")


def read_calibration(folder: Path) -> Calibration:
    """What `save_calibration` wrote.

    Raises:
        ConfigError: for a file that is missing or malformed.
    """
    file = folder / CALIBRATION_FILE
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        return Calibration(float(record["scale"]), float(record["shift"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"model.calibrated=true: {file} cannot be read ({error}); python -m rewards.fit writes it, "
            "with calibration=temperature or platt; or set model.calibrated=false"
        ) from error
