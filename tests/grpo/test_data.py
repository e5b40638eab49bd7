"""The problems of a run: checks at load, parts, and the order that needs no state."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from grpo.config import DataConfig
from grpo.data import ProblemOrder, draw, load_problems, load_run_data, split_off
from rewards.errors import ConfigError, DataError
from rewards.io import write_problems
from rewards.types import Problem, Reason


def problem(number: int, gold: Sequence[str] = ("1",)) -> Problem:
    return Problem(id=f"p{number}", prompt=f"question {number}", gold=tuple(gold))


def jsonl_settings(path: Path) -> DataConfig:
    return DataConfig(
        dataset="jsonl",
        path=str(path),
        eval_path=None,
        train_size=None,
        eval_size=8,
        max_operand=None,
        terms=None,
        slip_rate=None,
        strict=False,
        max_invalid_share=0.05,
        max_prompt_tokens=64,
    )


def test_good_problems_load_without_faults(tmp_path: Path) -> None:
    problems = [problem(1), problem(2, [r"\frac{1}{2}"]), problem(3, ["x=1", "x=2"])]
    write_problems(tmp_path / "a.jsonl", problems)
    loaded = load_problems(tmp_path / "a.jsonl", strict=True)
    assert loaded.problems == tuple(problems)
    assert loaded.faults == ()


def test_empty_golds_are_listed_with_their_row(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl", [*map(problem, range(19)), problem(19, [])])
    (fault,) = load_problems(tmp_path / "a.jsonl", max_invalid_share=0.05).faults
    assert (fault.index, fault.problem_id, fault.reason) == (19, "p19", Reason.NO_GOLD)
    with pytest.raises(
        DataError, match=r"1 of 20 golds .*strict=true.*\n.*row 20 \(id 'p19'\): no_gold: empty"
    ):
        load_problems(tmp_path / "a.jsonl", strict=True)
    with pytest.raises(DataError, match=r"max_invalid_share=0\.04"):
        load_problems(tmp_path / "a.jsonl", max_invalid_share=0.04)


def test_a_message_spells_out_ten_faults(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl", [problem(number, []) for number in range(12)])
    with pytest.raises(DataError) as refused:
        load_problems(tmp_path / "a.jsonl")
    lines = str(refused.value).splitlines()
    assert len(lines) == 1 + 10 + 1
    assert lines[-1].endswith("and 2 more")


def test_repeated_ids_and_empty_files_are_refused(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl", [problem(1), problem(2), problem(1)])
    with pytest.raises(DataError, match="id 'p1' occurs in rows 1 and 3"):
        load_problems(tmp_path / "a.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no problems"):
        load_problems(tmp_path / "empty.jsonl")


def test_a_single_file_is_parted(tmp_path: Path) -> None:
    problems = [problem(number) for number in range(40)]
    write_problems(tmp_path / "a.jsonl", problems)
    settings = replace(jsonl_settings(tmp_path / "a.jsonl"), eval_size=10, train_size=25)
    data = load_run_data(settings, seed=0, cache=tmp_path / "cache")
    assert (len(data.train), len(data.evaluation), len(data.coldstart)) == (25, 10, 0)
    assert not {one.id for one in data.train} & {one.id for one in data.evaluation}
    assert data == load_run_data(settings, seed=0, cache=tmp_path / "cache")
    assert data.evaluation != load_run_data(settings, seed=1, cache=tmp_path / "cache").evaluation


def test_held_out_prompts_leave_the_training_set(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl", [problem(number) for number in range(10)])
    write_problems(tmp_path / "b.jsonl", [Problem("other", "question 3", ("1",))])
    settings = replace(jsonl_settings(tmp_path / "a.jsonl"), eval_path=str(tmp_path / "b.jsonl"))
    data = load_run_data(settings, seed=0, cache=tmp_path / "cache")
    assert [one.id for one in data.train] == [f"p{number}" for number in range(10) if number != 3]
    assert [one.id for one in data.evaluation] == ["other"]
    write_problems(tmp_path / "a.jsonl", [problem(3)])
    with pytest.raises(DataError, match="nothing to train on"):
        load_run_data(settings, seed=0, cache=tmp_path / "cache")


def test_faults_of_both_files_are_told(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl", [problem(1), problem(2, [])])
    write_problems(tmp_path / "b.jsonl", [problem(3), problem(4, [])])
    settings = replace(
        jsonl_settings(tmp_path / "a.jsonl"), eval_path=str(tmp_path / "b.jsonl"), max_invalid_share=0.5
    )
    first, second = load_run_data(settings, seed=0, cache=tmp_path / "cache").faults
    assert "a.jsonl, row 2 (id 'p2'): no_gold" in first
    assert "b.jsonl, row 2 (id 'p4'): no_gold" in second


def test_split_off_and_draw_keep_file_order_and_lose_nothing() -> None:
    problems = [problem(number) for number in range(20)]
    rest, held_out = split_off(problems, 5, seed=3)
    assert (len(rest), len(held_out)) == (15, 5)
    assert sorted([*rest, *held_out], key=problems.index) == problems
    for part in (rest, held_out, draw(problems, 7, seed=3)):
        assert part == sorted(part, key=problems.index)
    assert draw(problems, 20, seed=3) == draw(problems, 99, seed=3) == problems
    with pytest.raises(DataError, match="20 problems: expected more than"):
        split_off(problems, 20, seed=3)


def test_an_epoch_shows_every_problem_once() -> None:
    order = ProblemOrder(seed=0, n=12)
    epoch = list(itertools.chain.from_iterable(order.batch(step, 4) for step in range(3)))
    assert sorted(epoch) == list(range(12))
    again = list(itertools.chain.from_iterable(order.batch(step, 4) for step in range(3, 6)))
    assert sorted(again) == list(range(12))
    assert again != epoch


def test_no_problem_occurs_twice_in_a_batch_and_none_is_starved() -> None:
    order = ProblemOrder(seed=1, n=10)
    seen: Counter[int] = Counter()
    for step in range(300):
        batch = order.batch(step, 4)
        assert len(set(batch)) == 4
        seen.update(batch)
    # 300 steps are 150 epochs of 8 draws out of 10: each problem is expected 120 times, with a standard
    # deviation of sqrt(150 * 0.8 * 0.2) = 4.9
    assert all(abs(seen[index] - 120) < 5 * 4.9 for index in range(10))


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    forward = [ProblemOrder(seed=5, n=100).batch(step, 8) for step in range(40)]
    order = ProblemOrder(seed=5, n=100)
    assert [order.batch(step, 8) for step in reversed(range(40))] == forward[::-1]
    assert [ProblemOrder(seed=6, n=100).batch(step, 8) for step in range(40)] != forward
    # pinned: a resumed run must meet the same order after an upgrade of Python
    assert ProblemOrder(seed=0, n=8).batch(0, 8) == [1, 3, 7, 4, 2, 0, 5, 6]


def test_impossible_batches_are_refused() -> None:
    for size in (0, 6):
        with pytest.raises(ConfigError, match=f"prompts_per_step={size}: expected 1 to 5"):
            ProblemOrder(seed=0, n=5).batch(0, size)
    with pytest.raises(ConfigError, match="n=0"):
        ProblemOrder(seed=0, n=0)


def test_orders_of_different_names_are_independent() -> None:
    batches = [
        ProblemOrder(3, 50, name).batch(step, 5) for name in ("order", "reserve") for step in range(10)
    ]
    assert batches[:10] != batches[10:]
    assert batches[:10] == [ProblemOrder(3, 50).batch(step, 5) for step in range(10)]
