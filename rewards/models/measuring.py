"""How well a reward model tells right from wrong on labelled examples, and its calibration on them.

The figures are those of rewards.protocols; labels of 0.5 and more count as right. Completions that the model
cannot judge (no room beside the question, our own failures) do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewards.aggregate import aggregate
from rewards.format import FormatSpec
from rewards.labelled import Example, OutcomeExample, PreferenceExample, ProcessExample
from rewards.models.calibrating import Calibration, fit_calibration
from rewards.models.engine import RewardModel
from rewards.models.fit_settings import CalibrationMethod, LossSettings
from rewards.models.judging import cut
from rewards.models.targets import step_shares
from rewards.models.truncation import Request
from rewards.protocols.calibration import calibrate
from rewards.protocols.discrimination import auc, auc_within, pair_accuracy
from rewards.protocols.steps import measure_steps
from rewards.questions import question_hash

Metrics = dict[str, float | None]
"""Figures by name, in [0, 1]; None where the examples leave nothing to measure."""


@dataclass(frozen=True, slots=True)
class _Outcomes:
    odds: list[float]
    labels: list[float]
    questions: list[int]


@dataclass(frozen=True, slots=True)
class _Pairs:
    chosen: list[float]
    rejected: list[float]
    subsets: list[str]


@dataclass(frozen=True, slots=True)
class _Solutions:
    odds: list[list[float]]
    labels: list[list[float | None]]

    def labelled(self) -> tuple[list[float], list[float]]:
        """The log-odds and the labels of all labelled steps."""
        flat = [
            (value, label)
            for row, marks in zip(self.odds, self.labels, strict=True)
            for value, label in zip(row, marks, strict=True)
            if label is not None
        ]
        return [value for value, _ in flat], [label for _, label in flat]


_Judged = _Outcomes | _Pairs | _Solutions | None
"""What a model said of the examples of one kind; None when it judged none."""


def measure(
    model: RewardModel,
    examples: Sequence[Example],
    loss: LossSettings | None = None,
    calibration: Calibration | None = None,
) -> Metrics:
    """The figures of a model on examples of one kind.

    Args:
        model: any reward model; its own calibration, where it applies one, counts as its values.
        examples: none give no figures.
        loss: says what neutral steps and those behind an error count as; None: the defaults.
        calibration: applied before ECE and Brier score; None measures the model's own probabilities.

    Returns:
        outcomes: auc, auc_within (within questions), ece, brier. pairs: accuracy (strictly higher), and
        accuracy/SUBSET. solutions: auc, error_ap, first_error_recall (of steps), ece, brier.
    """
    return _figures(_judge(model, examples, loss or LossSettings()), calibration)


def measure_and_calibrate(
    model: RewardModel, examples: Sequence[Example], method: CalibrationMethod, loss: LossSettings
) -> tuple[Metrics, Calibration | None]:
    """The figures of a model, and the calibration that the same examples ask for; each is judged once.

    The figures are those of `measure`, and ece and brier once more under calibrated/ with the calibration. It
    is None with method=none, or without any example that the model judges. Of pairs it is the temperature of
    their preference, sigmoid((chosen - rejected) / T).
    """
    judged = _judge(model, examples, loss)
    figures = _figures(judged, None)
    calibration = None if method == "none" else _calibration(judged, method)
    if calibration is not None:
        applied = _figures(judged, calibration)
        figures |= {f"calibrated/{name}": applied[name] for name in ("ece", "brier") if name in applied}
    return figures, calibration


def _figures(judged: _Judged, calibration: Calibration | None) -> Metrics:
    match judged:
        case None:
            return {}
        case _Outcomes(odds, labels, questions):
            right = [label >= 0.5 for label in labels]
            told: Metrics = {"auc": auc(odds, right), "auc_within": auc_within(odds, right, questions)}
            return told | _reliability(odds, right, calibration)
        case _Pairs(chosen, rejected, subsets):
            shares = pair_accuracy(chosen, rejected, subsets)
            named = {f"accuracy/{name}": share for name, share in shares.items() if name not in ("all", "")}
            return {"accuracy": shares["all"], **named}
        case _Solutions() as solutions:
            right_steps = [
                [None if label is None else label >= 0.5 for label in row] for row in solutions.labels
            ]
            found = measure_steps(solutions.odds, right_steps, threshold=0.0)  # log-odds 0: probability 0.5
            odds, labels = solutions.labelled()
            return {
                "auc": found.auc,
                "error_ap": found.error_ap,
                "first_error_recall": found.first_error_recall,
                **_reliability(odds, [label >= 0.5 for label in labels], calibration),
            }


def _calibration(judged: _Judged, method: Literal["temperature", "platt"]) -> Calibration | None:
    match judged:
        case None:
            return None
        case _Outcomes(odds, labels, _):
            return fit_calibration(odds, labels, method)
        case _Pairs(chosen, rejected, _):
            apart = [better - worse for better, worse in zip(chosen, rejected, strict=True)]
            return fit_calibration(apart, [1.0] * len(apart), method)
        case _Solutions() as solutions:
            odds, marks = solutions.labelled()
            return fit_calibration(odds, marks, method) if odds else None


def _judge(model: RewardModel, examples: Sequence[Example], loss: LossSettings) -> _Judged:
    """The log-odds of what the model judged, with its labels; None when that is nothing."""
    if solutions := [example for example in examples if isinstance(example, ProcessExample)]:
        return _judge_solutions(model, solutions, loss)
    if pairs := [example for example in examples if isinstance(example, PreferenceExample)]:
        chosen = _totals(model, [(pair.question, pair.chosen) for pair in pairs])
        rejected = _totals(model, [(pair.question, pair.rejected) for pair in pairs])
        both = [
            (better, worse, pair.subset)
            for better, worse, pair in zip(chosen, rejected, pairs, strict=True)
            if better is not None and worse is not None
        ]
        return (
            _Pairs([b for b, _, _ in both], [w for _, w, _ in both], [s for _, _, s in both])
            if both
            else None
        )
    outcomes = [example for example in examples if isinstance(example, OutcomeExample)]
    totals = _totals(model, [(example.question, example.completion) for example in outcomes])
    judged = [(value, example) for value, example in zip(totals, outcomes, strict=True) if value is not None]
    if not judged:
        return None
    labels = [example.label for _, example in judged]
    return _Outcomes([v for v, _ in judged], labels, [question_hash(e.question) for _, e in judged])


def _judge_solutions(
    model: RewardModel, examples: Sequence[ProcessExample], loss: LossSettings
) -> _Solutions | None:
    judgements = model.judge([Request(example.question, example.steps) for example in examples])
    rows = [
        ([model.log_odds(value) for value in judged.values], step_shares(example, loss)[: judged.kept])
        for judged, example in zip(judgements, examples, strict=True)
        if judged.values
    ]
    return _Solutions([odds for odds, _ in rows], [labels for _, labels in rows]) if rows else None


def _totals(model: RewardModel, completions: Sequence[tuple[str, str]]) -> list[float | None]:
    """The log-odds of whole completions; of a process model's aggregate. None where it judged nothing."""
    convention = model.convention
    requests: list[Request] = []
    for question, text in completions:
        places = cut(text, FormatSpec(), convention.strategy)
        requests.append(Request(question, tuple(text[place.start : place.end] for place in places)))
    return [
        model.log_odds(
            judged.values[0]
            if convention.kind == "outcome"
            else aggregate(judged.values, convention.aggregation)
        )
        if judged.values
        else None
        for judged in model.judge(requests)
    ]


def _reliability(odds: Sequence[float], right: Sequence[bool], calibration: Calibration | None) -> Metrics:
    if not odds:
        return {"ece": None, "brier": None}
    applied = calibration or Calibration(scale=1.0)
    found = calibrate([applied.probability(value, "none") for value in odds], right)
    return {"ece": found.ece, "brier": found.brier}
