"""What must not change the loss or its gradient: traps 9, 16, 22 to 25 and 30."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loss_rows import (
    AGGREGATIONS,
    NAMES,
    SETTINGS,
    fixture,
    gradient,
    random_inputs,
    rows_of,
)
from torch import Tensor

from grpo.batch import row_weights, step_totals
from grpo.loss import LossSettings, policy_loss
from grpo.types import LossInputs

UNBOUNDED = {"objective": "sapo", "clip_low": None, "clip_high": None}
CORRECTED = {"kl_coefficient": 0.1, "kl_estimator": "k3_corrected"}


@pytest.mark.parametrize(
    ("case", "base", "change", "acts"),
    [
        *[
            (case, {}, change, False)
            for case in ("even", "tokens")
            for change in ({"dual_clip": 3.0}, {"objective": "cispo"}, UNBOUNDED, {"clip_low": 0.01})
        ],
        ("even", {}, {"ratio": "sequence"}, False),
        ("even", {"kl_coefficient": 0.1, "entropy_coefficient": 0.1}, {"ratio": "sequence"}, False),
        ("tokens", {}, {"ratio": "sequence"}, True),  # credit=process or both, baseline=value
        ("engine", {"importance_cap": 2.0}, {"ratio": "sequence"}, True),
        ("engine", {"importance_cap": 2.0}, {"dual_clip": 3.0}, False),
        ("even", CORRECTED, {"ratio": "sequence"}, True),
        ("even", CORRECTED, {"objective": "cispo"}, False),
    ],
)
def test_at_ratio_one_the_algorithm_refuses_what_moves_no_gradient(
    case: str, base: dict[str, object], change: dict[str, object], acts: bool
) -> None:
    # `check_algorithm` states these rules by name. even: one advantage a row; engine: its own log-probs.
    x = random_inputs(3)
    even = x.advantages[:, :1].expand_as(x.advantages)
    gap = x.sampling_logprobs if case == "engine" else x.logprobs.detach()
    advantages = x.advantages if case == "tokens" else even
    inputs = replace(x, old_logprobs=None, advantages=advantages, sampling_logprobs=gap)
    _, before = gradient(inputs, LossSettings(**base))  # type: ignore[arg-type]
    _, after = gradient(inputs, LossSettings(**{**base, **change}))  # type: ignore[arg-type]
    difference = (after - before).abs().max()
    assert difference > 1e-4 if acts else difference < 1e-15


@pytest.mark.parametrize("filler", [float("nan"), 1e30, -1e30, float("inf")])
@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_trap_09_masked_positions_may_hold_anything(settings: LossSettings, filler: float) -> None:
    clean = random_inputs(4)
    output, grad = gradient(clean, settings)

    def dirty(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.where(clean.mask, x.detach(), filler)

    inputs = replace(
        clean,
        logprobs=torch.where(clean.mask, clean.logprobs.detach(), filler).requires_grad_(True),
        old_logprobs=dirty(clean.old_logprobs),
        ref_logprobs=dirty(clean.ref_logprobs),
        advantages=torch.where(clean.mask, clean.advantages, filler),
        sampling_logprobs=dirty(clean.sampling_logprobs),
        entropy=dirty(clean.entropy),
    )
    output_dirty, grad_dirty = gradient(inputs, settings)
    assert torch.equal(output.loss, output_dirty.loss)
    assert torch.equal(grad, grad_dirty)
    assert {k: v.item() for k, v in output.sums.items()} == {
        k: v.item() for k, v in output_dirty.sums.items()
    }


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_trap_16_an_empty_row_gives_nothing_and_takes_nothing(
    settings: LossSettings, aggregation: str
) -> None:
    inputs = random_inputs(5, aggregation=aggregation)
    empty = 3
    assert not inputs.mask[empty].any()
    output, grad = gradient(inputs, settings)
    assert output.loss.isfinite()
    assert grad[empty].count_nonzero() == 0
    others = [i for i in range(6) if i != empty]
    leaf = inputs.logprobs.detach().clone().requires_grad_(True)
    (without,) = torch.autograd.grad(policy_loss(rows_of(inputs, others, leaf), settings).loss, leaf)
    torch.testing.assert_close(without, grad)


def test_trap_22_padding_changes_no_statistic_and_an_empty_rank_returns() -> None:
    inputs = fixture()
    settings = LossSettings(entropy_coefficient=0.1, kl_coefficient=0.1, importance_cap=2.0)

    def widen(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.nn.functional.pad(x, (0, 3), value=5.0)

    wide = LossInputs(
        torch.nn.functional.pad(inputs.logprobs, (0, 3), value=5.0),
        widen(inputs.old_logprobs),
        widen(inputs.ref_logprobs),
        torch.nn.functional.pad(inputs.advantages, (0, 3), value=5.0),
        torch.nn.functional.pad(inputs.mask, (0, 3)),
        inputs.row_weights,
        widen(inputs.sampling_logprobs),
        widen(inputs.entropy),
    )
    narrow_output, wide_output = policy_loss(inputs, settings), policy_loss(wide, settings)
    assert narrow_output.loss.item() == pytest.approx(wide_output.loss.item(), abs=1e-12)
    assert narrow_output.sums.keys() == wide_output.sums.keys()
    for name, value in narrow_output.sums.items():
        assert value.item() == pytest.approx(wide_output.sums[name].item(), abs=1e-12), name
    # A rank without rows has the same names in its sums, so a reduction over ranks is never one short.
    leaf = inputs.logprobs.detach().clone().requires_grad_(True)
    nothing = policy_loss(rows_of(inputs, [], leaf), settings)
    assert nothing.loss.item() == 0
    assert nothing.sums.keys() == narrow_output.sums.keys()
    for name, value in nothing.sums.items():
        assert value.item() == (math.inf if name.startswith("min/") else 0), name


def test_trap_35_rows_that_only_keep_step_with_other_ranks_are_in_no_statistic() -> None:
    inputs = fixture()
    settings = LossSettings(entropy_coefficient=0.1, kl_coefficient=0.1, importance_cap=2.0)
    idle = policy_loss(replace(inputs, row_weights=torch.zeros_like(inputs.row_weights)), settings)
    for name, value in idle.sums.items():
        assert value.item() == (math.inf if name.startswith("min/") else 0), name


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_trap_23_micro_batches_and_ranks_change_nothing(settings: LossSettings, aggregation: str) -> None:
    x = random_inputs(6, aggregation=aggregation)
    _, grad = gradient(x, settings)
    for size in (1, 2, 3, 6):
        leaf = x.logprobs.detach().clone().requires_grad_(True)
        for start in range(0, 6, size):
            policy_loss(rows_of(x, list(range(start, start + size)), leaf), settings).loss.backward()
        torch.testing.assert_close(leaf.grad, grad, rtol=0, atol=1e-12)
    # Two ranks: each knows its own rows (whole prompts) and the totals of both; gradients are added up.
    lengths, index = x.mask.sum(1), torch.arange(6) % 3
    ranks = [[0, 3, 1, 4], [2, 5]]
    totals = [step_totals(lengths[rows], index[rows]) for rows in ranks]
    leaf = x.logprobs.detach().clone().requires_grad_(True)
    for rows in ranks:
        part = rows_of(x, rows, leaf)
        weights = row_weights(lengths[rows], index[rows], aggregation, 7, totals[0] + totals[1])
        policy_loss(replace(part, row_weights=weights), settings).loss.backward()
    torch.testing.assert_close(leaf.grad, grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_trap_24_a_batch_twice_has_the_gradient_of_the_batch(aggregation: str) -> None:
    x = random_inputs(7, aggregation=aggregation)
    _, grad = gradient(x, LossSettings())
    leaf = x.logprobs.detach().clone().requires_grad_(True)
    twice = rows_of(x, [*range(6), *range(6)], leaf)
    lengths = twice.mask.sum(1)
    index = torch.cat([torch.arange(6) % 3, torch.arange(6) % 3 + 3])
    weights = row_weights(lengths, index, aggregation, 7, step_totals(lengths, index))
    (doubled,) = torch.autograd.grad(
        policy_loss(replace(twice, row_weights=weights), LossSettings()).loss, leaf
    )
    torch.testing.assert_close(doubled, grad)


@pytest.mark.parametrize(
    ("aggregation", "factor"),
    [
        ("token_mean", 1.0),  # tokens are what is counted, and there are no more of them
        ("sequence_mean", 6 / 8),  # two more rows, each with a mean of 0
        ("constant", 6 / 8),
        ("sequence_sum", 6 / 8),
        ("prompt_mean", 3 / 4),  # one more prompt, with a mean of 0
    ],
)
def test_trap_25_masked_rows_scale_the_loss_as_documented(aggregation: str, factor: float) -> None:
    x = random_inputs(8, aggregation=aggregation)
    alone = policy_loss(x, LossSettings()).loss.item()
    lengths = torch.cat([x.mask.sum(1), torch.zeros(2, dtype=torch.int64)])
    index = torch.cat([torch.arange(6) % 3, torch.tensor([3, 3])])
    weights = row_weights(lengths, index, aggregation, 7, step_totals(lengths, index))[:6]
    with_masked = policy_loss(replace(x, row_weights=weights), LossSettings()).loss.item()
    assert with_masked == pytest.approx(alone * factor, abs=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_trap_30_groups_without_signal_drop_out_or_pull_through_the_kl(aggregation: str) -> None:
    x = random_inputs(10, aggregation=aggregation)
    silent, speaking = [0, 3], [1, 2, 4, 5]  # prompt 0 is silent
    advantages = x.advantages.clone()
    advantages[silent] = 0
    x = replace(x, advantages=advantages)
    # Without KL, dropping its rows leaves the gradient as it was: the weights were taken before.
    _, kept = gradient(x, LossSettings())
    leaf = x.logprobs.detach().clone().requires_grad_(True)
    (dropped,) = torch.autograd.grad(policy_loss(rows_of(x, speaking, leaf), LossSettings()).loss, leaf)
    torch.testing.assert_close(dropped, kept)
    assert kept[silent].count_nonzero() == 0
    # With KL in the loss, kept rows are pulled to the reference.
    _, pulled = gradient(x, LossSettings(kl_coefficient=0.1))
    assert pulled[0].count_nonzero() > 0
