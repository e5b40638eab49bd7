"""The loss and gradient of an update against the plainest loop: padded rows, whole logits, two models."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from accelerate import Accelerator
from fakes import TOKENIZER, llama, policy
from smollm import smollm
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from grpo.loss import LossSettings
from grpo.policy import Policy
from grpo.reference import FrozenReference
from grpo.update import Trainable, TrainRow, Updater, UpdateSettings

KL = 0.1


def step_rows(vocabulary: int, lengths: tuple[int, ...]) -> tuple[list[Tensor], list[TrainRow]]:
    """Two prompts, their completions in turn, advantages of both signs."""
    g = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, vocabulary, (n,), generator=g) for n in (5, 9)]
    rows = []
    for i, n in enumerate(lengths):
        ids = torch.randint(3, vocabulary, (n,), generator=g)
        rows.append(TrainRow(i % 2, ids, torch.full((n,), (-1.0) ** i * (1 + i)), torch.full((n,), -1.0)))
    return prompts, rows


def padded_logprobs(model: PreTrainedModel, prompts: list[Tensor], rows: list[TrainRow]) -> Tensor:
    """(B, T): left-padded prompts and right-padded completions side by side, logits of every position."""
    before, after = max(map(len, prompts)), max(len(row.token_ids) for row in rows)
    ids = torch.zeros((len(rows), before + after), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        start, n = before - len(prompts[row.prompt]), len(row.token_ids)
        ids[i, start:before], ids[i, before : before + n] = prompts[row.prompt], row.token_ids
        mask[i, start : before + n] = 1
    place = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=place, use_cache=False).logits
    logprobs = torch.log_softmax(logits[:, before - 1 : -1].float(), dim=-1)
    return logprobs.gather(2, ids[:, before:, None]).squeeze(2)


def plain_step(
    model: PreTrainedModel, reference: PreTrainedModel, prompts: list[Tensor], rows: list[TrainRow]
) -> Tensor:
    """DeepSeekMath's loss on fresh samples: mean over rows of the mean over tokens of k3 KL - ratio A."""
    logprobs = padded_logprobs(model, prompts, rows)
    with torch.no_grad():
        gap = padded_logprobs(reference, prompts, rows)
    total = torch.zeros(())
    for i, row in enumerate(rows):
        n = len(row.token_ids)
        mine, theirs = logprobs[i, :n], gap[i, :n]
        kl = (theirs - mine).exp() - (theirs - mine) - 1
        ratio = (mine - mine.detach()).exp()
        total = total + (KL * kl - ratio * row.advantages).mean() / len(rows)
    return total


def our_step(
    model: Policy, reference: FrozenReference, prompts: list[Tensor], rows: list[TrainRow]
) -> tuple[float, dict[str, Tensor]]:
    """The loss of one update, and its gradient read off a step of SGD of rate 1."""
    before = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    updater = Updater(
        Trainable(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        UpdateSettings("sequence_mean", 16, 2, 1, math.inf, micro_batch_tokens=12),
        LossSettings(kl_coefficient=KL),
        accelerator=Accelerator(cpu=True),
        reference=reference,
        pad_id=0,
    )
    loss = updater.update(prompts, rows)["loss"]
    return loss, {name: before[name] - p.detach() for name, p in model.model.named_parameters()}


def assert_equal_steps(
    model: PreTrainedModel, reference: PreTrainedModel, vocabulary: int, lengths: tuple[int, ...]
) -> None:
    prompts, rows = step_rows(vocabulary, lengths)
    plain = copy.deepcopy(model)
    loss = plain_step(plain, reference, prompts, rows)
    loss.backward()
    found, gradient = our_step(
        Policy(model, temperature=1.0), FrozenReference(policy(reference)), prompts, rows
    )
    assert found == pytest.approx(float(loss.detach()), abs=1e-5)
    for name, p in plain.named_parameters():
        assert p.grad is not None
        scale = float(p.grad.abs().max())
        assert torch.allclose(gradient[name], p.grad, atol=1e-5 + 1e-3 * scale), name


def test_the_loss_is_the_plain_padded_loops() -> None:
    assert_equal_steps(llama().eval(), llama(seed=3).eval(), len(TOKENIZER), (4, 9, 1, 6, 3))


def test_the_loss_is_the_plain_padded_loops_on_a_real_model() -> None:
    folder = smollm()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for p in reference.parameters():
            p.mul_(1.001)
    assert_equal_steps(model, reference, 49152, (3, 7, 5))
