"""Labels -> what the losses aim at: masses over the classes (wrong, right[, neutral]).

Knows the choices of `LossSettings`; knows nothing of tokens or tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rewards.labelled import NEUTRAL, OutcomeExample, ProcessExample, StepLabel
from rewards.models.fit_settings import Balance, LossSettings
from rewards.questions import question_hash

Masses = tuple[float, ...]
"""What each class weighs: (1 - q, q) of a label q, scaled by a weight; all 0 for no label."""

_SHARES: dict[str, float] = {"right": 1.0, "wrong": 0.0, "half": 0.5}


def outcome_masses(examples: Sequence[OutcomeExample], balance: Balance) -> list[Masses]:
    """The masses (wrong, right) of each example; they sum to the number of examples that have any.

    Balanced, right and wrong weigh the same in each group (all examples, or those of a question), and a group
    with one kind only has no mass.

    >>> examples = [OutcomeExample("q", text, label) for text, label in zip("abc", (1, 0, 0))]
    >>> outcome_masses(examples, "question")
    [(0.0, 1.5), (0.75, 0.0), (0.75, 0.0)]
    """
    groups: dict[int, list[int]] = {}
    for place, example in enumerate(examples):
        group = question_hash(example.question) if balance == "question" else 0
        groups.setdefault(group, []).append(place)
    masses: list[Masses] = [(1 - example.label, example.label) for example in examples]
    if balance == "none":
        return masses
    for places in groups.values():
        wrong, right = (sum(masses[place][side] for place in places) for side in (0, 1))
        scales = (len(places) / (2 * wrong), len(places) / (2 * right)) if wrong and right else (0.0, 0.0)
        for place in places:
            masses[place] = tuple(mass * scale for mass, scale in zip(masses[place], scales, strict=True))
    return masses


def step_masses(example: ProcessExample, loss: LossSettings) -> list[Masses]:
    """The masses of each step, three classes where neutral ones are a class of their own, else two.

    >>> example = ProcessExample("q", ("a", "b", "c"), (1.0, 0.0, 1.0))
    >>> step_masses(example, LossSettings(after_error="mask"))
    [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)]
    """
    labels = _after_error(example.labels, loss)
    masses = [_masses(label, loss) for label in labels]
    if loss.mean == "step":
        return masses
    labelled = sum(map(any, masses))
    return [tuple(mass / max(labelled, 1) for mass in row) for row in masses]


def step_shares(example: ProcessExample, loss: LossSettings) -> list[float | None]:
    """How right each step counts as, in [0, 1]; None without a label. A class of its own counts as right."""
    return [_share(label, loss) for label in _after_error(example.labels, loss)]


def _share(label: StepLabel, loss: LossSettings) -> float | None:
    if label != NEUTRAL:
        return label
    if loss.neutral == "mask":
        return None
    return 1.0 if loss.neutral == "class" else _SHARES[loss.neutral]


def _after_error(labels: Sequence[StepLabel], loss: LossSettings) -> list[StepLabel]:
    """The labels with those behind the first wrong step (below 0.5) masked, or all wrong, as asked."""
    shares = [_share(label, loss) for label in labels]
    wrong = next((place for place, share in enumerate(shares) if share is not None and share < 0.5), None)
    if wrong is None or loss.after_error == "keep":
        return list(labels)
    later: Literal[0] | None = 0 if loss.after_error == "wrong" else None
    return [*labels[: wrong + 1], *[later] * (len(labels) - wrong - 1)]


def _masses(label: StepLabel, loss: LossSettings) -> Masses:
    classes = loss.neutral == "class"
    if classes and label == NEUTRAL:
        return (0.0, 0.0, 1.0)
    share = _share(label, loss)
    two = (0.0, 0.0) if share is None else (1 - share, share)
    return (*two, 0.0) if classes else two
