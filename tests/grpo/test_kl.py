"""KL estimators: their gradients by enumeration, in the loss and in the reward; traps 26 and 27."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from loss_rows import (
    fixture,
    gradient,
)
from torch import Tensor

from grpo.advantage import AdvantageSettings, outcome_advantages
from grpo.kl import token_kl_penalty
from grpo.loss import LossSettings, policy_loss
from grpo.types import LossInputs
from rewards.errors import ConfigError


def exact_gradients(logits: Tensor, ref: Tensor) -> dict[str, Tensor]:
    """Gradients with respect to the logits of KL(pi || ref), KL(ref || pi) and the constant 0."""
    logp = logits.log_softmax(0)
    (reverse,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)
    (forward,) = torch.autograd.grad((ref.exp() * (ref - logp)).sum(), logits)
    return {"reverse": reverse, "forward": forward, "zero": torch.zeros_like(reverse)}


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_corrected"])
def test_trap_26_gradient_of_each_kl_estimator_by_enumeration(estimator: str, on_policy: bool) -> None:
    # One token, five outcomes, each a row weighted by its probability under the sampler: an expectation.
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_(True)
    ref = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    sampler = logp.detach() if on_policy else torch.randn(5, generator=g, dtype=torch.float64).log_softmax(0)
    inputs = LossInputs(
        logprobs=logp[:, None],
        old_logprobs=sampler[:, None],
        ref_logprobs=ref[:, None],
        advantages=torch.zeros(5, 1, dtype=torch.float64),
        mask=torch.ones(5, 1, dtype=torch.bool),
        row_weights=sampler.exp(),
    )
    loss = policy_loss(inputs, LossSettings(kl_coefficient=1.0, kl_estimator=estimator)).loss
    (grad,) = torch.autograd.grad(loss, logits, retain_graph=True)
    exact = exact_gradients(logits, ref)
    matches = {name for name, value in exact.items() if torch.allclose(grad, value, atol=1e-9)}
    expected = {"k2": {"reverse"}, "k3": {"forward"}, "k3_corrected": {"reverse"}}[estimator]
    if not on_policy:  # only the corrected form knows who sampled
        expected = {"reverse"} if estimator == "k3_corrected" else set()
    assert matches == expected


def test_trap_26_k1_as_a_loss_penalises_nothing_and_is_refused_but_works_in_the_reward() -> None:
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_(True)
    ref = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    exact = exact_gradients(logits, ref)
    (as_loss,) = torch.autograd.grad((logp.detach().exp() * (logp - ref)).sum(), logits, retain_graph=True)
    torch.testing.assert_close(as_loss, exact["zero"])
    with pytest.raises(ConfigError, match="expected gradient is zero"):
        LossSettings(kl_coefficient=0.1, kl_estimator="k1")
    # In the reward: REINFORCE with reward -k1 gives the gradient of the KL.
    mask = torch.ones(5, 1, dtype=torch.bool)
    penalty = token_kl_penalty(logp[:, None], ref[:, None], mask, "k1", 1.0)
    assert not penalty.requires_grad
    inputs = LossInputs(logp[:, None], None, None, -penalty, mask, logp.detach().exp())
    (grad,) = torch.autograd.grad(policy_loss(inputs, LossSettings()).loss, logits)
    torch.testing.assert_close(grad, exact["reverse"])


@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_corrected"])
def test_trap_27_twice_the_coefficient_is_twice_the_kl_part(estimator: str) -> None:
    def run(beta: float, **changes: object) -> tuple[float, Tensor]:
        settings = LossSettings(kl_coefficient=beta, kl_estimator=estimator, importance_cap=1.02)
        output, grad = gradient(replace(fixture(), **changes), settings)  # type: ignore[arg-type]
        return output.loss.item(), grad

    (none, g0), (once, g1), (twice, g2) = run(0.0), run(0.3), run(0.6)
    assert twice - none == pytest.approx(2 * (once - none), abs=1e-12)
    torch.testing.assert_close(g2 - g0, 2 * (g1 - g0))
    # Neither the importance weight nor a clipped or silent objective acts on the KL term.
    alone, _ = run(0.3, advantages=torch.zeros(3, 4, dtype=torch.float64))
    assert alone == pytest.approx(once - none, abs=1e-12)


def test_kl_in_the_reward_changes_the_advantages_as_worked() -> None:
    old = torch.tensor([[-0.5, -0.2], [-0.1, -0.3], [-0.7, -0.9], [-0.2, -0.4]])
    ref = old + torch.tensor([[0.1, 0.0], [-0.2, 0.3], [0.05, 0.05], [0.0, -0.1]])
    mask = torch.ones(4, 2, dtype=torch.bool)
    penalty = token_kl_penalty(old, ref, mask, "k1", 0.05).sum(1)
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]]) - penalty
    result = outcome_advantages(rewards, AdvantageSettings("leave_one_out", "none"))
    expected = torch.tensor([[1.0033333, -0.33, -0.33, -0.3433333]])
    torch.testing.assert_close(result.values, expected, rtol=0, atol=1e-6)
    # Masked tokens cost nothing.
    mask[0, 0] = False
    old[0, 0] = float("nan")
    assert token_kl_penalty(old, ref, mask, "k1", 0.05)[0].sum().item() == 0
