"""One step: who is paid for what, and what happens when scoring breaks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from fakes import TOKENIZER, RuleScorer, policy, prompts

from grpo.advantage import AdvantageSettings
from grpo.loop import GrpoLoop, LoopSettings, reward_tensor, to_rows
from grpo.loss import LossSettings
from grpo.policy import Policy
from grpo.rollout.local import LocalEngine
from grpo.update import Trainable, Updater, UpdateSettings
from rewards.errors import EngineError
from rewards.types import Part, Reason, Sample, Score, Verdict

TEXTS = ("1+2=", "34+5=", "7+7=")


def loop(scorer: RuleScorer, *, micro: int = 100, rows: int = 64, model: Policy | None = None) -> GrpoLoop:
    model = (model or policy()).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    accelerator = Accelerator(cpu=True)
    updater = Updater(
        Trainable(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        UpdateSettings("sequence_mean", 8, micro, 1, math.inf),
        LossSettings(),
        accelerator=accelerator,
        reference=None,
        pad_id=0,
    )
    engine = LocalEngine(model, TOKENIZER, decode_rows=rows)
    settings = LoopSettings(seed=0, group_size=4, max_completion_tokens=8)
    return GrpoLoop(engine, scorer, updater, AdvantageSettings(), settings, accelerator=accelerator)


@pytest.mark.parametrize("micro", [1, 3, 100])
@pytest.mark.parametrize("decode_rows", [4, 8, 64])
def test_trap_05_reward_advantage_and_row_belong_together(micro: int, decode_rows: int) -> None:
    # the reward names prompt and sample: 10 * length of the question + index of the sample
    scorer = RuleScorer(lambda s: 10.0 * len(s.problem.prompt) + s.index)
    result = loop(scorer, micro=micro, rows=decode_rows).step(1, prompts(*TEXTS))
    for p, (group, scores) in enumerate(zip(result.groups, result.scores, strict=True)):
        assert group.problem.prompt == TEXTS[p]
        assert [s.value for s in scores] == [10.0 * len(TEXTS[p]) + i for i in range(4)]
        # (i - 1.5) / (std of 0..3 + 1e-4), std = 1.2909944
        expected = [(i - 1.5) / (1.2909944 + 1e-4) for i in range(4)]
        assert result.advantages.values[p].tolist() == pytest.approx(expected, abs=1e-5)


def test_trap_04_the_same_question_twice_is_two_groups() -> None:
    twice = prompts("1+2=", "1+2=")
    twice[1] = replace(twice[1], problem=replace(twice[1].problem, id="another"))
    scorer = RuleScorer(lambda s: float(s.problem.id == "another") + s.index)
    values = loop(scorer).step(1, twice).advantages.values
    assert values[0].tolist() == pytest.approx(values[1].tolist())


def test_trap_03_a_failed_score_is_out_of_its_group() -> None:
    scorer = RuleScorer(lambda s: None if s.index == 1 else float(s.index == 0))
    engine_loop = loop(scorer)
    engine_loop.settings = replace(engine_loop.settings, max_failed_share=0.5)
    values = engine_loop.step(1, prompts(*TEXTS)).advantages.values
    # rewards [1, -, 0, 0]: mean 1/3, unbiased std 0.5773503
    high, low = (2 / 3) / (0.5773503 + 1e-4), (-1 / 3) / (0.5773503 + 1e-4)
    for row in values.tolist():
        assert row == pytest.approx([high, 0.0, low, low], abs=1e-5)


def test_too_many_failed_scores_stop_the_run() -> None:
    with pytest.raises(EngineError, match=r"max_failed_share=0\.1"):
        loop(RuleScorer(lambda s: None if s.index == 0 else 1.0)).step(1, prompts(*TEXTS))


def test_equal_rewards_leave_the_weights_alone() -> None:
    result = loop(RuleScorer(lambda _: 0.7)).step(1, prompts(*TEXTS))
    assert (result.advantages.values == 0).all()
    assert result.metrics["update/skipped"] == 1


def test_samples_carry_their_version_group_and_index() -> None:
    seen: list[Sample] = []
    scorer = RuleScorer(lambda s: seen.append(s) or 0.0)
    loop(scorer).step(5, prompts(*TEXTS))
    assert [(s.index, s.policy_version) for s in seen] == [(i, 5) for _ in TEXTS for i in range(4)]


def test_parts_are_paid_apart_at_the_weight_they_were_paid_at() -> None:
    def score(accuracy: float, weight: float) -> Score:
        parts = (
            Part("accuracy", 1.0, Score.scored(accuracy, Reason.MISMATCH)),
            Part("format", weight, Score.scored(1.0, Reason.FORMAT_OK)),
        )
        return Score(Verdict.SCORED, accuracy + weight, Reason.COMBINED, parts=parts)

    scores = [[score(1.0, 0.2), score(0.0, 0.0)]]
    apart, weights = reward_tensor(scores, apart=True)
    assert apart.tolist() == [[[1.0, 0.2], [0.0, 0.0]]]
    assert weights == (1.0, 1.0)
    assert reward_tensor(scores, apart=False)[0].tolist() == [[1.2, 0.0]]


def test_trap_10_rows_own_their_advantages() -> None:
    result = loop(RuleScorer(lambda s: float(s.index))).step(1, prompts(*TEXTS))
    rows = to_rows(result.groups, result.advantages, mask_truncated=False)
    before = rows[1].advantages.clone()
    rows[0].advantages[0] = 99.0
    assert torch.equal(rows[1].advantages, before)
    assert (result.advantages.values != 99.0).all()


def test_truncated_rows_can_be_left_out_of_the_loss() -> None:
    result = loop(RuleScorer(lambda s: float(s.index))).step(1, prompts(*TEXTS))
    rows = to_rows(result.groups, result.advantages, mask_truncated=True)
    cut = [c.sample.truncated for group in result.groups for c in group.completions]
    assert any(cut)
    assert [row.trained for row in rows] == [not c for c in cut]
