"""Rollouts on disk: what comes back is what was sampled, and what is not there is said in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from accelerate import Accelerator
from fakes import TOKENIZER, policy, prompts

from grpo.collect import Collector, DynamicSampling
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import LocalEngine, Sampling
from grpo.rollout.saved import Recorder, SavedRollouts, check_rollouts, write_rollouts
from grpo.timings import Timings
from grpo.types import Completion, RolloutGroup
from rewards.errors import DataError
from rewards.types import Reason, Sample, Score

TEXTS = ("1+2=", "34+5=", "7+7=")
SAMPLING = Sampling("0/train/3", 4, 12, version=3)


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(policy(), TOKENIZER, decode_rows=64)


@pytest.fixture(scope="module")
def sampled(engine: LocalEngine) -> list[RolloutGroup]:
    return [group for batch in engine.generate(prompts(*TEXTS), SAMPLING) for group in batch]


@pytest.fixture
def saved(tmp_path: Path, engine: LocalEngine, sampled: list[RolloutGroup]) -> SavedRollouts:
    write_rollouts(tmp_path / "rollouts", 3, sampled, temperature=1.0)
    return SavedRollouts(tmp_path / "rollouts", engine.decode, temperature=1.0)


def replayed(
    saved: SavedRollouts, asked: list[EncodedPrompt], sampling: Sampling = SAMPLING
) -> list[RolloutGroup]:
    return [group for batch in saved.generate(asked, sampling) for group in batch]


def content(group: RolloutGroup) -> list[tuple[Sample, list[int], list[float]]]:
    return [(c.sample, c.token_ids.tolist(), c.logprobs.tolist()) for c in group.completions]


def test_what_was_sampled_comes_back_to_the_bit(saved: SavedRollouts, sampled: list[RolloutGroup]) -> None:
    back = replayed(saved, prompts(*TEXTS))
    assert [content(group) for group in back] == [content(group) for group in sampled]
    for group, one in zip(back, sampled, strict=True):
        assert torch.equal(group.prompt_ids, one.prompt_ids)
        assert all(
            c.logprobs.dtype == torch.float32 and c.token_ids.dtype == torch.int64 for c in group.completions
        )
    assert {c.sample.truncated for group in back for c in group.completions} == {True, False}


def test_a_logprob_of_any_kind_survives(tmp_path: Path, sampled: list[RolloutGroup]) -> None:
    odd = torch.tensor([-0.1, -math.inf, math.nan, -1.1754944e-38, -0.0])
    first = sampled[0].completions[0]
    completion = Completion(replace(first.sample, index=0), torch.arange(5), odd)
    write_rollouts(tmp_path, 1, [replace(sampled[0], completions=(completion,))], temperature=0.7)
    served = SavedRollouts(tmp_path, str, temperature=0.7)
    (group,) = replayed(served, prompts(TEXTS[0]), Sampling("", 1, 12, version=1))
    bits = group.completions[0].logprobs.view(torch.int32)
    assert torch.equal(bits, odd.view(torch.int32))


def test_groups_come_in_the_order_asked_for(saved: SavedRollouts) -> None:
    back = replayed(saved, prompts(TEXTS[2], TEXTS[0]))
    assert [group.problem.prompt for group in back] == [TEXTS[2], TEXTS[0]]


def test_fewer_completions_than_saved_are_the_first(
    saved: SavedRollouts, sampled: list[RolloutGroup]
) -> None:
    (group,) = replayed(saved, prompts(TEXTS[1]), replace(SAMPLING, group_size=2))
    assert content(replace(group, completions=group.completions)) == [
        (replace(sample, group=0), ids, logprobs) for sample, ids, logprobs in content(sampled[1])[:2]
    ]


def test_what_is_not_there_is_named(saved: SavedRollouts, engine: LocalEngine, tmp_path: Path) -> None:
    for asked, sampling, message in (
        (prompts("9+9="), SAMPLING, r"step_000003\.parquet: problem 'p-9\+9=' is not among its 3.*seed"),
        (prompts(TEXTS[0]), replace(SAMPLING, version=4), r"step 4 is missing, 1 steps between 3 and 3"),
        (prompts(TEXTS[0]), replace(SAMPLING, group_size=8), r"4 completions, expected 8.*group_size=4"),
        (
            prompts(TEXTS[0]),
            replace(SAMPLING, max_tokens=2),
            r"12 tokens: set rollout\.max_completion_tokens=12",
        ),
        (
            [replace(prompts(TEXTS[0])[0], ids=torch.tensor([5, 6]))],
            SAMPLING,
            r"was sampled from another prompt.*tokenizer",
        ),
    ):
        with pytest.raises(DataError, match=message):
            replayed(SavedRollouts(saved.folder, engine.decode, temperature=1.0), asked, sampling)
    cooler = SavedRollouts(saved.folder, engine.decode, temperature=0.5)
    with pytest.raises(DataError, match=r"at temperature 1\.0, not 0\.5: set rollout\.temperature=1\.0"):
        replayed(cooler, prompts(TEXTS[0]))
    with pytest.raises(DataError, match=r"rollout\.replay=.*nowhere: expected a folder"):
        check_rollouts(tmp_path / "nowhere", 1, 2)


def test_every_step_of_a_run_is_looked_for_at_its_start(tmp_path: Path, sampled: list[RolloutGroup]) -> None:
    for step in (1, 2, 4):
        write_rollouts(tmp_path, step, sampled, temperature=1.0)
    check_rollouts(tmp_path, 1, 2)
    with pytest.raises(DataError, match="step 3 is missing, 3 steps between 1 and 4"):
        check_rollouts(tmp_path, 1, 4)


def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step_000003.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        replayed(SavedRollouts(tmp_path, str, temperature=1.0), prompts(TEXTS[0]))
    pq.write_table(pa.table({"problem_id": ["a"], "index": [0]}), tmp_path / "step_000003.parquet")
    with pytest.raises(DataError, match=r"no column prompt_ids, .*rollout\.dump"):
        replayed(SavedRollouts(tmp_path, str, temperature=1.0), prompts(TEXTS[0]))


class ByLetter:
    """All groups silent but those of a given prompt, so that dynamic sampling goes on to the end."""

    def score(self, samples: list[Sample]) -> list[Score]:
        return [
            Score.scored(float(s.index if s.problem.prompt == "34+5=" else 0), Reason.MODEL) for s in samples
        ]


def test_dynamic_sampling_is_replayed_with_the_groups_it_replaced(
    engine: LocalEngine, tmp_path: Path
) -> None:
    def collect(source: Recorder) -> list[RolloutGroup]:
        dynamic = DynamicSampling(2, Accelerator(cpu=True))
        collector = Collector(source, ByLetter(), seed=0, group_size=4, max_tokens=12, dynamic=dynamic)
        found = collector.collect(5, prompts(*TEXTS), lambda round_: prompts(f"{round_}+1="), Timings())
        return list(found.groups)

    recorder = Recorder(engine)
    first = collect(recorder)
    recorded = recorder.take()
    assert sorted(group.problem.prompt for group in recorded) == ["1+1=", "1+2=", "2+1=", "34+5=", "7+7="]
    assert recorder.take() == []
    write_rollouts(tmp_path, 5, recorded, temperature=1.0)
    again = collect(Recorder(SavedRollouts(tmp_path, engine.decode, temperature=1.0)))
    assert [group.problem.id for group in again] == [group.problem.id for group in first]
    for one, other in zip(first, again, strict=True):
        assert [c.token_ids.tolist() for c in one.completions] == [
            c.token_ids.tolist() for c in other.completions
        ]


def test_dynamic_sampling_that_wants_more_than_was_saved_is_named(
    engine: LocalEngine, tmp_path: Path, sampled: list[RolloutGroup]
) -> None:
    write_rollouts(tmp_path, 5, sampled, temperature=1.0)
    source = SavedRollouts(tmp_path, engine.decode, temperature=1.0)
    dynamic = DynamicSampling(2, Accelerator(cpu=True))
    collector = Collector(source, ByLetter(), seed=0, group_size=4, max_tokens=12, dynamic=dynamic)
    with pytest.raises(DataError, match=r"not among its 3: dynamic sampling .*dynamic_sampling_rounds=0"):
        collector.collect(5, prompts(*TEXTS), lambda _: prompts("1+1="), Timings())
