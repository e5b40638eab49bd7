"""Row weights and padding: each mean from its definition, and traps 16 and 25."""

from __future__ import annotations

import random

import pytest
import reference
import torch

from grpo.algorithm import AGGREGATIONS
from grpo.batch import StepTotals, pad_rows, row_weights, step_totals
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


def test_pad_rows_fills_on_the_right_and_owns_its_memory() -> None:
    row = torch.tensor([1.5]).expand(2)
    padded = pad_rows([row, torch.tensor([2.0, 3.0, 4.0]), torch.tensor([])], 7.0, torch.float32)
    assert padded.tolist() == [[1.5, 1.5, 7.0], [2.0, 3.0, 4.0], [7.0, 7.0, 7.0]]
    padded[0, 0] = 9.0
    assert padded[0].tolist() == [9.0, 1.5, 7.0]
    assert pad_rows([], 0, torch.float32).shape == (0, 0)
