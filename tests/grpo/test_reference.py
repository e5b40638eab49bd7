"""When the reference of the KL follows its policy, and what it becomes."""

from __future__ import annotations

import pytest
import torch
from fakes import llama, policy
from torch import Tensor

from grpo.policy import Policy, token_batch
from grpo.reference import Following, FrozenReference

BATCH = token_batch([torch.tensor([5, 6, 7])], [0], [torch.tensor([9, 8, 7, 6])], 0)


def logprobs(model: Policy) -> Tensor:
    with torch.no_grad():
        return model(BATCH).logprobs


def moved(following: Following, steps: int, round_steps: int) -> list[int]:
    """The steps after which the reference is the policy, which differs from it before each."""
    model = policy(llama(seed=1))
    reference = FrozenReference(policy(llama(seed=2)))
    found = []
    for step in range(1, steps + 1):
        with torch.no_grad():
            model.model.get_output_embeddings().weight.add_(0.01)
        told = following.after_step(reference, model, step, round_ended=step % round_steps == 0)
        is_same = torch.equal(reference.logprobs(BATCH), logprobs(model))
        assert told == is_same
        if told:
            found.append(step)
    return found


def test_it_moves_at_round_ends_or_every_so_many_steps_or_never() -> None:
    assert moved(Following("round"), 7, 3) == [3, 6]
    assert moved(Following("steps", every=2), 7, 3) == [2, 4, 6]
    assert moved(Following("never"), 7, 3) == []


def test_a_mean_moves_every_weight_by_its_share() -> None:
    model, start = policy(llama(seed=1)), policy(llama(seed=2))
    reference = FrozenReference(start, whole=True)
    following = Following("ema", decay=0.75)
    following.after_step(reference, model, 1, round_ended=True)
    following.after_step(reference, model, 2, round_ended=False)
    for mean, first, now in zip(
        reference.policy.parameters(), start.parameters(), model.parameters(), strict=True
    ):
        torch.testing.assert_close(mean, 0.75**2 * first + (1 - 0.75**2) * now)


def test_a_mean_is_kept_in_whole_numbers() -> None:
    model = Policy(llama(seed=1), temperature=1.0, precision=torch.bfloat16)
    frozen, whole = FrozenReference(model), FrozenReference(model, whole=True)
    layer = "model.model.layers.0.mlp.up_proj.weight"
    assert frozen.state()[layer].dtype is torch.bfloat16
    assert whole.state()[layer].dtype is torch.float32
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.001)
    before = whole.state()[layer].clone()
    whole.blend(model, 0.99)  # a change of 1e-5, lost in bf16
    assert not torch.equal(whole.state()[layer], before)


@pytest.mark.parametrize("whole", [False, True])
def test_its_state_comes_back(whole: bool) -> None:
    model, other = policy(llama(seed=1)), policy(llama(seed=2))
    reference = FrozenReference(model, whole=whole)
    kept = {name: tensor.clone() for name, tensor in reference.state().items()}
    reference.reset(other)
    assert not torch.equal(reference.logprobs(BATCH), logprobs(model))
    reference.load_state(kept)
    assert torch.equal(reference.logprobs(BATCH), logprobs(model))
