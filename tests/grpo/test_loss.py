"""The policy loss: golden numbers, plain loops, gradients, and traps 8, 9, 16 and 21 to 30."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import reference
import torch
import yaml
from torch import Tensor

import conf
from grpo.advantage import AdvantageSettings, outcome_advantages
from grpo.algorithm import AlgorithmConfig
from grpo.batch import row_weights, step_totals
from grpo.kl import sequence_kl_penalty, token_kl_penalty
from grpo.loss import LossSettings, importance_weight, loss_settings, policy_loss
from grpo.types import LossInputs, LossOutput
from rewards.errors import ConfigError

AGGREGATIONS = ["sequence_mean", "token_mean", "constant", "prompt_mean", "sequence_sum"]
UNBOUNDED = {"clip_low": None, "clip_high": None}
SETTINGS = [
    LossSettings(clip_high=0.28),
    LossSettings(ratio="sequence", clip_low=3e-4, clip_high=4e-4),
    LossSettings(objective="cispo", clip_low=0.2, clip_high=0.3),
    LossSettings(objective="sapo", clip_low=None, clip_high=None),
    LossSettings(kl_coefficient=0.04, kl_estimator="k3"),
    LossSettings(kl_coefficient=0.04, kl_estimator="k3_corrected"),
    LossSettings(kl_coefficient=0.04, kl_estimator="k2", entropy_coefficient=0.01, importance_cap=1.1),
]
NAMES = ["clip_higher", "gspo", "cispo", "sapo", "k3", "k3_corrected", "k2_entropy_importance"]
LOGPROBS = torch.tensor(
    [[-0.50, -1.20, -0.30, -2.00], [-0.90, -0.10, -1.50, -0.70], [-0.20, -0.80, -0.60, -1.10]],
    dtype=torch.float64,
)
OLD_CHANGE = [[0.10, -0.30, 0.05, 0.00], [-0.40, 0.02, 0.35, -0.15], [0.00, 0.60, -0.25, 0.20]]
REF_CHANGE = [[-0.20, 0.10, 0.00, 0.30], [0.05, -0.05, 0.50, -0.40], [0.10, 0.00, -0.30, 0.15]]


def fixture(aggregation: str = "token_mean", prompts: tuple[int, ...] = (0, 1, 2)) -> LossInputs:
    """Three rows of 3, 4 and 2 tokens; completion limit 10."""
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    index = torch.tensor(prompts)
    lengths = mask.sum(1)
    return LossInputs(
        logprobs=LOGPROBS.clone().requires_grad_(True),
        old_logprobs=LOGPROBS + torch.tensor(OLD_CHANGE, dtype=torch.float64),
        ref_logprobs=LOGPROBS + torch.tensor(REF_CHANGE, dtype=torch.float64),
        advantages=torch.tensor([1.2, -0.7, 0.4], dtype=torch.float64)[:, None].repeat(1, 4),
        mask=mask,
        row_weights=row_weights(lengths, index, aggregation, 10, step_totals(lengths, index)),
        sampling_logprobs=LOGPROBS + torch.tensor(REF_CHANGE, dtype=torch.float64) / 2,
        entropy=torch.linspace(0.1, 1.2, 12, dtype=torch.float64).view(3, 4),
    )


def random_inputs(seed: int, rows: int = 6, width: int = 5, aggregation: str = "token_mean") -> LossInputs:
    """Rows of unequal length, among them an empty one, of three prompts."""
    g = torch.Generator().manual_seed(seed)

    def draw(scale: float) -> Tensor:
        return scale * torch.randn(rows, width, generator=g, dtype=torch.float64)

    lengths = torch.randint(1, width + 1, (rows,), generator=g)
    lengths[rows // 2] = 0
    index = torch.arange(rows) % 3
    logprobs = -draw(1.0).abs()
    return LossInputs(
        logprobs=logprobs.requires_grad_(True),
        old_logprobs=logprobs.detach() + draw(0.3),
        ref_logprobs=logprobs.detach() + draw(0.3),
        advantages=draw(1.0),
        mask=torch.arange(width) < lengths[:, None],
        row_weights=row_weights(lengths, index, aggregation, 7, step_totals(lengths, index)),
        sampling_logprobs=logprobs.detach() + draw(0.2),
        entropy=draw(1.0).abs(),
    )


def gradient(inputs: LossInputs, settings: LossSettings) -> tuple[LossOutput, Tensor]:
    output = policy_loss(inputs, settings)
    (grad,) = torch.autograd.grad(output.loss, inputs.logprobs)
    return output, grad


def rows_of(inputs: LossInputs, rows: list[int], leaf: Tensor) -> LossInputs:
    """Some rows as a micro-batch of their own; the weights stay those of the whole step."""

    def pick(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[rows]

    return LossInputs(
        leaf[rows],
        pick(inputs.old_logprobs),
        pick(inputs.ref_logprobs),
        inputs.advantages[rows],
        inputs.mask[rows],
        inputs.row_weights[rows],
        pick(inputs.sampling_logprobs),
        pick(inputs.entropy),
    )


# --- golden numbers ---


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


# --- against plain loops, and as a differentiable function ---


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


# --- traps ---


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
    assert all(value.item() == 0 for value in nothing.sums.values())


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


# --- ranges, importance, penalties, settings ---


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


def test_kl_in_the_reward_changes_the_advantages_as_worked() -> None:
    old = torch.tensor([[-0.5, -0.2], [-0.1, -0.3], [-0.7, -0.9], [-0.2, -0.4]])
    ref = old + torch.tensor([[0.1, 0.0], [-0.2, 0.3], [0.05, 0.05], [0.0, -0.1]])
    mask = torch.ones(4, 2, dtype=torch.bool)
    penalty = sequence_kl_penalty(old, ref, mask, "k1", 0.05)
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]]) - penalty
    result = outcome_advantages(rewards, AdvantageSettings("leave_one_out", "none"))
    expected = torch.tensor([[1.0033333, -0.33, -0.33, -0.3433333]])
    torch.testing.assert_close(result.values, expected, rtol=0, atol=1e-6)
    # Masked tokens cost nothing.
    mask[0, 0] = False
    old[0, 0] = float("nan")
    assert sequence_kl_penalty(old, ref, mask, "k1", 0.05)[0].item() == 0


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
