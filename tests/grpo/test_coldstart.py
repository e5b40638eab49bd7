"""The supervised phase: it learns, is reproducible, and is done once for equal settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes import SPEC, TOKENIZER, policy, problem

from grpo.coldstart import ColdStartSettings, Demonstration, cold_start, demonstrate
from grpo.policy import Policy
from grpo.rollout.local import pad_id
from grpo.tiny import TinyShape, tiny_model
from rewards.errors import DataError
from rewards.types import Problem

SETTINGS = ColdStartSettings(steps=40, batch_size=8, learning_rate=1e-2, seed=0)


def worked(number: int) -> Problem:
    """1 + n, with the thought written out."""
    meta = {"thought": f"1+{number}={number + 1}", "answer": str(number + 1)}
    return Problem(f"p{number}", f"1+{number}=", (str(number + 1),), "number", "test", meta)


def demonstrations() -> list[Demonstration]:
    return [demonstrate(worked(number), TOKENIZER, SPEC) for number in range(8)]


def fresh() -> Policy:
    return policy(tiny_model(TOKENIZER, TinyShape(32, 1, 2), seed=0))


def start(model: Policy, cache: Path, losses: list[float]) -> tuple[float, bool]:
    def report(step: int, loss: float) -> None:
        losses.append(loss)

    return cold_start(model, demonstrations(), SETTINGS, pad=pad_id(TOKENIZER), cache=cache, report=report)


def weights(model: Policy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_demonstration_is_the_layout_and_ends() -> None:
    shown = demonstrate(worked(4), TOKENIZER, SPEC)
    text = TOKENIZER.decode(shown.completion_ids[:-1])
    assert text == "<think>1+4=5</think>5"
    assert shown.completion_ids[-1] == TOKENIZER.eos_token_id


def test_it_learns_and_an_equal_one_is_the_same_to_the_bit(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    losses: list[float] = []
    loss, cached = start(first, tmp_path / "one", losses)
    assert not cached
    assert len(losses) == 40
    assert loss == pytest.approx(sum(losses[-4:]) / 4)
    assert loss < losses[0] / 2
    start(second, tmp_path / "two", [])
    assert torch.equal(weights(first), weights(second))


def test_the_second_finds_it_in_the_cache_and_asks_for_no_demonstration(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    loss, _ = start(first, tmp_path / "cache", [])

    def never() -> Iterator[Demonstration]:
        raise AssertionError("asked for")
        yield

    def silent(step: int, loss: float) -> None:
        raise AssertionError("trained")

    found = cold_start(
        second, never(), SETTINGS, pad=pad_id(TOKENIZER), cache=tmp_path / "cache", report=silent
    )
    assert found == (loss, True)
    assert torch.equal(weights(first), weights(second))
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_problem_without_a_worked_thought_is_refused() -> None:
    with pytest.raises(DataError, match=r"coldstart\.steps=0"):
        demonstrate(problem(), TOKENIZER, SPEC)
