"""The policy loss: golden numbers, plain loops, gradients, options, and traps 8, 21, 28 and 29."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import reference
import torch
import yaml
from loss_rows import (
    AGGREGATIONS,
    NAMES,
    SETTINGS,
    UNBOUNDED,
    fixture,
    gradient,
    random_inputs,
    rows_of,
)
from torch import Tensor

import conf
from grpo.algorithm import AlgorithmConfig
from grpo.batch import StepTotals, row_weights
from grpo.loss import LossSettings, importance_weight, loss_settings, policy_loss
from grpo.types import LossInputs


@pytest.mark.parametrize(
    ("aggregation", "settings", "loss", "norm"),
    [
        ("sequence_mean", {"clip_high": 0.28}, -0.2627546606, 0.2277277784),
        ("token_mean", {"clip_high": 0.28}, -0.1421227262, 0.2462775193),
        ("constant", {"clip_high": 0.28}, -0.0426368179, 0.0738832558),
        (
            "token_mean",
            {"objective": "cispo", "clip_low": 1.0, "clip_high": 4.0},
            0.0852307456,
            0.3099191413,
        ),
        ("sequence_mean", {"objective": "sapo", **UNBOUNDED}, -0.6003990572, 0.2876365242),
        (
            "sequence_mean",
            {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
            -0.2548625954,
            0.1406102891,
        ),
        (
            "sequence_sum",
            {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
            -0.4217388563,
            0.5077402354,
        ),
        (
            "sequence_mean",
            {"kl_coefficient": 0.04, "kl_estimator": "k3_corrected"},
            -0.2513151609,
            0.2279154777,
        ),
        ("sequence_mean", {"kl_coefficient": 0.04, "kl_estimator": "k3"}, -0.2512088187, 0.2278247895),
    ],
)
def test_trap_28_golden_losses_and_gradients(
    aggregation: str, settings: dict[str, float], loss: float, norm: float
) -> None:
    output, grad = gradient(fixture(aggregation), LossSettings(**settings))
    # The numbers for sapo were made with its temperature 1.05 rounded to float32.
    tolerance = 1e-7 if settings.get("objective") == "sapo" else 1e-9
    assert output.loss.item() == pytest.approx(loss, abs=tolerance)
    assert grad.norm().item() == pytest.approx(norm, abs=tolerance)


@pytest.mark.parametrize(
    ("aggregation", "prompts", "loss"),
    [
        ("token_mean", (0, 1, 2), -0.1314560595),
        ("sequence_mean", (0, 1, 2), -0.2520879939),
        ("sequence_sum", (0, 1, 2), -0.3943681786),
        ("constant", (0, 1, 2), -0.0394368179),
        ("prompt_mean", (0, 0, 1), -0.1951368694),
    ],
)
def test_golden_aggregations(aggregation: str, prompts: tuple[int, ...], loss: float) -> None:
    output = policy_loss(fixture(aggregation, prompts), LossSettings())
    assert output.loss.item() == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize(
    ("aggregation", "rows", "windows", "loss"),
    [
        # verl's constant, a sum over tokens over the limit of 10, is that of one row: not divided by B = 3.
        ("constant", 1, 1.0, -0.1183104536),
        # TRL's dapo with accumulation 2 and 4 steps a generation divides these 9 tokens, all that was
        # generated, by 9 * 2 / 4: the tokens of a step where its windows are equally long. Ours counts those
        # that the step trains on, so that a step over the 9 tokens is that loss times 2 / 4.
        ("token_mean", 3, 4 / 2, -0.2629121191),
    ],
)
def test_golden_aggregations_of_other_counts(
    aggregation: str, rows: int, windows: float, loss: float
) -> None:
    inputs = fixture(aggregation)
    counted = StepTotals(rows, 9, 3)
    weights = row_weights(inputs.mask.sum(1), torch.arange(3), aggregation, 10, counted)
    output = policy_loss(replace(inputs, row_weights=weights), LossSettings())
    assert windows * output.loss.item() == pytest.approx(loss, abs=1e-9)


def test_golden_metrics() -> None:
    output = policy_loss(fixture("sequence_mean"), LossSettings(clip_high=0.28))
    tokens = output.sums["tokens"].item()
    assert tokens == 9
    assert output.sums["clip_low"].item() / tokens == pytest.approx(1 / 9)
    assert output.sums["clip_high"].item() / tokens == pytest.approx(1 / 9)
    assert output.sums["kl"].item() / tokens == pytest.approx(0.0278460474, abs=1e-9)
    assert output.sums["max/ratio"].item() == pytest.approx(1.4918246976)  # exp(0.4)


def test_golden_objective_on_the_top_fifth_of_entropy() -> None:
    # A token with advantage 0 is out of the objective: TRL's entropy mask, quantile .2, keeps the two of nine
    # tokens with the largest entropy, the last two of row 2 (columns 0 and 1 of row 3 hold .9 and 1.0).
    inputs = fixture("sequence_mean")
    assert inputs.entropy is not None
    kept = inputs.entropy >= torch.quantile(inputs.entropy[inputs.mask], 0.8)
    inputs = replace(inputs, advantages=torch.where(kept, inputs.advantages, 0.0))
    assert policy_loss(inputs, LossSettings()).loss.item() == pytest.approx(-0.1032541091, abs=1e-9)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_equals_plain_loops(aggregation: str, settings: LossSettings) -> None:
    x = random_inputs(1, aggregation=aggregation)
    assert x.old_logprobs is not None and x.ref_logprobs is not None  # noqa: PT018
    assert x.sampling_logprobs is not None and x.entropy is not None  # noqa: PT018
    logprobs, old, ref = x.logprobs.tolist(), x.old_logprobs.tolist(), x.ref_logprobs.tolist()
    ratios = reference.log_ratios(logprobs, old, x.mask.tolist(), settings.ratio)
    weights = importance_weight(x.old_logprobs, x.sampling_logprobs, settings.importance_cap or 1e9).tolist()
    rows, width = x.mask.shape
    values = [[0.0] * width for _ in range(rows)]
    for i in range(rows):
        for t in range(width):
            token = reference.objective(
                settings.objective,
                logprobs[i][t],
                ratios[i][t],
                x.advantages[i, t].item(),
                settings.clip_low or 0.0,
                settings.clip_high or 0.0,
            )
            token *= weights[i][t] if settings.importance_cap else 1.0
            token += settings.kl_coefficient * reference.kl(
                settings.kl_estimator, logprobs[i][t], ref[i][t], ratios[i][t]
            )
            values[i][t] = token - settings.entropy_coefficient * x.entropy[i, t].item()
    expected = reference.aggregate(values, x.mask.tolist(), [i % 3 for i in range(rows)], aggregation, 7)
    assert policy_loss(x, settings).loss.item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_trap_21_gradcheck_and_chunks(settings: LossSettings) -> None:
    inputs = random_inputs(2)
    if settings.objective == "cispo":
        # Its weight is a constant by definition, which a numeric derivative cannot know: check at ratio 1.
        inputs = replace(inputs, old_logprobs=None)
        output, grad = gradient(inputs, settings)
        expected = -inputs.advantages * inputs.row_weights[:, None] * inputs.mask
        torch.testing.assert_close(grad, expected)
    else:

        def loss(logprobs: Tensor) -> Tensor:
            return policy_loss(replace(inputs, logprobs=logprobs), settings).loss

        assert torch.autograd.gradcheck(loss, (inputs.logprobs,))
        output, grad = gradient(inputs, settings)
    for size in (1, 4, 6):
        leaf = inputs.logprobs.detach().clone().requires_grad_(True)
        parts = [rows_of(inputs, list(range(i, min(i + size, 6))), leaf) for i in range(0, 6, size)]
        total = sum((policy_loss(part, settings).loss for part in parts), torch.zeros(()))
        (chunked,) = torch.autograd.grad(total, leaf)
        torch.testing.assert_close(total, output.loss)
        torch.testing.assert_close(chunked, grad)


def test_ratio_one_gives_the_reinforce_gradient() -> None:
    for settings in SETTINGS[:4]:
        _, grad = gradient(replace(random_inputs(3), old_logprobs=None), settings)
        x = random_inputs(3)
        expected = -x.advantages * x.mask * x.row_weights[:, None]
        if settings.ratio == "sequence":  # every token carries the row's mean advantage
            total = (x.advantages * x.mask).sum(1, keepdim=True)
            expected = -total / x.mask.sum(1, keepdim=True).clamp(min=1) * x.mask * x.row_weights[:, None]
        torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize(
    ("change", "base"),
    [
        ({"ratio": "sequence"}, {}),
        ({"objective": "cispo"}, {}),
        ({"objective": "sapo", **UNBOUNDED}, {}),
        ({"clip_low": 0.5}, {}),
        ({"clip_high": 0.05}, {}),
        ({"dual_clip": 1.3}, {}),
        ({"kl_coefficient": 0.1}, {}),
        ({"kl_estimator": "k2"}, {"kl_coefficient": 0.1}),
        ({"kl_estimator": "k3_corrected"}, {"kl_coefficient": 0.1}),
        ({"entropy_coefficient": 0.1}, {}),
        ({"importance_cap": 2.0}, {}),
        ({"importance_cap": 1.05}, {"importance_cap": 2.0}),
    ],
)
def test_trap_08_every_option_changes_the_loss(change: dict[str, object], base: dict[str, object]) -> None:
    # The negative row's ratio is exp(.4) = 1.49 at its first token: beyond 1 + clip_high, so dual_clip bites.
    before = policy_loss(fixture(), LossSettings(**base)).loss  # type: ignore[arg-type]
    after = policy_loss(fixture(), LossSettings(**{**base, **change})).loss  # type: ignore[arg-type]
    assert abs(before.item() - after.item()) > 1e-5


def test_trap_08_a_setting_whose_input_is_missing_is_refused() -> None:
    inputs = replace(fixture(), ref_logprobs=None, entropy=None, sampling_logprobs=None)
    for settings, name in (
        (LossSettings(kl_coefficient=0.1), "ref_logprobs"),
        (LossSettings(entropy_coefficient=0.1), "entropy"),
        (LossSettings(importance_cap=2.0), "sampling_logprobs"),
    ):
        with pytest.raises(ValueError, match=name):
            policy_loss(inputs, settings)
    assert policy_loss(inputs, LossSettings()).loss.isfinite()


def test_trap_28_gradient_at_a_capped_and_at_a_clipped_token() -> None:
    def one_token(ratio: float, advantage: float) -> LossInputs:
        logprob = torch.tensor([[-1.0]], dtype=torch.float64)
        return LossInputs(
            logprob.clone().requires_grad_(True),
            logprob - torch.tensor(ratio, dtype=torch.float64).log(),
            None,
            torch.tensor([[advantage]], dtype=torch.float64),
            torch.ones(1, 1, dtype=torch.bool),
            torch.ones(1),
        )

    cispo = LossSettings(objective="cispo", clip_low=1.0, clip_high=4.0)
    output, grad = gradient(one_token(7.0, 1.5), cispo)
    assert grad.item() == pytest.approx(-5 * 1.5)  # the cap times A: bounded, not lost
    assert output.sums["clip_high"].item() == 1
    _, grad = gradient(one_token(0.01, 1.5), cispo)
    assert grad.item() == pytest.approx(-0.01 * 1.5)  # no lower bound

    clip = LossSettings()
    assert gradient(one_token(1.3, 1.5), clip)[1].item() == 0
    assert gradient(one_token(0.7, -1.5), clip)[1].item() == 0
    assert gradient(one_token(0.7, 1.5), clip)[1].item() == pytest.approx(-0.7 * 1.5)
    assert gradient(one_token(1.3, -1.5), clip)[1].item() == pytest.approx(1.3 * 1.5)
    # Dual clip: beyond c the loss of a negative advantage is the constant -c A.
    output, grad = gradient(one_token(7.0, -1.5), replace(clip, dual_clip=3.0))
    assert output.loss.item() == pytest.approx(3 * 1.5)
    assert grad.item() == 0
    # It is for negative advantages only.
    output, _ = gradient(one_token(1.1, 1.5), replace(clip, dual_clip=3.0))
    assert output.loss.item() == pytest.approx(-1.1 * 1.5)


def test_trap_28_the_sequence_ratio_spreads_its_gradient_over_the_row() -> None:
    _, grad = gradient(fixture("sequence_mean"), LossSettings(ratio="sequence", clip_low=0.5, clip_high=0.5))
    for row, length in enumerate((3, 4, 2)):
        assert len(set(grad[row, :length].tolist())) == 1
        assert grad[row, length:].count_nonzero() == 0


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=NAMES[:4])
def test_trap_29_the_first_update_has_ratio_one_and_the_second_has_not(settings: LossSettings) -> None:
    base = random_inputs(9)
    on_policy = [replace(base, old_logprobs=None), replace(base, old_logprobs=base.logprobs.detach().clone())]
    results = [gradient(x, settings) for x in on_policy]
    for output, _ in results:
        tokens = output.sums["tokens"].item()
        assert output.sums["ratio"].item() == tokens
        assert output.sums["max/ratio"].item() == 1
        assert output.sums["approx_kl"].item() == 0
        assert output.sums["clip_low"].item() == output.sums["clip_high"].item() == 0
    # Leaving the old pass out is the same to the last bit, in value and in gradient.
    assert torch.equal(results[0][0].loss, results[1][0].loss)
    assert torch.equal(results[0][1], results[1][1])
    moved = replace(base, old_logprobs=base.logprobs.detach() + 0.5)
    second = policy_loss(moved, settings)
    assert second.sums["max/ratio"].item() == pytest.approx(0.60653066)  # exp(-.5)
    assert second.sums["approx_kl"].item() > 0


def test_log_ratios_are_bounded() -> None:
    x = replace(fixture(), old_logprobs=torch.full((3, 4), -1e4, dtype=torch.float64))
    output, grad = gradient(x, LossSettings(kl_coefficient=0.1))
    assert output.loss.isfinite()
    assert grad.isfinite().all()
    assert output.sums["max/ratio"].item() == pytest.approx(torch.tensor(20.0).exp().item())


def test_importance_weight_is_truncated_above_and_ignores_what_is_missing() -> None:
    old = torch.tensor([[-1.0, -1.0, -1.0]])
    sampling = torch.tensor([[-3.0, -0.5, float("nan")]])
    weight = importance_weight(old.requires_grad_(True), sampling, 2.0)
    torch.testing.assert_close(weight, torch.tensor([[2.0, 0.60653066, 1.0]]))  # exp(2) capped; exp(-.5); 1
    assert not weight.requires_grad


def test_settings_come_from_the_algorithm() -> None:
    plain = AlgorithmConfig(
        **yaml.safe_load((Path(conf.__file__).parent / "algorithm/grpo.yaml").read_text())
    )
    assert loss_settings(plain) == LossSettings()
    algorithm = replace(plain, ratio="sequence", kl_coefficient=0.1, kl_estimator="k2", dual_clip=3.0)
    assert loss_settings(algorithm) == LossSettings(
        ratio="sequence", kl_coefficient=0.1, kl_estimator="k2", dual_clip=3.0
    )
    in_reward = replace(algorithm, kl_in="reward", kl_estimator="k1")
    assert loss_settings(in_reward).kl_coefficient == 0
