"""PPO's pieces: GAE by definition and by hand, the value loss, token rewards, the adaptive KL coefficient."""

from __future__ import annotations

import random

import pytest
import reference
import torch

from grpo.batch import row_weights, step_totals
from grpo.kl import token_kl_penalty
from grpo.value import AdaptiveKL, ValueInputs, gae, token_rewards, value_loss, whiten
from rewards.errors import ConfigError

NAN = float("nan")


def test_gae_by_hand() -> None:
    # deltas: 0 + .9*.5 - .2 = .25; 0 + .9*.4 - .5 = -.14; 1 - .4 = .6
    # A_2 = .6; A_1 = -.14 + .9*.8*.6 = .292; A_0 = .25 + .72*.292 = .46024
    rewards = torch.tensor([[0.0, 0.0, 1.0, NAN]])
    values = torch.tensor([[0.2, 0.5, 0.4, NAN]])
    mask = torch.tensor([[True, True, True, False]])
    advantages, returns = gae(rewards, values, mask, gamma=0.9, lam=0.8)
    torch.testing.assert_close(advantages, torch.tensor([[0.46024, 0.292, 0.6, 0.0]]))
    torch.testing.assert_close(returns, torch.tensor([[0.66024, 0.792, 1.0, 0.0]]))


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.0), (0.5, 0.5)])
def test_gae_equals_its_definition(gamma: float, lam: float) -> None:
    rng = random.Random(0)
    lengths = [0, 1, 3, 6]
    rewards = [[rng.gauss(0, 1) for _ in range(6)] for _ in lengths]
    values = [[rng.gauss(0, 1) for _ in range(6)] for _ in lengths]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    advantages, returns = gae(torch.tensor(rewards), torch.tensor(values), mask, gamma, lam)
    for i, n in enumerate(lengths):
        expected = reference.gae(rewards[i][:n], values[i][:n], gamma, lam)
        assert advantages[i, :n].tolist() == pytest.approx(expected, abs=1e-5)
        assert returns[i, :n].tolist() == pytest.approx(
            [a + v for a, v in zip(expected, values[i], strict=False)], abs=1e-5
        )
        assert advantages[i, n:].count_nonzero() == returns[i, n:].count_nonzero() == 0


def test_gae_without_discount_is_reward_to_go_minus_value() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    advantages, returns = gae(
        torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.5, 0.5, 0.5]]), mask, 1.0, 1.0
    )
    assert advantages.tolist() == [[5.5, 4.5, 2.5]]
    assert returns.tolist() == [[6.0, 5.0, 3.0]]
    with pytest.raises(ConfigError, match="gamma"):
        gae(torch.zeros(1, 3), torch.zeros(1, 3), mask, 1.1, 1.0)


def test_token_rewards_pay_the_last_token_and_charge_the_kl_on_each() -> None:
    # DeepSeekMath eq. 2 with beta .1: logp - ref is .5, 0, -.5; the score 1 is on the last of three tokens.
    logprobs = torch.tensor([[-1.0, -1.0, -1.0, NAN], [NAN] * 4])
    ref = torch.tensor([[-1.5, -1.0, -0.5, NAN], [NAN] * 4])
    mask = torch.tensor([[True, True, True, False], [False] * 4])
    penalty = token_kl_penalty(logprobs, ref, mask, "k1", 0.1)
    rewards = token_rewards(torch.tensor([1.0, NAN]), penalty, mask)
    expected = torch.tensor([[-0.05, 0.0, 1.05, 0.0], [0.0] * 4], dtype=torch.float64)
    torch.testing.assert_close(rewards, expected)


def test_trap_16_a_row_without_tokens_is_paid_nowhere() -> None:
    mask = torch.tensor([[False, False], [True, False]])
    rewards = token_rewards(torch.tensor([5.0, 7.0]), torch.zeros(2, 2), mask)
    assert rewards.tolist() == [[0.0, 0.0], [7.0, 0.0]]


