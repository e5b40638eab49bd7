"""The update through a real model: the gradient must not know how the step was cut up."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from accelerate import Accelerator
from fakes import llama, policy
from torch import Tensor

from grpo.adapters import add_adapter
from grpo.loss import LossSettings
from grpo.policy import Policy, token_batch
from grpo.reference import AdapterReference, FrozenReference, Reference
from grpo.update import Trainable, TrainRow, Updater, UpdateSettings, is_broken, micro_batches

PROMPTS = [torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10, 11, 12, 13]), torch.tensor([14, 15])]


def rows(seed: int = 0) -> list[TrainRow]:
    """Three prompts with three completions each, of lengths 1 to 9, advantages of both signs."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for i, n in enumerate((4, 9, 1, 6, 3, 8, 2, 7, 5)):
        advantage = float(torch.randn((), generator=g))
        ids = torch.randint(3, 60, (n,), generator=g)
        made.append(TrainRow(i // 3, ids, torch.full((n,), advantage), torch.full((n,), -2.0)))
    return made


def gradient(
    model: Policy,
    step_rows: list[TrainRow],
    *,
    micro: int = 100,
    aggregation: str = "sequence_mean",
    loss: LossSettings | None = None,
    reference: Reference | None = None,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The gradient of one update: SGD of rate 1 without clipping, read off the change of the weights."""
    model = copy.deepcopy(model).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    updater = Updater(
        Trainable(model, optimizer, schedule),
        UpdateSettings(aggregation, 16, micro, 1, math.inf),
        loss or LossSettings(),
        accelerator=Accelerator(cpu=True),
        reference=reference,
        pad_id=0,
    )
    metrics = updater.update(PROMPTS, step_rows)
    return {name: before[name] - p.detach() for name, p in model.named_parameters()}, metrics


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    for name, x in a.items():
        assert (x - b[name]).abs().max() <= tolerance, name


def plain_gradient(model: Policy, step_rows: list[TrainRow]) -> dict[str, Tensor]:
    """GRPO's gradient on fresh samples by its definition: mean over rows of mean over tokens, -A d log pi."""
    model = copy.deepcopy(model)
    total = torch.zeros(())
    for row in step_rows:
        scores = model(token_batch(PROMPTS, [row.prompt], [row.token_ids], 0))
        total = total - (scores.logprobs[0] * row.advantages).mean() / len(step_rows)
    total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_the_gradient_is_the_papers_on_fresh_samples() -> None:
    model = policy()
    found, metrics = gradient(model, rows())
    assert_close(found, plain_gradient(model, rows()))
    assert metrics["policy/ratio_mean"] == 1.0
    assert metrics["clip_ratio/region_mean"] == 0.0


@pytest.mark.parametrize("micro", [1, 2, 3, 4])
@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant", "prompt_mean"])
def test_trap_23_micro_batches_change_no_gradient(micro: int, aggregation: str) -> None:
    model = policy()
    loss = LossSettings(kl_coefficient=0.1, kl_estimator="k3")
    reference = FrozenReference(policy(llama(seed=3)))
    whole, a = gradient(model, rows(), aggregation=aggregation, loss=loss, reference=reference)
    split, b = gradient(model, rows(), micro=micro, aggregation=aggregation, loss=loss, reference=reference)
    assert_close(whole, split)
    for name in ("loss", "kl", "entropy", "grad_norm"):
        assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-7)


def test_row_order_changes_no_gradient() -> None:
    model = policy()
    assert_close(gradient(model, rows())[0], gradient(model, list(reversed(rows())))[0])


def test_trap_30_rows_without_signal_cost_nothing_and_change_nothing() -> None:
    model = policy()
    silent = [TrainRow(r.prompt, r.token_ids, r.advantages * (r.prompt != 1), r.logprobs) for r in rows()]
    dropped, _ = gradient(model, silent)
    # a vanishing KL coefficient keeps them in the forward
    reference = FrozenReference(model)
    kept, _ = gradient(model, silent, loss=LossSettings(kl_coefficient=1e-12), reference=reference)
    assert_close(dropped, kept)


def test_trap_25_masked_rows_stay_in_the_counts_of_a_sequence_mean() -> None:
    model = policy()
    masked = [
        TrainRow(r.prompt, r.token_ids, r.advantages, r.logprobs, trained=i % 3 != 0)
        for i, r in enumerate(rows())
    ]
    trained = [r for r in masked if r.trained]
    sequence, _ = gradient(model, masked)
    alone, _ = gradient(model, trained)
    assert_close(sequence, {name: x * len(trained) / len(masked) for name, x in alone.items()})
    token, _ = gradient(model, masked, aggregation="token_mean")
    token_alone, _ = gradient(model, trained, aggregation="token_mean")
    assert_close(token, token_alone)


def test_a_step_without_any_signal_leaves_the_weights_alone() -> None:
    silent = [TrainRow(r.prompt, r.token_ids, r.advantages * 0, r.logprobs) for r in rows()]
    found, metrics = gradient(policy(), silent)
    assert all((x == 0).all() for x in found.values())
    assert metrics["update/skipped"] == 1


def test_trap_31_the_reference_starts_equal_and_stays() -> None:
    model = policy()
    reference = FrozenReference(model)
    loss = LossSettings(kl_coefficient=0.1)
    _, metrics = gradient(model, rows(), loss=loss, reference=reference)
    assert metrics["kl"] == 0
    fingerprint = [p.clone() for p in reference.policy.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01)
    _, metrics = gradient(model, rows(), loss=loss, reference=reference)
    assert metrics["kl"] > 0
    assert all(torch.equal(a, b) for a, b in zip(fingerprint, reference.policy.parameters(), strict=True))
    reference.reset(model)
    assert gradient(model, rows(), loss=loss, reference=reference)[1]["kl"] == 0


def test_trap_31_under_an_adapter_the_reference_is_the_base_model() -> None:
    base, adapted = llama(), llama()
    add_adapter(adapted, 4, seed=0)
    model = policy(adapted)
    loss = LossSettings(kl_coefficient=0.1)
    early = AdapterReference(model)
    _, metrics = gradient(model, rows(), loss=loss, reference=early)
    assert metrics["kl"] == 0  # to the bit, with the adapter in place
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.05)
    # Built after training began, it is the base model all the same.
    batch = token_batch(PROMPTS, [r.prompt for r in rows()], [r.token_ids for r in rows()], 0)
    plain = FrozenReference(policy(base)).logprobs(batch)
    for reference in (early, AdapterReference(model)):
        assert torch.equal(reference.logprobs(batch), plain)
        assert gradient(model, rows(), loss=loss, reference=reference)[1]["kl"] > 0
    # Negative control: a copy of the policy as it is now is no reference.
    assert not torch.equal(FrozenReference(model).logprobs(batch), plain)


def test_trap_29_a_second_update_is_off_policy() -> None:
    model = policy().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    updater = Updater(
        Trainable(model, optimizer, schedule),
        UpdateSettings("sequence_mean", 16, 2, 3, math.inf),
        LossSettings(),
        accelerator=Accelerator(cpu=True),
        reference=None,
        pad_id=0,
    )
    metrics = updater.update(PROMPTS, rows())
    assert metrics["policy/ratio_max"] > 1.0
    assert metrics["policy/approx_kl"] > 0.0


def test_a_gradient_that_is_not_finite_skips_the_step() -> None:
    broken = [TrainRow(r.prompt, r.token_ids, r.advantages * math.inf, r.logprobs) for r in rows()]
    found, metrics = gradient(policy(), broken)
    assert all((x == 0).all() for x in found.values())
    assert metrics["update/skipped"] == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_step_is_broken_by_its_loss_or_its_gradient(odd: float) -> None:
    assert is_broken({"loss": odd, "grad_norm": 1.0})
    assert is_broken({"loss": 0.0, "grad_norm": odd})
    assert not is_broken({"loss": 0.0, "grad_norm": 1e30})


def test_micro_batches_keep_prompts_together_and_lose_no_row() -> None:
    batches = micro_batches([3, 9, 2, 5, 1, 7], [0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 5], 2)
    assert batches == [[1, 0], [5, 3], [2]]
    assert sorted(i for batch in batches for i in batch) == [0, 1, 2, 3, 5]


def test_micro_batches_hold_at_most_so_many_tokens_unless_a_row_is_longer() -> None:
    # prompt 0: 30, 4, 4; prompt 1: 6, 5, 5. The row of 30 is alone; 4 + 4 leaves room for no row of 6
    lengths, prompts = [4, 30, 4, 5, 6, 5], [0, 0, 0, 1, 1, 1]
    assert micro_batches(lengths, prompts, range(6), 8, tokens=12) == [[1], [0, 2], [4, 3], [5]]
    assert micro_batches(lengths, prompts, range(6), 8) == [[1, 0, 2, 4, 3, 5]]
    assert micro_batches(lengths, prompts, range(6), 1, tokens=12) == [[1], [0], [2], [4], [3], [5]]
