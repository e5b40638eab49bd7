"""One step: who is paid for what, and what happens when scoring breaks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from fakes import TOKENIZER, RuleScorer, llama, policy, prompts

from grpo.advantage import AdvantageSettings, outcome_advantages
from grpo.advantager import GroupAdvantager, GroupSettings, part_rewards, total_rewards
from grpo.assign import CreditPlan, assign, process_metrics, require_steps
from grpo.collect import Collector, DynamicSampling
from grpo.credit import CreditSettings
from grpo.loop import GrpoLoop, StepResult
from grpo.loss import LossSettings
from grpo.penalty import KlPenalty
from grpo.policy import token_batch
from grpo.prompt import EncodedPrompt
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine
from grpo.timings import Timings
from grpo.update import Trainable, TrainRow, Updater, UpdateSettings
from rewards.composite import Component, Composite
from rewards.errors import ConfigError, EngineError
from rewards.scorer import Scorer
from rewards.types import Part, Reason, Sample, Score, StepScore, Verdict

TEXTS = ("1+2=", "34+5=", "7+7=")
OUTCOME = GroupSettings(AdvantageSettings(), CreditPlan(True, None), {})


def loop(
    scorer: Scorer,
    *,
    micro: int = 100,
    rows: int = 64,
    rounds: int = 0,
    failed: float = 0.1,
    settings: GroupSettings = OUTCOME,
    penalty: KlPenalty | None = None,
) -> GrpoLoop:
    model = policy().train()
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
    return GrpoLoop(
        Collector(
            engine,
            scorer,
            seed=0,
            group_size=4,
            max_tokens=8,
            dynamic=DynamicSampling(rounds, accelerator) if rounds else None,
        ),
        GroupAdvantager(settings, decode=engine.decode, accelerator=accelerator, penalty=penalty),
        updater,
        max_failed_share=failed,
    )


def step(runs: GrpoLoop, number: int = 1, texts: tuple[str, ...] = TEXTS) -> StepResult:
    return runs.step(number, prompts(*texts), lambda _: [])


def assigned(result: StepResult, *, mask_truncated: bool = False) -> tuple[TrainRow, ...]:
    plan = CreditPlan(True, None)
    return assign(
        result.groups,
        result.scores,
        result.advantages,
        plan,
        decode=TOKENIZER.decode,
        mask_truncated=mask_truncated,
    ).rows


@pytest.mark.parametrize("micro", [1, 3, 100])
@pytest.mark.parametrize("decode_rows", [4, 8, 64])
def test_trap_05_reward_advantage_and_row_belong_together(micro: int, decode_rows: int) -> None:
    # the reward names prompt and sample: 10 * length of the question + index of the sample
    scorer = RuleScorer(lambda s: 10.0 * len(s.problem.prompt) + s.index)
    result = step(loop(scorer, micro=micro, rows=decode_rows))
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
    values = loop(scorer).step(1, twice, lambda _: []).advantages.values
    assert values[0].tolist() == pytest.approx(values[1].tolist())


def test_trap_03_a_failed_score_is_out_of_its_group() -> None:
    scorer = RuleScorer(lambda s: None if s.index == 1 else float(s.index == 0))
    values = step(loop(scorer, failed=0.5)).advantages.values
    # rewards [1, -, 0, 0]: mean 1/3, unbiased std 0.5773503
    high, low = (2 / 3) / (0.5773503 + 1e-4), (-1 / 3) / (0.5773503 + 1e-4)
    for row in values.tolist():
        assert row == pytest.approx([high, 0.0, low, low], abs=1e-5)


def test_too_many_failed_scores_stop_the_run() -> None:
    with pytest.raises(EngineError, match=r"max_failed_share=0\.1"):
        step(loop(RuleScorer(lambda s: None if s.index == 0 else 1.0)))


def test_scores_that_fail_on_another_rank_stop_this_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_another(accelerator: Accelerator, values: Sequence[float]) -> list[float]:
        return [values[0] + 6, values[1] + 12]  # of which the other rank has 12 scores, 6 failed

    monkeypatch.setattr("grpo.loop.sum_over_ranks", with_another)
    with pytest.raises(EngineError, match=r"6 of \d+ scores failed"):
        step(loop(RuleScorer(lambda s: 1.0), failed=0.1))


def test_equal_rewards_leave_the_weights_alone() -> None:
    result = step(loop(RuleScorer(lambda _: 0.7)))
    assert (result.advantages.values == 0).all()
    assert result.metrics["update/skipped"] == 1


def test_samples_carry_their_version_group_and_index() -> None:
    seen: list[Sample] = []
    scorer = RuleScorer(lambda s: seen.append(s) or 0.0)
    step(loop(scorer), 5)
    assert [(s.index, s.policy_version) for s in seen] == [(i, 5) for _ in TEXTS for i in range(4)]


def test_parts_are_taken_apart_unweighted_and_a_closed_gate_pays_nothing() -> None:
    def score(accuracy: float, weight: float) -> Score:
        parts = (
            Part("accuracy", 1.0, Score.scored(accuracy, Reason.MISMATCH)),
            Part("format", weight, Score.scored(1.0, Reason.FORMAT_OK)),
        )
        return Score(Verdict.SCORED, accuracy + weight, Reason.COMBINED, parts=parts)

    scores = [[score(1.0, 0.2), score(0.0, 0.0)]]
    # unweighted, and 0 where a gate was closed (weight 0)
    assert part_rewards(scores, ["accuracy", "format"]).tolist() == [[[1.0, 1.0], [0.0, 0.0]]]
    assert total_rewards(scores).tolist() == [[1.2, 0.0]]


def test_trap_10_rows_own_their_advantages() -> None:
    result = step(loop(RuleScorer(lambda s: float(s.index))))
    rows = assigned(result)
    before = rows[1].advantages.clone()
    rows[0].advantages[0] = 99.0
    assert torch.equal(rows[1].advantages, before)
    assert (result.advantages.values != 99.0).all()


def test_truncated_rows_can_be_left_out_of_the_loss() -> None:
    result = step(loop(RuleScorer(lambda s: float(s.index))))
    rows = assigned(result, mask_truncated=True)
    cut = [c.sample.truncated for group in result.groups for c in group.completions]
    assert any(cut)
    assert [row.trained for row in rows] == [not c for c in cut]


def test_trap_07_dynamic_sampling_judges_the_unshaped_reward_and_is_bounded() -> None:
    # accuracy is equal in the groups of "1+2=" and "7+7=", though their totals differ by length
    def rule(sample: Sample) -> float:
        return float(sample.index % 2) if sample.problem.prompt.startswith("34") else 1.0

    class Shaped:
        def score(self, samples: Sequence[Sample]) -> list[Score]:
            return [
                Score(
                    Verdict.SCORED,
                    rule(s) - 0.01 * len(s.text),
                    Reason.COMBINED,
                    parts=(Part("accuracy", 1.0, Score.scored(rule(s), Reason.MISMATCH)),),
                )
                for s in samples
            ]

    asked: list[int] = []

    def reserve(round_: int) -> list[EncodedPrompt]:
        asked.append(round_)
        return prompts(f"34{round_}=", "1+2=")

    result = loop(Shaped(), rounds=2).step(1, prompts(*TEXTS), reserve)
    assert asked == [1, 2]
    # the speaking groups first, in the order they were found; never the same problem twice
    assert [g.problem.prompt for g in result.groups] == ["34+5=", "341=", "342="]
    assert result.metrics["rollout/groups_sampled"] == 5  # three, then one new one in each round
    asked.clear()
    bounded = loop(Shaped(), rounds=1).step(1, prompts(*TEXTS), reserve)
    assert asked == [1]
    assert [g.problem.prompt for g in bounded.groups] == ["34+5=", "341=", "1+2="]


def test_process_credit_reaches_the_tokens_of_its_steps() -> None:
    class Halves:
        """Two steps a completion: the first half of the text right, the second wrong for odd samples."""

        def score(self, samples: Sequence[Sample]) -> list[Score]:
            return [self._one(s) for s in samples]

        def _one(self, s: Sample) -> Score:
            middle = len(s.text) // 2
            steps = (StepScore(0, middle, 1.0), StepScore(middle, len(s.text), float(s.index % 2 == 0)))
            return Score(Verdict.SCORED, 0.5, Reason.STEPS, steps=steps)

    plan = CreditPlan(False, CreditSettings())
    result = step(loop(Halves(), settings=replace(OUTCOME, credit=plan)))
    rows = assign(
        result.groups, result.scores, result.advantages, plan, decode=TOKENIZER.decode, mask_truncated=False
    ).rows
    # the completions are paid alike, and what is told of them is what their tokens are trained on
    means = [row.advantages.mean().item() for row in rows]
    assert result.advantages.values.reshape(-1).tolist() == pytest.approx(means, abs=1e-6)
    assert not result.advantages.zero_signal.any()
    assert result.moving.all()
    # pool of a group: six ones and two zeros of eight; mean .75, unbiased std .4629100
    high, low = 0.25 / (0.46291 + 1e-4), -0.75 / (0.46291 + 1e-4)
    for i, row in enumerate(rows[:4]):
        assert row.advantages[-1].item() == pytest.approx(high if i % 2 == 0 else low, abs=1e-4)
        assert row.advantages[0].item() == pytest.approx(2 * high if i % 2 == 0 else high + low, abs=1e-4)
    assert result.metrics["prm/steps_mean"] == 2.0


def test_process_credit_without_steps_is_refused() -> None:
    stepless = replace(OUTCOME, credit=CreditPlan(False, CreditSettings()))
    with pytest.raises(ConfigError, match="arithmetic_steps"):
        step(loop(RuleScorer(lambda s: float(s.index)), settings=stepless))


def test_the_reference_and_the_scorer_have_times_of_their_own() -> None:
    rule, reference = RuleScorer(lambda s: float(s.index)), FrozenReference(policy(llama(seed=5)))
    bare = step(loop(rule)).timings.seconds
    assert bare.keys() == {"step", "gen", "scorer", "reward", "adv", "update_actor"}
    charged = step(loop(rule, penalty=KlPenalty(reference, "k1", 0.05, 3, 0, Accelerator(cpu=True))))
    in_loss = loop(rule)
    in_loss.updater.reference = reference
    for seconds in (charged.timings.seconds, step(in_loss).timings.seconds):
        assert seconds.keys() == bare.keys() | {"ref"}
        apart = sum(seconds[name] for name in ("gen", "reward", "ref", "adv", "update_actor"))
        assert apart <= seconds["step"]
        assert min(seconds.values()) > 0


def test_a_phase_inside_another_can_be_taken_out_of_it() -> None:
    timings = Timings()
    with timings.phase("update"), timings.phase("ref", out_of="update"):
        time.sleep(0.02)
    assert timings.seconds["update"] < 0.02 <= timings.seconds["ref"]


def test_steps_of_two_parts_are_refused_and_no_steps_for_no_text_are_not() -> None:
    class Stepped:
        def score(self, samples: Sequence[Sample]) -> list[Score]:
            return [
                Score(Verdict.SCORED, 1.0, Reason.STEPS, steps=(StepScore(0, len(s.text), 1.0),))
                for s in samples
            ]

    plan = replace(OUTCOME, credit=CreditPlan(False, CreditSettings()))
    both = Composite({"a": Component(1.0, Stepped()), "b": Component(1.0, Stepped())})
    with pytest.raises(ConfigError, match="one component that judges steps"):
        step(loop(both, settings=plan))
    # a text that is not there has no steps, whoever judges it
    facts = torch.tensor([[0.0, 0.0, -1.0, 1.0, 0.0, 0.0]] * 2, dtype=torch.float64)
    require_steps(facts)
    assert process_metrics(facts) == {"prm/steps_mean": 0.0, "prm/unscored_token_frac": 1.0}


def test_the_facts_of_two_ranks_are_those_of_one() -> None:
    # steps, sum of values, first bad, tokens, advantage, stepless: of two completions on each of two ranks
    first = [[2.0, 2.0, -1.0, 4.0, 1.0, 0.0], [4.0, 1.0, 0.0, 8.0, -1.0, 0.0]]
    second = [[0.0, 0.0, -1.0, 4.0, 0.0, 1.0], [2.0, 1.0, 1.0, 4.0, 0.5, 0.0]]
    facts = torch.tensor(first + second, dtype=torch.float64)
    require_steps(facts)  # the second rank alone could be without any
    found = process_metrics(facts)
    assert found["prm/steps_mean"] == 8 / 4
    assert found["prm/step_reward_mean"] == 4 / 8
    assert found["prm/first_bad_step"] == 1 / 2
    assert found["prm/unscored_token_frac"] == 4 / 20
    # lengths 4 8 4 4 against 1 -1 0 .5: covariance -4.5, squares 12 and 2.1875
    assert found["prm/advantage_length_corr"] == pytest.approx(-4.5 / math.sqrt(12 * 2.1875))


def test_a_kl_that_no_token_would_be_charged_is_refused() -> None:
    penalty = KlPenalty(FrozenReference(policy()), "k1", 0.05, 3, 0, Accelerator(cpu=True))
    stepped = replace(OUTCOME, credit=CreditPlan(False, CreditSettings()))
    with pytest.raises(ConfigError, match="no completion whose KL could be charged"):
        loop(RuleScorer(lambda s: 1.0), settings=stepped, penalty=penalty)


def test_masked_rows_are_in_no_gradient() -> None:
    result = step(loop(RuleScorer(lambda s: float(s.index)), settings=replace(OUTCOME, mask_truncated=True)))
    cut = [[c.sample.truncated for c in group.completions] for group in result.groups]
    assert any(cut[0])
    assert result.moving.tolist() == [[not c for c in row] for row in cut]


def test_kl_in_the_reward_is_charged_before_the_advantage() -> None:
    reference = FrozenReference(policy(llama(seed=5)))
    penalty = KlPenalty(reference, "k1", 0.05, 3, 0, Accelerator(cpu=True))
    result = step(loop(RuleScorer(lambda s: float(s.index)), penalty=penalty))
    for p, group in enumerate(result.groups):
        charged = []
        for g, completion in enumerate(group.completions):
            batch = token_batch([group.prompt_ids], [0], [completion.token_ids], 0)
            kl = (completion.logprobs - reference.logprobs(batch)[0]).sum()
            charged.append(g - 0.05 * float(kl))
        expected = outcome_advantages(torch.tensor([charged], dtype=torch.float64), AdvantageSettings())
        assert torch.allclose(result.advantages.values[p], expected.values[0], atol=1e-3)
    assert result.metrics["reward/kl_charge"] == pytest.approx(0.05 * result.metrics["reward/kl"])
