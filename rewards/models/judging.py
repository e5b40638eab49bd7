"""What both scorers share: samples -> requests, and what the model did not judge -> scores.

Knows verdicts; knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewards.errors import ConfigError
from rewards.format import FormatSpec
from rewards.models.conventions import Convention, Kind
from rewards.models.presets import preset
from rewards.models.settings import ModelSettings
from rewards.steps import Step, StepSettings, Strategy, split_steps
from rewards.types import Reason, Sample, Score

_NOTE = 200  # characters of an error message that a score keeps


def require_kind(convention: Convention, kind: Kind, settings: ModelSettings) -> None:
    """Refuses a convention of the other kind.

    Raises:
        ConfigError: naming the reward that fits.
    """
    if convention.kind != kind:
        other = {"outcome": "orm", "process": "prm"}[convention.kind]
        raise ConfigError(
            f"model.convention={settings.convention}: {settings.path} is a model of kind {convention.kind}, "
            f"expected {kind}; use reward={other}"
        )


def require_named_kind(settings: ModelSettings, kind: Kind) -> None:
    """The same before anything is loaded, where the settings name a preset."""
    if settings.convention is not None:
        require_kind(preset(settings.convention), kind, settings)


def cut(text: str, spec: FormatSpec, strategy: Strategy) -> list[Step]:
    """The steps of a completion by its own layout's tags; one step of no text for the empty one."""
    settings = StepSettings(strategy=strategy, think_open=spec.think_open, think_close=spec.think_close)
    return split_steps(text, settings) or [Step(0, 0, "text")]


def step_texts(sample: Sample, steps: Sequence[Step]) -> tuple[str, ...]:
    """The steps' texts, joined the whole assistant turn: what the template had put there opens the first."""
    first, *others = (sample.text[step.start : step.end] for step in steps)
    return sample.prefill + first, *others


def no_room(prompt_tokens: int, max_length: int, version: str) -> Score:
    """The question is too long for the model: the problem's fault."""
    notes = {"prompt_tokens": str(prompt_tokens), "max_length": str(max_length)}
    return Score.abstained(Reason.PROMPT_TOO_LONG, version=version, notes=notes)


def failed(message: str, version: str) -> Score:
    """Our machinery broke."""
    return Score.failed(Reason.INTERNAL, version=version, notes={"note": message[:_NOTE]})


def length_notes(kept: int, steps: int, is_cut: bool) -> Mapping[str, str]:
    """What of an over-long completion the model did not read; empty where it read all."""
    notes: dict[str, str] = {}
    if kept < steps:
        notes["steps_left_out"] = str(steps - kept)
    if is_cut:
        notes["first_step"] = "cut short"
    return notes
