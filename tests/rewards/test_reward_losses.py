"""Losses against their formulas written out, and the targets that labels become."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from rewards.labelled import NEUTRAL, OutcomeExample, ProcessExample, StepLabel
from rewards.models.fit_settings import LossSettings
from rewards.models.losses import bradley_terry, class_logits, cross_entropy
from rewards.models.targets import outcome_masses, step_masses, step_shares


def test_bradley_terry_is_its_formula() -> None:
    chosen, rejected, margins = [2.0, -1.0, 0.5], [1.0, 0.5, 0.5], [0.0, 0.5, 1.0]
    # -log sigmoid(r_c - r_r - m), worked with math: differences 1, -2 and -1
    written = sum(math.log1p(math.exp(-d)) for d in (1.0, -2.0, -1.0))
    found = bradley_terry(torch.tensor(chosen), torch.tensor(rejected), torch.tensor(margins), 0.0)
    assert found.item() == pytest.approx(written, rel=1e-6)
    # + 0.01 * ((2 + 1)^2 + (-1 + 0.5)^2 + 1^2) = 0.01 * 10.25
    centred = bradley_terry(torch.tensor(chosen), torch.tensor(rejected), torch.tensor(margins), 0.01)
    assert centred.item() == pytest.approx(written + 0.1025, rel=1e-6)


def test_bradley_terry_pushes_pairs_apart_and_does_not_overflow() -> None:
    chosen = torch.tensor([0.0, -1e4], requires_grad=True)
    rejected = torch.tensor([0.0, 1e4], requires_grad=True)
    loss = bradley_terry(chosen, rejected, torch.zeros(2), 0.0)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2) + 2e4)
    assert chosen.grad is not None
    assert chosen.grad.tolist() == pytest.approx([-0.5, -1.0])  # sigmoid(d) - 1
    assert bradley_terry(torch.zeros(0), torch.zeros(0), torch.zeros(0), 1.0).item() == 0.0


@pytest.mark.parametrize("label", [0.0, 0.3, 1.0])
def test_cross_entropy_of_a_scalar_is_bce_with_logits(label: float) -> None:
    scores = torch.tensor([-3.0, 0.2, 40.0], dtype=torch.float64, requires_grad=True)
    masses = torch.tensor([[1 - label, label]] * 3)
    cross_entropy(class_logits(scores), masses).backward()
    again = scores.detach().clone().requires_grad_()
    written = functional.binary_cross_entropy_with_logits(
        again, torch.full((3,), label).double(), reduction="sum"
    )
    written.backward()
    assert cross_entropy(class_logits(scores), masses).item() == pytest.approx(written.item(), rel=1e-5)
    assert scores.grad is not None
    assert again.grad is not None
    assert torch.allclose(scores.grad, again.grad, atol=1e-6)


def test_cross_entropy_of_classes_is_torchs_without_the_masked_rows() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, -100, 1, -100])
    masses = torch.zeros(5, 3)
    for place, label in enumerate(labels.tolist()):
        if label >= 0:
            masses[place, label] = 1.0
    written = functional.cross_entropy(logits, labels, reduction="sum")
    assert cross_entropy(logits, masses).item() == pytest.approx(written.item(), rel=1e-6)


def test_a_batch_without_a_label_has_a_loss_and_gradients_of_zero() -> None:
    logits = torch.randn(4, 2, requires_grad=True)
    loss = cross_entropy(logits, torch.zeros(4, 2))
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0.0


def outcome(question: str, label: float) -> OutcomeExample:
    return OutcomeExample(question, f"{label}", label)


def test_balanced_outcomes_weigh_alike_within_their_group() -> None:
    examples = [outcome("a", 1), outcome("A ", 0), outcome("a", 0), outcome("b", 1), outcome("c", 0.25)]
    assert outcome_masses(examples, "none") == [(0, 1), (1, 0), (1, 0), (0, 1), (0.75, 0.25)]
    # right 2.25, wrong 2.75 of 5: scales 5 / 4.5 and 5 / 5.5
    classes = outcome_masses(examples, "classes")
    assert sum(right for _, right in classes) == pytest.approx(2.5)
    assert sum(wrong for wrong, _ in classes) == pytest.approx(2.5)
    question = outcome_masses(examples, "question")
    assert question[:3] == [(0, 1.5), (0.75, 0), (0.75, 0)]
    assert question[3] == (0, 0)  # right ones only
    assert question[4] == pytest.approx((0.5, 0.5))


LABELS: tuple[StepLabel, ...] = (1.0, NEUTRAL, 0.0, NEUTRAL, 1.0, None)


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        (LossSettings(), (1, 1, 0, 1, 1, None)),
        (LossSettings(neutral="wrong"), (1, 0, 0, 0, 1, None)),
        (LossSettings(neutral="half"), (1, 0.5, 0, 0.5, 1, None)),
        (LossSettings(neutral="mask"), (1, None, 0, None, 1, None)),
        (LossSettings(after_error="mask"), (1, 1, 0, None, None, None)),
        (LossSettings(after_error="wrong"), (1, 1, 0, 0, 0, 0)),
        (LossSettings(after_error="wrong", neutral="wrong"), (1, 0, 0, 0, 0, 0)),
    ],
)
def test_step_labels_by_every_choice(settings: LossSettings, shares: tuple[float | None, ...]) -> None:
    example = ProcessExample("q", tuple("abcdef"), LABELS)
    assert step_shares(example, settings) == list(shares)
    expected = [(0, 0) if share is None else (1 - share, share) for share in shares]
    assert step_masses(example, settings) == expected


def test_a_third_class_for_neutral_steps() -> None:
    example = ProcessExample("q", ("a", "b", "c", "d"), (1.0, NEUTRAL, 0.3, None))
    masses = step_masses(example, LossSettings(neutral="class"))
    assert masses == [(0, 1, 0), (0, 0, 1), (pytest.approx(0.7), 0.3, 0), (0, 0, 0)]


def test_the_mean_over_solutions_gives_each_the_weight_of_one() -> None:
    example = ProcessExample("q", tuple("abcd"), (1.0, 0.0, None, 0.5))
    masses = step_masses(example, LossSettings(mean="sequence"))
    assert sum(map(sum, masses)) == pytest.approx(1.0)
    assert masses[2] == (0, 0)
    unlabelled = ProcessExample("q", ("a",), (None,))
    assert step_masses(unlabelled, LossSettings(mean="sequence")) == [(0, 0)]