def test_trap_09_whitening_keeps_padding_at_zero() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    values = torch.tensor([[1.0, 2.0, NAN], [6.0, 1e30, 1e30]])
    # mean 3, unbiased variance (4 + 1 + 9) / 2 = 7
    expected = torch.tensor([[-2 / 7**0.5, -1 / 7**0.5, 0.0], [3 / 7**0.5, 0.0, 0.0]])
    torch.testing.assert_close(whiten(values, mask), expected)
    equal = torch.full((2, 3), 0.7)
    assert whiten(equal, mask).count_nonzero() == 0
    assert whiten(values, torch.zeros_like(mask)).count_nonzero() == 0


def value_inputs(leaf: torch.Tensor, rows: list[int]) -> ValueInputs:
    lengths = torch.tensor([3, 2, 1])
    index = torch.arange(3)
    mask = torch.arange(3) < lengths[:, None]
    old = torch.tensor([[0.0, 0.1, 0.2], [0.3, 0.4, NAN], [0.5, NAN, NAN]], dtype=torch.float64)
    returns = torch.tensor([[1.0, 0.0, 0.5], [0.2, 0.9, NAN], [0.0, NAN, NAN]], dtype=torch.float64)
    weights = row_weights(lengths, index, "token_mean", 3, step_totals(lengths, index))
    return ValueInputs(leaf[rows], old[rows], returns[rows], mask[rows], weights[rows])


def test_value_loss_takes_the_worse_of_plain_and_clipped() -> None:
    def one(value: float, old: float, target: float, clip: float | None) -> float:
        cell = [torch.tensor([[x]], dtype=torch.float64) for x in (value, old, target)]
        mask = torch.ones(1, 1, dtype=torch.bool)
        return value_loss(ValueInputs(cell[0], cell[1], cell[2], mask, torch.ones(1)), clip).item()

    # Moved from 0 to .8 towards 1, but only .2 counts: (.2 - 1)^2 / 2 = .32 beats (.8 - 1)^2 / 2 = .02.
    assert one(0.8, 0.0, 1.0, 0.2) == pytest.approx(0.32)
    assert one(0.8, 0.0, 1.0, None) == pytest.approx(0.02)
    # Moved away from the target: the plain square is the worse one.
    assert one(-0.8, 0.0, 1.0, 0.2) == pytest.approx(1.62)


@pytest.mark.parametrize("clip", [0.2, None])
def test_trap_23_value_gradients_add_up_over_micro_batches(clip: float | None) -> None:
    start = torch.tensor([[0.4, -0.3, 0.1], [0.9, 0.2, NAN], [0.1, NAN, NAN]], dtype=torch.float64)
    whole = start.clone().requires_grad_(True)
    value_loss(value_inputs(whole, [0, 1, 2]), clip).backward()
    split = start.clone().requires_grad_(True)
    for rows in ([2], [0, 1]):
        value_loss(value_inputs(split, rows), clip).backward()
    assert whole.grad is not None
    assert whole.grad.isfinite().all()
    torch.testing.assert_close(whole.grad, split.grad)


def test_adaptive_kl_moves_towards_its_target() -> None:
    controller = AdaptiveKL(coefficient=0.1, target=6.0)
    # Ziegler et al.: the error is cut at 20 %, so a step changes the coefficient by 2 % at most.
    assert controller.updated(60.0).coefficient == pytest.approx(0.102)
    assert controller.updated(0.0).coefficient == pytest.approx(0.098)
    assert controller.updated(6.6).coefficient == pytest.approx(0.1 * (1 + 0.1 * 0.1))
    assert controller.updated(6.0) == controller
    assert controller.updated(NAN) == controller
    with pytest.raises(ConfigError, match="target=0"):
        AdaptiveKL(coefficient=0.1, target=0.0)


def test_adaptive_kl_reaches_the_target_in_a_closed_loop() -> None:
    # A policy whose KL falls with the coefficient: 1 / coefficient.
    controller = AdaptiveKL(coefficient=1.0, target=5.0)
    for _ in range(400):
        controller = controller.updated(1 / controller.coefficient)
    assert 1 / controller.coefficient == pytest.approx(5.0, rel=0.01)
