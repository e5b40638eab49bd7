"""What is known of a fit: its key, its numbers, and the file in the model's folder that tells them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rewards.errors import ConfigError
from rewards.labelled import Example, example_to_record
from rewards.models.calibrating import Calibration
from rewards.models.conventions import FIT_FILE, Convention
from rewards.models.fit_settings import FitSettings
from rewards.records import json_line

_RUNNING = ("progress", "trackers", "checkpoint_every")
"""Settings that change no weight."""
_HASHED = 2**26  # bytes of a weights file that are hashed at its start and its end


@dataclass(frozen=True, slots=True)
class FitReport:
    """What came of a fit.

    Args:
        key: the same for equal base, convention, data and settings.
        base: that it began from.
        version: of the scores of the model.
        head: new or kept, or the kind of a head that is part of the base (vocabulary, log_ratio).
        train_hash: of the training examples.
        heldout_hash: of the held-out ones.
        examples: trained on.
        questions: of these.
        heldout: held-out examples.
        left_out: training examples that were not trained on, by reason: too_long, no_label, one_kind (of a
            question with balance=question), blank_step (no model is asked about a step that shows nothing),
            or empty (nor about such a completion, where values have a floor).
        empty: of the examples trained on, those with a completion that shows nothing.
        steps: of the optimiser.
        losses: (step, mean loss since the one before).
        metrics: on the held-out examples; calibrated/NAME with the calibration applied.
        calibration: fitted on them; None where none was asked for, or nothing is held out.
        seconds: the fit took.
    """

    key: str
    base: str
    version: str
    head: str
    train_hash: str
    heldout_hash: str
    examples: int
    questions: int
    heldout: int
    left_out: Mapping[str, int]
    empty: int
    steps: int
    losses: tuple[tuple[int, float], ...]
    metrics: Mapping[str, float | None]
    calibration: Calibration | None
    seconds: float


def write_report(folder: Path, report: FitReport) -> None:
    """Writes FIT_FILE into a model's folder."""
    text = json.dumps(asdict(report), ensure_ascii=False, indent=1) + "\n"
    (folder / FIT_FILE).write_text(text, encoding="utf-8")


def read_report(folder: Path) -> FitReport:
    """What `write_report` wrote.

    Raises:
        ConfigError: for a folder without a readable report.
    """
    file = folder / FIT_FILE
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        values = {field.name: record[field.name] for field in fields(FitReport)}
        values["losses"] = tuple((int(step), float(loss)) for step, loss in record["losses"])
        told = record["calibration"]
        values["calibration"] = None if told is None else Calibration(**told)
        return FitReport(**values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no report of a fit ({error})") from error


def fit_key(base: Path, convention: Convention, hashes: Sequence[str], settings: FitSettings) -> str:
    """Names a fit by everything that its weights depend on; large weights files by their ends."""
    told = {name: value for name, value in asdict(settings).items() if name not in _RUNNING}
    digest = hashlib.sha256(json.dumps([asdict(convention), list(hashes), told], sort_keys=True).encode())
    for file in sorted(path for path in base.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode())
        with file.open("rb") as handle:
            digest.update(handle.read(_HASHED))
            handle.seek(max(0, size - _HASHED))
            digest.update(handle.read())
    return digest.hexdigest()[:16]


def data_hash(examples: Iterable[Example]) -> str:
    """Names examples and their order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json_line(example_to_record(example)))
    return digest.hexdigest()[:16]
