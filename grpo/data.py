"""The problems of a run: read, checked, parted into training and held out, and put in an order.

Knows what the settings under `data` mean; knows nothing of tokens or rewards.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grpo.config import DataConfig
from rewards.errors import ConfigError, DataError
from rewards.golds import GoldFault, find_gold_faults
from rewards.io import read_problems
from rewards.prepared import PREPARED_FILE, Setting, ensure_prepared
from rewards.types import Problem

SHOWN_FAULTS = 10
"""How many faulty golds a message spells out."""


@dataclass(frozen=True, slots=True)
class LoadedProblems:
    """Problems in the order of the file, and the golds among them that cannot be relied on."""

    problems: tuple[Problem, ...]
    faults: tuple[GoldFault, ...] = ()


@dataclass(frozen=True, slots=True)
class RunData:
    """What a run works on.

    No prompt of evaluation is in train. coldstart problems have meta["thought"] and meta["answer"]; there are
    none but for arithmetic. faults: golds that cannot be relied on, as lines for people.
    """

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    coldstart: tuple[Problem, ...]
    faults: tuple[str, ...]


def load_run_data(data: DataConfig, seed: int, cache: Path) -> RunData:
    """Prepares what is not yet in the cache, reads, checks and parts it.

    Args:
        data: the settings; a part of a larger set (train_size, eval_size) is drawn by the seed.
        seed: of the draw; for arithmetic also of the sums.
        cache: see `rewards.prepared.cache_folder`.

    Raises:
        DataError: a file cannot be read or its golds cannot be relied on; nothing is left to train on.
    """
    if data.dataset == "arithmetic":
        return _arithmetic(data, seed, cache)
    train_file, eval_file = _files(data, cache)
    loaded = load_problems(train_file, strict=data.strict, max_invalid_share=data.max_invalid_share)
    faults = describe_faults(loaded.faults, train_file)
    if eval_file is None:
        train, evaluation = split_off(loaded.problems, data.eval_size, seed)
    else:
        held_out = load_problems(eval_file, strict=data.strict, max_invalid_share=data.max_invalid_share)
        faults += describe_faults(held_out.faults, eval_file)
        evaluation = draw(held_out.problems, data.eval_size, seed)
        prompts = {problem.prompt for problem in evaluation}
        train = [problem for problem in loaded.problems if problem.prompt not in prompts]
        if not train:
            raise DataError(f"{train_file}: every problem of it is also in {eval_file}: nothing to train on")
    train = draw(train, data.train_size or len(train), seed)
    return RunData(tuple(train), tuple(evaluation), (), tuple(faults))


def load_problems(path: Path, *, strict: bool = False, max_invalid_share: float = 0.05) -> LoadedProblems:
    """Reads a problem file and checks its identifiers and golds.

    Args:
        path: a Problem jsonl (also .gz or parquet).
        strict: refuse the file for a single gold that is empty or does not verify against itself.
        max_invalid_share: refuse it when a larger share (0 to 1) of its golds is so.

    Raises:
        DataError: a line cannot be read, an identifier occurs twice, there is no problem, or too many golds
            are faulty.
    """
    problems = read_problems(path)
    if not problems:
        raise DataError(f"{path}: no problems: expected one JSON object a line")
    _refuse_repeated_ids(path, problems)
    faults = tuple(find_gold_faults(problems))
    if faults and (strict or len(faults) / len(problems) > max_invalid_share):
        limit = "data.strict=true" if strict else f"data.max_invalid_share={max_invalid_share}"
        raise DataError(
            "\n".join(
                [
                    f"{path}: {len(faults)} of {len(problems)} golds cannot be relied on ({limit}); "
                    "correct these rows or take them out:",
                    *describe_faults(faults, path),
                ]
            )
        )
    return LoadedProblems(tuple(problems), faults)


def describe_faults(faults: Sequence[GoldFault], path: Path) -> list[str]:
    """One line a fault, with its row; the first ten spelled out, the rest counted."""
    lines = [
        f"{path}, row {fault.index + 1} (id {fault.problem_id!r}): {fault.reason}: "
        f"{' | '.join(fault.gold) or 'empty'}"
        for fault in faults[:SHOWN_FAULTS]
    ]
    if len(faults) > SHOWN_FAULTS:
        lines.append(f"{path}: and {len(faults) - SHOWN_FAULTS} more")
    return lines


def split_off(problems: Sequence[Problem], size: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """(the rest, `size` problems held out), each in file order; the choice follows from the seed.

    Raises:
        DataError: there would be nothing left to train on.
    """
    if size >= len(problems):
        raise DataError(
            f"{len(problems)} problems: expected more than data.eval_size={size}, which are held out of "
            "them; lower it, or give data.eval_path"
        )
    evaluation = draw(problems, size, seed)
    held_out = {problem.id for problem in evaluation}
    return [problem for problem in problems if problem.id not in held_out], evaluation


def draw(problems: Sequence[Problem], size: int, seed: int) -> list[Problem]:
    """`size` of the problems, or all if there are fewer, in file order; the choice follows from the seed."""
    if size >= len(problems):
        return list(problems)
    chosen = sorted(random.Random(f"draw/{seed}").sample(range(len(problems)), size))
    return [problems[index] for index in chosen]


@dataclass(frozen=True, slots=True)
class ProblemOrder:
    """An endless shuffled order of n problems; what a step sees is a function of the step, so a resumed run
    needs no position.

    An epoch is one permutation, cut into whole batches; the n modulo size problems left over are not seen in
    it. So no problem occurs twice in a batch, where equal (step, problem id, index) would mean equal samples.
    Orders of different names are independent.
    """

    seed: int
    n: int
    name: str = "order"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"n={self.n}: expected at least one problem")

    def batch(self, step: int, size: int) -> list[int]:
        """The indices, each below n and all different, of the problems of a step counted from 0.

        Raises:
            ConfigError: size is not between 1 and n.
        """
        if not 1 <= size <= self.n:
            raise ConfigError(
                f"rollout.prompts_per_step={size}: expected 1 to {self.n}, the number of training problems"
            )
        epoch, position = divmod(step, self.n // size)
        order = _permutation(f"{self.name}/{self.seed}/{epoch}", self.n)
        return list(order[position * size : (position + 1) * size])


@lru_cache(maxsize=2)
def _permutation(key: str, n: int) -> tuple[int, ...]:
    order = list(range(n))
    random.Random(key).shuffle(order)
    return tuple(order)


def _arithmetic(data: DataConfig, seed: int, cache: Path) -> RunData:
    settings: dict[str, Setting | None] = {
        "dataset": "arithmetic",
        "seed": seed,
        "arithmetic.max_operand": data.max_operand,
        "arithmetic.terms": data.terms,
        "arithmetic.slip_rate": data.slip_rate,
        "arithmetic.train_size": data.train_size,
        "arithmetic.eval_size": data.eval_size,
    }
    folder = ensure_prepared(settings, cache)
    train, evaluation = (
        load_problems(folder / f"{name}.jsonl", strict=True).problems for name in ("train", "eval")
    )
    # Nobody is paid by the golds of the cold start, so there is nothing to check in its many examples.
    return RunData(train, evaluation, tuple(read_problems(folder / "coldstart.jsonl")), ())


def _files(data: DataConfig, cache: Path) -> tuple[Path, Path | None]:
    """The files of training and held-out problems; None: a part of the first is to be held out."""
    if data.dataset == "jsonl":
        train, evaluation = Path(str(data.path)), data.eval_path
        return train.expanduser(), None if evaluation is None else Path(evaluation).expanduser()
    train_folder = ensure_prepared({"dataset": data.dataset, "source": data.path, "split": "train"}, cache)
    if data.eval_path is None and data.path is not None:
        return train_folder / PREPARED_FILE, None
    eval_folder = ensure_prepared({"dataset": data.dataset, "source": data.eval_path, "split": "test"}, cache)
    return train_folder / PREPARED_FILE, eval_folder / PREPARED_FILE


def _refuse_repeated_ids(path: Path, problems: Sequence[Problem]) -> None:
    first_row: dict[str, int] = {}
    for row, problem in enumerate(problems, start=1):
        if problem.id in first_row:
            raise DataError(
                f"{path}: id {problem.id!r} occurs in rows {first_row[problem.id]} and {row}: "
                "give every problem its own id (samples are drawn by it)"
            )
        first_row[problem.id] = row
