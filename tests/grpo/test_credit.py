"""Step rewards to token advantages: the paper's numbers, a plain brute force, bounds, and the traps."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo.credit import (
    FORMS,
    CreditForm,
    CreditSettings,
    advantage_length_correlation,
    outcome_advantages_to_tokens,
    pad_rows,
    process_advantages,
)
from rewards.errors import ConfigError

WORKED_VALUES = [[0.9, 0.8, 0.2], [0.6], [0.1, 0.3]]
WORKED_ENDS = [[1, 3, 6], [2], [2, 4]]
WORKED_LENGTHS = [7, 4, 5]
BOUNDED: list[CreditForm] = ["mean", "min", "difference"]


def credit(form: CreditForm, values: list[list[float]], **changes: Any) -> list[list[float]]:
    """Advantages when each step is one token."""
    ends = [list(range(len(row))) for row in values]
    rows = process_advantages(
        values, ends, [len(row) for row in values], CreditSettings(form=form, **changes)
    )
    return [row.tolist() for row in rows]


def test_the_worked_example_of_the_paper_holds_to_1e_6() -> None:
    # Pool .9 .8 .2 .6 .1 .3: mean .4833333333, unbiased std .3311595789, so r~ = (r - mean) / (std + 1e-4).
    pool = torch.tensor([0.9, 0.8, 0.2, 0.6, 0.1, 0.3], dtype=torch.float64)
    assert float(pool.mean()) == pytest.approx(0.4833333333, abs=1e-10)
    assert float(pool.std()) == pytest.approx(0.3311595789, abs=1e-10)
    rows = process_advantages(WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, CreditSettings())
    expected = [
        [1.358451] * 2 + [0.100626] * 2 + [-0.855321] * 3,
        [0.352191] * 3 + [0.0],
        [-1.710642] * 3 + [-0.553443] * 2,
    ]
    for row, numbers in zip(rows, expected, strict=True):
        assert row.tolist() == pytest.approx(numbers, abs=1e-6)


def brute_force(
    values: list[list[float]], ends: list[list[int]], lengths: list[int], form: CreditForm
) -> list[list[float]]:
    """The definitions with plain loops, token by token."""
    pool = [r for row in values for r in row]
    if len(pool) < 2 or max(pool) == min(pool):
        return [[0.0] * n for n in lengths]
    mean = sum(pool) / len(pool)
    std = (sum((r - mean) ** 2 for r in pool) / (len(pool) - 1)) ** 0.5
    out: list[list[float]] = []
    for row, stops, n in zip(values, ends, lengths, strict=True):
        z = [(r - mean) / (std + 1e-4) for r in row]
        tokens: list[float] = []
        for t in range(n):
            open_steps = [j for j, stop in enumerate(stops) if stop >= t]
            if form == "sum":
                tokens.append(sum(z[j] for j in open_steps))
            elif form == "mean":
                tokens.append(sum(z[j] for j in open_steps) / max(1, len(row)))
            else:
                tokens.append(z[open_steps[0]] if open_steps else 0.0)
        out.append(tokens)
    return out


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]], list[int]]:
    values: list[list[float]] = []
    ends: list[list[int]] = []
    lengths: list[int] = []
    for _ in range(draw(st.integers(2, 4))):
        n = draw(st.integers(0, 12))
        stops = sorted(draw(st.lists(st.integers(-1, n - 1), max_size=5)))
        # A grid keeps the pool away from the tolerance of the constant-pool rule.
        values.append([draw(st.integers(-8, 8)) / 8 for _ in stops])
        ends.append(stops)
        lengths.append(n)
    return values, ends, lengths


@settings(max_examples=150, deadline=None)
@given(groups(), st.sampled_from(["sum", "mean", "difference"]))
def test_equals_the_plain_loops(
    group: tuple[list[list[float]], list[list[int]], list[int]], form: CreditForm
) -> None:
    rows = process_advantages(*group, CreditSettings(form=form))
    for row, numbers in zip(rows, brute_force(*group, form), strict=True):
        assert row.tolist() == pytest.approx(numbers, abs=1e-5)


def test_min_form_worked_by_hand() -> None:
    # Hard minima .2 .6 .1: mean .3, unbiased std sqrt((.01 + .09 + .04) / 2) = .2645751311.
    # The one minimal step of an output carries (m - mean) / (std + 1e-4) up to its end; nothing is left then.
    rows = process_advantages(
        WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, CreditSettings(form="min", min_temperature=0.0)
    )
    scale = 0.2645751311 + 1e-4
    assert rows[0].tolist() == pytest.approx([-0.1 / scale] * 7, abs=1e-6)
    assert rows[1].tolist() == pytest.approx([0.3 / scale] * 3 + [0.0], abs=1e-6)
    assert rows[2].tolist() == pytest.approx([-0.2 / scale] * 3 + [0.0] * 2, abs=1e-6)


def test_soft_minimum_tends_to_the_hard_one_and_is_pure_weighting() -> None:
    soft = credit("min", WORKED_VALUES, min_temperature=1e-3)
    hard = credit("min", WORKED_VALUES, min_temperature=0.0)
    for left, right in zip(soft, hard, strict=True):
        assert left == pytest.approx(right, abs=1e-6)
    # softmax(-[0, .1] / .1) = [1, e^-1] / (1 + e^-1) = [.7310586, .2689414]; soft minimum .02689414.
    # The other output's is 1; mean .51344707, unbiased std (1 - .02689414) / sqrt 2.
    first, second = credit("min", [[0.0, 0.1], [1.0]], eps=0.0)
    std = (1.0 - 0.02689414) / 2**0.5
    assert first[1] == pytest.approx(0.2689414 * (0.1 - 0.51344707) / std, abs=1e-5)
    assert first[0] == pytest.approx(-second[0], abs=1e-6)


def test_one_step_per_output_is_outcome_supervision() -> None:
    rewards = [0.9, 0.1, 0.4, 0.4]
    expected = torch.tensor(rewards, dtype=torch.float64)
    expected = (expected - expected.mean()) / (expected.std() + 1e-4)
    for form in FORMS:
        rows = credit(form, [[r] for r in rewards])  # type: ignore[arg-type]
        assert [row[0] for row in rows] == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("form", list(FORMS))
def test_constant_pools_give_exactly_zero(form: CreditForm) -> None:
    for value in (0.1, 0.3, 0.7, 0.9, 1.1, 1e4 + 0.1):
        for size in (1, 2, 7):
            rows = credit(form, [[value] * size, [value] * 3])
            assert all(token == 0.0 for row in rows for token in row)
    assert credit(form, [[0.7], []]) == [[0.0], []]


@pytest.mark.parametrize("form", list(FORMS))
def test_outputs_without_steps_change_nothing(form: CreditForm) -> None:
    with_empty = process_advantages(
        [*WORKED_VALUES, []], [*WORKED_ENDS, []], [*WORKED_LENGTHS, 3], CreditSettings(form=form)
    )
    without = process_advantages(WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, CreditSettings(form=form))
    assert with_empty[3].tolist() == [0.0, 0.0, 0.0]
    assert [row.tolist() for row in with_empty[:3]] == [row.tolist() for row in without]


@pytest.mark.parametrize("form", ["sum", "min"])
def test_first_tokens_of_a_group_sum_to_zero(form: CreditForm) -> None:
    rows = process_advantages(WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, CreditSettings(form=form))
    assert sum(float(row[0]) for row in rows) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("form", list(FORMS))
def test_shifting_or_scaling_every_reward_changes_nothing(form: CreditForm) -> None:
    moved = [[2.0 * r + 5.0 for r in row] for row in WORKED_VALUES]
    # The temperature of the soft minimum is in units of the reward, hence it scales along.
    before = credit(form, WORKED_VALUES, eps=0.0, min_temperature=0.1)
    after = credit(form, moved, eps=0.0, min_temperature=0.2)
    for left, right in zip(before, after, strict=True):
        assert left == pytest.approx(right, abs=1e-6)


def test_every_setting_changes_the_result() -> None:
    base = credit("sum", WORKED_VALUES)
    results = [credit(form, WORKED_VALUES) for form in FORMS]  # type: ignore[arg-type]
    assert all(results[i] != results[j] for i in range(4) for j in range(i))
    assert credit("sum", WORKED_VALUES, eps=0.1) != base
    assert credit("sum", WORKED_VALUES, tolerance=10.0) != base
    assert credit("min", WORKED_VALUES, min_temperature=1.0) != credit("min", WORKED_VALUES)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=1, max_size=6), min_size=2, max_size=5
    ),
    st.sampled_from(BOUNDED),
)
def test_trap_39_bounded_forms_never_leave_the_range_of_the_rewards(
    values: list[list[float]], form: CreditForm
) -> None:
    pool = torch.tensor([r for row in values for r in row], dtype=torch.float64)
    if form == "min":
        pool = torch.tensor([min(row) for row in values], dtype=torch.float64)
        rows = credit(form, values, min_temperature=0.0)
    else:
        rows = credit(form, values)
    spread = float(pool.std()) if len(pool) > 1 and pool.max() > pool.min() else 1.0
    bound = float((pool - pool.mean()).abs().max()) / spread + 1e-6
    assert all(abs(row[0]) <= bound for row in rows)


@pytest.mark.parametrize("form", BOUNDED)
@pytest.mark.parametrize("steps", [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0, 1.0]])
def test_trap_39_repeating_a_good_step_never_beats_an_output_of_good_steps(
    form: CreditForm, steps: list[float]
) -> None:
    others = [[1.0, 1.0], [1.0, 0.0]]
    for copies in (1, 3, 30):
        rows = credit(form, [[*steps, *[1.0] * copies], *others])
        assert rows[0][0] <= rows[1][0] + 1e-6


@pytest.mark.parametrize("copies", [1, 5, 50])
def test_trap_39_min_and_difference_pay_nothing_for_more_good_steps(copies: int) -> None:
    plain = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    padded = [[1.0, 0.0, *[1.0] * copies], *plain[1:]]
    assert credit("min", padded, min_temperature=0.0)[0][0] == pytest.approx(
        credit("min", plain, min_temperature=0.0)[0][0], abs=1e-6
    )
    assert credit("min", padded)[0][0] == pytest.approx(credit("min", plain)[0][0], abs=1e-2)
    # In the difference form only the pool sees the copies; steps of one value share one credit.
    before, after = credit("difference", plain), credit("difference", padded)
    assert after[0][0] == pytest.approx(after[1][0], abs=1e-6)
    assert before[0][0] >= after[0][0]


def test_the_sum_form_is_unbounded_as_documented() -> None:
    plain = credit("sum", [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])[0][0]
    repeated = credit("sum", [[1.0, *[1.0] * 50, 0.0], [1.0, 0.0], [0.0, 0.0]])[0][0]
    assert repeated > 3 * plain


def test_position_baseline_worked_by_hand() -> None:
    # Means by position: 1.6 / 3, 1.1 / 2, .2. Centred: .36667 .25 0, .06667 and -.43333 -.25: their squares
    # add up to .4516667, over 5 degrees of freedom.
    plan = CreditSettings(baseline="position")
    rows = process_advantages(WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, plan)
    scale = (0.4516666667 / 5) ** 0.5 + 1e-4
    expected = [
        [0.6166667] * 2 + [0.25] * 2 + [0.0] * 3,
        [0.0666667] * 3 + [0.0],
        [-0.6833333] * 3 + [-0.25] * 2,
    ]
    for row, numbers in zip(rows, expected, strict=True):
        assert row.tolist() == pytest.approx([number / scale for number in numbers], abs=1e-5)


def test_position_baseline_charges_no_step_for_being_hard() -> None:
    values = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    # The last step is wrong in every output: against the pool all are charged, against each other none is.
    assert all(row[2] < -0.1 for row in credit("sum", values))
    rows = torch.tensor(credit("sum", values, baseline="position"))
    assert rows[:, 2].tolist() == [0.0, 0.0, 0.0]
    assert rows.sum(dim=0).tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    assert rows[2, 0] == rows[2, 1] > 0 > rows[0, 0]


def test_position_baseline_pays_nothing_for_steps_no_other_output_took() -> None:
    rows = credit("sum", [[1.0, 0.0, *[1.0] * 50], [1.0, 1.0], [0.0, 0.0]], baseline="position")
    assert rows[0][2:] == [0.0] * 50


def test_steps_without_a_token_pay_no_token() -> None:
    rows = process_advantages([[1.0, 0.0], [0.5]], [[-1, 1], [0]], [2, 1], CreditSettings())
    assert rows[0].tolist() == pytest.approx([-0.5 / (0.5 + 1e-4)] * 2, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "ends", "lengths", "message"),
    [
        ([[1.0]], [[0]], [1, 1], "expected one of each per output"),
        ([[1.0, 0.0]], [[0]], [2], "2 step rewards but 1 step ends"),
        ([[float("nan")]], [[0]], [1], "must be finite"),
        ([[1.0]], [[1]], [1], r"lie in \[-1, 1\)"),
        ([[1.0, 0.0]], [[1, 0]], [2], "must not fall"),
    ],
)
def test_inconsistent_input_is_refused(
    values: list[list[float]], ends: list[list[int]], lengths: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        process_advantages(values, ends, lengths, CreditSettings())


@pytest.mark.parametrize(
    "changes",
    [
        {"form": "last"},
        {"baseline": "step"},
        {"baseline": "position", "form": "min"},
        {"eps": -1.0},
        {"tolerance": float("nan")},
        {"min_temperature": -0.1},
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(changes))}="):
        CreditSettings(**changes)


def test_trap_10_token_advantages_own_their_memory() -> None:
    tokens = outcome_advantages_to_tokens(torch.tensor([1.5, -0.5]), [3, 1])
    assert tokens.tolist() == [[1.5, 1.5, 1.5], [-0.5, 0.0, 0.0]]
    tokens[0, 1] = 9.0
    assert tokens.tolist() == [[1.5, 9.0, 1.5], [-0.5, 0.0, 0.0]]
    rows = process_advantages(WORKED_VALUES, WORKED_ENDS, WORKED_LENGTHS, CreditSettings())
    padded = pad_rows(rows)
    rows[0][0] = 99.0
    assert padded[0, 0] != 99.0


def test_outcome_tokens_of_empty_outputs() -> None:
    assert outcome_advantages_to_tokens(torch.tensor([2.0, 1.0]), [0, 1]).tolist() == [[0.0], [1.0]]
    assert outcome_advantages_to_tokens(torch.zeros(0), []).shape == (0, 0)
    with pytest.raises(ValueError, match=r"expected \(3,\)"):
        outcome_advantages_to_tokens(torch.zeros(2), [1, 1, 1])


def test_advantage_length_correlation() -> None:
    # Sums 1, 2, 3 against lengths 1, 2, 3: exactly +1; turned round: -1.
    up = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert advantage_length_correlation(up, [1, 2, 3]) == pytest.approx(1.0)
    assert advantage_length_correlation(-up, [1, 2, 3]) == pytest.approx(-1.0)
    # Sums 1, 0, 2 with lengths 1, 2, 3: covariance 1/2 of 1 x 1 over two degrees of freedom.
    mixed = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert advantage_length_correlation(mixed, [1, 2, 3]) == pytest.approx(0.5)
    assert advantage_length_correlation(up, [2, 2, 2]) is None
    assert advantage_length_correlation(torch.zeros(3, 3), [1, 2, 3]) is None
    assert advantage_length_correlation(up[:1], [1]) is None


def test_outcome_and_process_are_normalised_apart_and_added() -> None:
    # Process rewards 1000 times larger leave the outcome's share of the sum as it is.
    lengths = [2, 2]
    outcome = outcome_advantages_to_tokens(torch.tensor([0.7, -0.7]), lengths)
    small = pad_rows(process_advantages([[1.0], [0.0]], [[1], [1]], lengths, CreditSettings(eps=0.0)))
    large = pad_rows(process_advantages([[1000.0], [0.0]], [[1], [1]], lengths, CreditSettings(eps=0.0)))
    assert torch.allclose(outcome + small, outcome + large)
