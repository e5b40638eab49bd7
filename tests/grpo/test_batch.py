"""Row weights, padding and micro-batches: each mean from its definition, and traps 5, 16 and 25."""

from __future__ import annotations

import random

import pytest
import reference
import torch

from grpo.algorithm import AGGREGATIONS
from grpo.batch import StepTotals, collate, length_mask, micro_batches, pad_rows, row_weights, step_totals
from rewards.errors import ConfigError

LENGTHS = torch.tensor([3, 4, 2])
PROMPTS = torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("sequence_mean", [1 / 9, 1 / 12, 1 / 6]),  # 1 / (3 rows * own length)
        ("token_mean", [1 / 9, 1 / 9, 1 / 9]),  # 9 tokens
        ("constant", [1 / 30, 1 / 30, 1 / 30]),  # 3 rows * limit 10
        ("prompt_mean", [1 / 14, 1 / 14, 1 / 4]),  # 1 / (2 prompts * tokens of the prompt: 7 and 2)
        ("sequence_sum", [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_weights_by_hand(aggregation: str, expected: list[float]) -> None:
    totals = step_totals(LENGTHS, PROMPTS)
    assert totals == StepTotals(rows=3, tokens=9, prompts=2)
    assert row_weights(LENGTHS, PROMPTS, aggregation, 10, totals).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_equal_plain_loops(aggregation: str) -> None:
    rng = random.Random(aggregation)
    for _ in range(30):
        rows = rng.randint(1, 7)
        lengths = [rng.choice([0, 1, 2, 5]) for _ in range(rows)]
        prompts = [rng.randint(0, 2) for _ in range(rows)]
        values = [[rng.gauss(0, 1) for _ in range(5)] for _ in range(rows)]
        mask = [[t < n for t in range(5)] for n in lengths]
        expected = reference.aggregate(values, mask, prompts, aggregation, 9)
        n, index = torch.tensor(lengths), torch.tensor(prompts)
        weights = row_weights(n, index, aggregation, 9, step_totals(n, index))
        weighted = torch.tensor(values, dtype=torch.float64) * torch.tensor(mask) * weights[:, None]
        assert weighted.sum().item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_do_not_depend_on_row_order_or_on_the_rank(aggregation: str) -> None:
    totals = step_totals(LENGTHS, PROMPTS)
    whole = row_weights(LENGTHS, PROMPTS, aggregation, 10, totals)
    order = torch.tensor([2, 0, 1])
    permuted = row_weights(LENGTHS[order], PROMPTS[order], aggregation, 10, totals)
    assert torch.equal(permuted, whole[order])
    # Two ranks with whole prompts, counts added up.
    first, second = torch.tensor([0, 1]), torch.tensor([2])
    ranks = [step_totals(LENGTHS[r], PROMPTS[r]) for r in (first, second)]
    assert ranks[0] + ranks[1] == totals
    parts = [
        row_weights(LENGTHS[r], PROMPTS[r], aggregation, 10, ranks[0] + ranks[1]) for r in (first, second)
    ]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_trap_16_rows_without_tokens_weigh_nothing_and_stay_finite(aggregation: str) -> None:
    nothing = torch.zeros(2, dtype=torch.int64)
    weights = row_weights(nothing, torch.arange(2), aggregation, 10, step_totals(nothing, torch.arange(2)))
    assert weights.tolist() == [0.0, 0.0]
    none = torch.zeros(0, dtype=torch.int64)
    assert row_weights(none, none, aggregation, 10, StepTotals(0, 0, 0)).shape == (0,)


def test_trap_25_masked_rows_count_as_documented() -> None:
    lengths, prompts = torch.tensor([3, 0]), torch.tensor([0, 1])
    totals = step_totals(lengths, prompts)

    def first(aggregation: str) -> float:
        return row_weights(lengths, prompts, aggregation, 10, totals)[0].item()

    assert first("token_mean") == pytest.approx(1 / 3)  # as if the masked row were not there
    assert first("sequence_mean") == pytest.approx(1 / (2 * 3))  # two rows, one of them 0
    assert first("constant") == pytest.approx(1 / (2 * 10))
    assert first("prompt_mean") == pytest.approx(1 / (2 * 3))
    assert first("sequence_sum") == pytest.approx(1 / 2)


def test_an_unknown_aggregation_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'token_mean'"):
        row_weights(LENGTHS, PROMPTS, "tokens_mean", 10, step_totals(LENGTHS, PROMPTS))


def three_rows() -> list[torch.Tensor]:
    # The id 2 is stop and padding at once.
    return [torch.tensor([5, 7, 2]), torch.tensor([], dtype=torch.int64), torch.tensor([2, 2])]


def test_collate_pads_right_and_masks_by_length_not_by_id() -> None:
    ids = three_rows()
    advantages = [torch.full((n.numel(),), float(i + 1)) for i, n in enumerate(ids)]
    logprobs = [torch.full((n.numel(),), -0.5) for n in ids]
    batch = collate(ids, advantages, logprobs, pad_id=2)
    assert batch.token_ids.tolist() == [[5, 7, 2], [2, 2, 2], [2, 2, 2]]
    assert batch.mask.tolist() == [[True, True, True], [False, False, False], [True, True, False]]
    assert batch.advantages.tolist() == [[1, 1, 1], [0, 0, 0], [3, 3, 0]]
    assert batch.sampling_logprobs.tolist() == [[-0.5, -0.5, -0.5], [0, 0, 0], [-0.5, -0.5, 0]]
    assert batch.lengths.tolist() == [3, 0, 2]
    # A row that is not trained on keeps its ids and length, and leaves the mask.
    untrained = collate(ids, advantages, logprobs, trained=[True, True, False])
    assert untrained.mask.sum(1).tolist() == [3, 0, 0]
    assert untrained.lengths.tolist() == [3, 0, 2]


def test_collate_refuses_rows_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="row 0"):
        collate([torch.tensor([1, 2])], [torch.tensor([1.0])], [torch.tensor([-1.0, -1.0])])


def test_collate_owns_its_memory() -> None:
    advantage = torch.tensor([1.0]).expand(3)
    batch = collate([torch.tensor([1, 2, 3])], [advantage], [torch.zeros(3)])
    batch.advantages[0, 0] = 9.0
    assert batch.advantages.tolist() == [[9.0, 1.0, 1.0]]


def test_empty_input_gives_empty_tensors() -> None:
    batch = collate([], [], [])
    assert batch.token_ids.shape == batch.mask.shape == (0, 0)
    assert pad_rows([], 0, torch.float32).shape == (0, 0)
    assert length_mask(torch.tensor([0, 0])).shape == (2, 0)
    assert micro_batches([], 4) == []


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_trap_05_every_row_stays_with_its_prompt_in_every_micro_batch(rows: int) -> None:
    # A policy that echoes its prompt's number, with an advantage that is that number.
    prompts = [i // 2 for i in range(8)]
    lengths = [1 + (5 * i) % 7 for i in range(8)]
    ids = [torch.full((n,), p) for n, p in zip(lengths, prompts, strict=True)]
    advantages = [torch.full((n,), float(p)) for n, p in zip(lengths, prompts, strict=True)]
    seen: list[int] = []
    for indices in micro_batches(lengths, rows):
        assert 1 <= len(indices) <= rows
        batch = collate(
            [ids[i] for i in indices],
            [advantages[i] for i in indices],
            [torch.zeros(lengths[i]) for i in indices],
        )
        for k, i in enumerate(indices):
            trained = batch.mask[k]
            assert trained.sum() == lengths[i]
            assert (batch.token_ids[k][trained] == prompts[i]).all()
            assert (batch.advantages[k][trained] == prompts[i]).all()
        seen += indices
    assert sorted(seen) == list(range(8))


def test_micro_batches_are_sorted_by_length_and_stable() -> None:
    assert micro_batches([2, 5, 2, 9], 2) == [[3, 1], [0, 2]]
