"""Metrics: numbers worked by hand, files that a resumed run leaves equal to an uninterrupted one."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from grpo.advantage import constant_groups
from grpo.metrics import MetricsWriter, completions_table, read_metrics
from grpo.names import METRICS, is_timing, unexplained
from grpo.summaries import (
    CompletionRow,
    completion_rows,
    is_correct,
    summarise_advantages,
    summarise_duplicates,
    summarise_kinds,
    summarise_lengths,
    summarise_scores,
    summarise_step,
)
from grpo.types import Completion, RolloutGroup
from rewards.types import Part, Problem, Reason, Sample, Score, Verdict

PROBLEM = Problem(id="p1", prompt="1+1?", gold=("2",))
TIMEOUT = Score.scored(0.0, Reason.TIMEOUT)
NO_GOLD = Score.abstained(Reason.NO_GOLD)
DIED = Score.failed(Reason.WORKER_DIED)


def _score(right: bool, laid_out: bool) -> Score:
    """A verifiable+format score: 1.0 for the answer and 0.5 for the layout."""
    accuracy = Score.scored(float(right), Reason.MATCH_STRING if right else Reason.MISMATCH)
    layout = Score.scored(float(laid_out), Reason.FORMAT_OK if laid_out else Reason.NO_THINK)
    return _mixed(accuracy, layout)


def _mixed(accuracy: Score, layout: Score) -> Score:
    parts = (Part("accuracy", 1.0, accuracy), Part("format", 0.5, layout))
    if accuracy.value is None or layout.value is None:
        return Score(accuracy.verdict, None, accuracy.reason, parts=parts)
    return Score(Verdict.SCORED, accuracy.value + 0.5 * layout.value, Reason.COMBINED, parts=parts)


LAID_OUT = Score.scored(1.0, Reason.FORMAT_OK)


def _row(
    score: Score, *, ids: tuple[int, ...] = (1, 2, 3), truncated: bool = False, advantage: float = 0.0
) -> CompletionRow:
    moves = advantage != 0
    return CompletionRow(PROBLEM, "<think>a</think>2", ids, truncated, score, advantage, moves=moves)


def test_rewards_and_components() -> None:
    # Rewards: 1.5, 0.5 | 0.5, 0.5. Group deviations (n - 1): sqrt(0.5) = 0.70711 and 0, their mean 0.35355.
    groups = [[_score(True, True), _score(False, True)], [_score(False, True), _score(False, True)]]
    found = summarise_scores(groups)
    assert found["reward"] == pytest.approx(0.75)
    assert found["reward_std"] == pytest.approx(0.3535534)
    assert found["reward/accuracy/mean"] == pytest.approx(0.25)
    assert found["reward/accuracy/std"] == pytest.approx(0.3535534)
    assert found["reward/format/mean"] == 1.0
    assert found["reward/format/std"] == 0.0
    assert found["frac_reward_zero_std"] == 0.5
    assert found["reason/accuracy/match_string"] == 0.25
    assert found["reason/accuracy/mismatch"] == 0.75
    assert found["verdict/total/scored"] == 1.0
    # Ordered 0.5 0.5 0.5 1.5: the 90th percentile lies at rank 2.7, so 0.5 + 0.7 * 1.0.
    assert found["reward/p10"] == 0.5
    assert found["reward/p90"] == pytest.approx(1.2)


def test_what_is_not_scored_is_no_zero() -> None:
    # [1, none, 0, 1]: mean 2/3 as of [1, 0, 1] alone, deviation sqrt(1/3).
    none = _mixed(DIED, LAID_OUT)
    group = [_score(True, False), none, _score(False, False), _score(True, False)]
    found = summarise_scores([group])
    alone = summarise_scores([[score for score in group if score is not none]])
    assert found["reward"] == pytest.approx(2 / 3)
    assert found["reward_std"] == pytest.approx(math.sqrt(1 / 3))
    for name in ("reward", "reward_std", "reward/accuracy/mean", "frac_reward_zero_std"):
        assert found[name] == alone[name], name
    assert found["verdict/total/failed"] == 0.25
    assert found["verdict/accuracy/failed"] == 0.25
    assert found["verdict/format/scored"] == 1.0
    assert found["reason/accuracy/worker_died"] == 0.25


def test_verdicts_and_reasons_are_told_apart() -> None:
    group = [
        _mixed(TIMEOUT, LAID_OUT),
        _mixed(NO_GOLD, LAID_OUT),
        _mixed(DIED, LAID_OUT),
        _score(True, True),
    ]
    found = summarise_scores([group])
    assert [found[f"verdict/accuracy/{verdict}"] for verdict in ("scored", "abstained", "failed")] == [
        0.5,
        0.25,
        0.25,
    ]
    assert found["reason/accuracy/timeout"] == 0.25
    assert found["reason/accuracy/no_gold"] == 0.25


def test_a_group_without_rewards_has_no_signal() -> None:
    unscored = _mixed(NO_GOLD, LAID_OUT)
    found = summarise_scores([[unscored, unscored], [_score(True, True), _score(True, True)]])
    assert found["frac_reward_zero_std"] == 1.0
    assert found["reward_std"] == 0.0


def test_kinds_of_groups_follow_the_verdicts() -> None:
    found = summarise_kinds([[True, False], [False, None], [None, None], [True, True]])
    assert found == {"groups/frac_mixed": 0.25, "groups/frac_all_good": 0.25, "groups/frac_all_bad": 0.25}
    assert summarise_kinds([[None], []]) == {}


def test_nothing_scored_leaves_means_out() -> None:
    found = summarise_scores([[_mixed(NO_GOLD, LAID_OUT)]])
    assert not {"reward", "reward_std", "reward/accuracy/mean", "reward/p10"} & set(found)
    assert found["verdict/total/abstained"] == 1.0
    assert summarise_scores([]) == {}


@pytest.mark.parametrize(
    "rewards",
    [
        [0.1 + 0.2, 0.3, 0.3],
        [0.7] * 8,
        [1.0, 0.0],
        [1.0, 1.0 + 1e-5],
        [1e9, 1e9 + 1],
        [1e9, 1e9 + 1e4],
        [0.4],
    ],
)
def test_a_group_without_signal_is_one_without_advantages(rewards: list[float]) -> None:
    group = [Score.scored(reward, Reason.MODEL) for reward in rewards]
    constant = constant_groups(
        torch.tensor([rewards], dtype=torch.float64), torch.ones(1, len(rewards)).bool()
    )
    assert summarise_scores([group])["frac_reward_zero_std"] == float(constant.item())


def test_correct_is_the_accuracy_component_alone() -> None:
    assert is_correct(_score(True, False)) is True
    assert is_correct(_score(False, True)) is False
    assert is_correct(_mixed(NO_GOLD, LAID_OUT)) is None
    assert is_correct(LAID_OUT) is None


def test_lengths() -> None:
    found = summarise_lengths([4, 10, 1, 7], [False, True, False, True], [True, False, None, False])
    assert found == {
        "completions/mean_length": 5.5,
        "completions/min_length": 1.0,
        "completions/max_length": 10.0,
        "completions/mean_terminated_length": 2.5,
        "completions/min_terminated_length": 1.0,
        "completions/max_terminated_length": 4.0,
        "completions/clipped_ratio": 0.5,
        "completions/length_correct": 4.0,
        "completions/length_wrong": 8.5,
    }
    assert summarise_lengths([3], [True], [None]).keys() == {
        "completions/mean_length",
        "completions/min_length",
        "completions/max_length",
        "completions/clipped_ratio",
    }
    assert summarise_lengths([], [], []) == {}


def test_duplicates_count_within_a_group_only() -> None:
    # Two repeats in the first group of four; the second group shares one with the first, which is none.
    assert summarise_duplicates([[(1,), (1,), (1,), (2,)], [(1,), (3,), (4,), (5,)]]) == {
        "groups/duplicates": 0.25
    }
    assert summarise_duplicates([]) == {}


def test_advantages() -> None:
    def rows(*advantages: float) -> list[CompletionRow]:
        return [_row(_score(True, True), advantage=advantage) for advantage in advantages]

    assert summarise_advantages([rows(1.0, -1.0), rows(0.0, 0.0)]) == {
        "advantages/mean": 0.0,
        "advantages/std": pytest.approx(math.sqrt(2 / 3)),
        "advantages/min": -1.0,
        "advantages/max": 1.0,
        "advantages/zero_frac": 0.5,
        "groups/frac_silent": 0.5,
    }
    assert summarise_advantages([rows(2.0)])["advantages/std"] == 0.0
    assert summarise_advantages([]) == {}
    odd = summarise_advantages([rows(math.inf, -math.inf, 0.0, 1.0)])  # of a step whose update is left out
    assert odd == {
        "advantages/min": -math.inf,
        "advantages/max": math.inf,
        "advantages/zero_frac": 0.25,
        "groups/frac_silent": 0.0,
    }


def test_what_is_in_the_gradient_is_no_matter_of_the_mean_advantage() -> None:
    # Tokens +1 and -1: their mean is 0, and they are learned from. A cut one is masked out of the loss.
    cancelling = replace(_row(_score(True, True)), moves=True)
    masked = replace(_row(_score(True, True), truncated=True, advantage=1.0), moves=False)
    found = summarise_advantages([[cancelling, cancelling, cancelling, masked], [masked, masked]])
    assert found["advantages/zero_frac"] == 0.5
    assert found["groups/frac_silent"] == 0.5


def test_every_name_written_is_explained() -> None:
    parts = (_score(True, True), _mixed(TIMEOUT, LAID_OUT), _mixed(NO_GOLD, LAID_OUT), _mixed(DIED, LAID_OUT))
    found = summarise_step([[_row(score) for score in parts]])
    assert len(found) > 30
    assert unexplained(found) == []
    assert unexplained(["loss", "timing_s/rollout", "eval/test/pass@4", "lost", "reward/x/median"]) == [
        "lost",
        "reward/x/median",
    ]
    assert all(text and not text.endswith(".") for text in METRICS.values())


def test_rows_of_a_rollout() -> None:
    ids = torch.tensor([5, 6])
    completion = Completion(Sample(PROBLEM, "a", truncated=True), ids, torch.zeros(2))
    group = RolloutGroup(PROBLEM, torch.tensor([1]), (completion, completion))
    right, wrong = _score(True, True), _score(False, True)
    first, second = completion_rows(
        [group], [[right, wrong]], [[0.5, -0.5]], [[False, True]], [[True, False]], [[None, True]]
    )[0]
    assert first == CompletionRow(PROBLEM, "a", (5, 6), True, right, 0.5, True, None, moves=False)
    assert second.moves
    assert (second.score, second.advantage, second.right, second.formatted) == (wrong, -0.5, False, True)
    with pytest.raises(ValueError, match="shorter"):
        completion_rows([group], [[right]], [[0.5, -0.5]], [[True, True]], [[True, True]], [[True, True]])


def test_timing_names() -> None:
    assert is_timing("timing_s/step")
    assert is_timing("perf/tokens_per_s")
    assert not is_timing("loss")


def test_one_json_line_a_step_also_for_what_json_cannot_say(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(0, {"loss": 0.5})
    writer.write(1, {"loss": math.nan, "kl": math.inf, "reward": -math.inf})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()  # read before close: every line is flushed

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not json")

    assert [json.loads(line, parse_constant=refuse) for line in lines] == [
        {"step": 0, "loss": 0.5},
        {"step": 1, "loss": "NaN", "kl": "Infinity", "reward": "-Infinity"},
    ]
    writer.close()
    _, row = read_metrics(tmp_path / "metrics.jsonl")
    assert math.isnan(row["loss"])
    assert (row["kl"], row["reward"]) == (math.inf, -math.inf)


def test_a_step_is_written_once(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"loss": 0.0})
    with pytest.raises(ValueError, match="one line a step"):
        writer.write(1, {"loss": 0.0})
    writer.close()


def test_a_resumed_file_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    for directory in (straight, resumed):
        directory.mkdir()
        writer = MetricsWriter(directory)
        for step in range(5):
            writer.write(step, {"loss": step / 8})
            writer.write_completions(step, [_row(_score(True, True))])
        writer.close()
    # Killed in the middle of line 5 and of its samples; the checkpoint covers step 2.
    with (resumed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    (resumed / "completions" / ".writing-step_000005.parquet").write_bytes(b"half")
    writer = MetricsWriter(resumed, covered=2)
    assert sorted(path.name for path in (resumed / "completions").iterdir()) == [
        f"step_00000{step}.parquet" for step in range(3)
    ]
    for step in range(3, 5):
        writer.write(step, {"loss": step / 8})
        writer.write_completions(step, [_row(_score(True, True))])
    writer.close()
    for name in ("metrics.jsonl", *(f"completions/step_00000{step}.parquet" for step in range(5))):
        assert (straight / name).read_bytes() == (resumed / name).read_bytes(), name


def test_a_run_without_checkpoint_starts_its_file_over(tmp_path: Path) -> None:
    for _ in range(2):
        writer = MetricsWriter(tmp_path)
        writer.write(0, {"loss": 1.0})
        writer.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 0.0, "loss": 1.0}]
    assert read_metrics(tmp_path / "missing.jsonl") == []


def test_lines_are_forwarded_to_trackers(tmp_path: Path) -> None:
    seen: list[tuple[dict[str, float], int]] = []
    writer = MetricsWriter(tmp_path, forward=lambda values, step: seen.append((values, step)))
    writer.write(3, {"loss": 1.0})
    writer.close()
    assert seen == [({"loss": 1.0}, 3)]


def test_completions_keep_everything(tmp_path: Path) -> None:
    right = _score(True, False)
    writer = MetricsWriter(tmp_path)
    writer.write_completions(
        10,
        [
            _row(right, ids=(7, 8), advantage=0.5),
            _row(_mixed(DIED, LAID_OUT), ids=(), truncated=True),
        ],
    )
    writer.close()
    first, second = pq.read_table(tmp_path / "completions" / "step_000010.parquet").to_pylist()
    assert first == {
        "step": 10,
        "problem_id": "p1",
        "prompt": "1+1?",
        "text": "<think>a</think>2",
        "gold": ["2"],
        "reward": 1.0,
        "verdict": "scored",
        "reason": "combined",
        "advantage": 0.5,
        "right": None,
        "formatted": None,
        "length": 2,
        "truncated": False,
        "token_ids": [7, 8],
        "accuracy/value": 1.0,
        "accuracy/verdict": "scored",
        "accuracy/reason": "match_string",
        "accuracy/notes": "{}",
        "format/value": 0.0,
        "format/verdict": "scored",
        "format/reason": "no_think",
        "format/notes": "{}",
    }
    assert second["reward"] is None
    assert second["accuracy/value"] is None
    assert second["accuracy/reason"] == "worker_died"
    assert second["truncated"] is True
    assert second["token_ids"] == []


def test_hostile_text_is_stored() -> None:
    problem = Problem(id="p\udc80", prompt="\x00\ud800", gold=("\udfff",))
    table = completions_table(1, [CompletionRow(problem, "a\x00\ud83d", (1,), False, LAID_OUT, 0.0)])
    assert table.to_pylist()[0]["text"] == "a\x00\\ud83d"
    assert table.to_pylist()[0]["gold"] == ["\\udfff"]
    assert completions_table(1, []).num_rows == 0
