"""The watch: numbers worked by hand, the KL from the start policy, and a memory that is metrics.jsonl."""

import math

import pytest
import torch
from accelerate import Accelerator
from fakes import SPEC, TOKENIZER, RuleScorer, llama, policy, problem, prompts

from grpo.alarms import REFIT_TAKEN, AlarmSettings
from grpo.drift import Drift
from grpo.names import is_timing, unexplained
from grpo.policy import token_batch
from grpo.probes import make_probes
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine, Sampling
from grpo.summaries import CompletionRow
from grpo.types import RolloutGroup
from grpo.verdicts import passed, right_answers
from grpo.watch import Watch, measure_rows, stop_message
from rewards.composite import Component, Composite
from rewards.types import Reason, Score

SETTINGS = AlarmSettings(window=3, length_ratio=1.5, silent_share=0.8)


def row(
    value: float | None,
    right: bool | None,
    length: int = 3,
    *,
    advantage: float = 1.0,
    formatted: bool = True,
) -> CompletionRow:
    score = Score.failed(Reason.INTERNAL) if value is None else Score.scored(value, Reason.MODEL)
    moves = advantage != 0
    return CompletionRow(problem(), "", (1,) * length, False, score, advantage, right, formatted, moves)


def test_measures_by_hand() -> None:
    groups = [
        # Of the pairs right/wrong of a group, one of two is in order: 3 over 1, 3 below 5.
        [row(3.0, True), row(1.0, False), row(5.0, False, 9)],
        # No pair: the unscored and the unjudged one do not count.
        [row(2.0, True), row(None, False), row(9.0, None, formatted=False)],
    ]
    found = measure_rows(groups)
    assert found["watch/gold"] == pytest.approx(2 / 5)
    assert found["watch/format"] == pytest.approx(5 / 6)
    assert found["watch/auc_within"] == 0.5
    # reward 3 1 5 2 against right 1 0 0 1: covariance -0.125, variances 2.1875 and 0.25 (over n)
    assert found["watch/correlation"] == pytest.approx(-0.125 / math.sqrt(2.1875 * 0.25))
    assert found["watch/silent_groups"] == 0.0
    assert unexplained(found) == []


def test_what_cannot_be_measured_is_left_out() -> None:
    alike = measure_rows([[row(1.0, True), row(1.0, True)]])
    assert alike.keys() == {"watch/gold", "watch/format", "watch/silent_groups"}
    assert measure_rows([[row(1.0, None, 2), row(2.0, None)]]).keys() == {
        "watch/format",
        "watch/silent_groups",
        "watch/length_correlation",
    }
    assert measure_rows([]) == {}


def test_a_group_in_no_gradient_is_silent_unless_it_is_all_right() -> None:
    still = [[row(1.0, right, advantage=0.0) for right in kinds] for kinds in ((True, True), (True, False))]
    unknown = [row(1.0, None, advantage=0.0)]
    assert measure_rows([*still, unknown, [row(1.0, False)]])["watch/silent_groups"] == 0.5


def sampled(model_seed: int = 0) -> tuple[LocalEngine, list[RolloutGroup]]:
    engine = LocalEngine(policy(llama(model_seed)), TOKENIZER, decode_rows=64)
    groups = [g for batch in engine.generate(prompts("1+2=", "40+2="), Sampling("k", 4, 6)) for g in batch]
    return engine, groups


def test_the_drift_is_the_kl_from_the_start() -> None:
    engine, groups = sampled()
    start = FrozenReference(policy(llama(7)))
    drift = Drift(start, 100, 3, 0, Accelerator(cpu=True))
    found = drift.measure(groups)
    nats, tokens = 0.0, 0
    for group in groups:
        for completion in group.completions:
            ids = completion.token_ids
            reference = start.logprobs(token_batch([group.prompt_ids], [0], [ids], 0))[0]
            d = (reference - completion.logprobs).double()
            nats += float((d.exp() - d - 1).sum())
            tokens += len(ids)
    assert found["watch/kl"] == pytest.approx(nats / tokens, rel=1e-4)
    assert found["watch/kl_completion"] == pytest.approx(nats / 8, rel=1e-4)
    unmoved = Drift(FrozenReference(engine.policy), 100, 3, 0, Accelerator(cpu=True)).measure(groups)
    assert unmoved["watch/kl_completion"] == pytest.approx(0.0, abs=1e-6)


def test_the_drift_looks_at_some_completions_of_every_group() -> None:
    seen: list[int] = []

    class Counting(FrozenReference):
        def logprobs(self, batch: object) -> torch.Tensor:
            seen.append(len(batch.lengths))  # pyright: ignore[reportAttributeAccessIssue]
            return super().logprobs(batch)  # pyright: ignore[reportArgumentType]

    _, groups = sampled()
    drift = Drift(Counting(policy()), 2, 1, 0, Accelerator(cpu=True))
    drift.measure(groups)
    assert seen == [1, 1]


def test_gold_is_judged_only_where_it_is_not_paid() -> None:
    _, groups = sampled()
    asked: list[int] = []

    def judge(sample: object) -> float | None:
        asked.append(1)
        return 1.0

    paid = Composite({"accuracy": Component(1.0, RuleScorer(lambda s: float(s.index == 1)))})
    other = Composite({"orm": Component(1.0, RuleScorer(lambda s: 0.3))})
    scores = [paid.score([c.sample for c in group.completions]) for group in groups]
    assert right_answers(RuleScorer(judge), groups, scores) == [[False, True, False, False]] * 2
    assert asked == []
    scores = [other.score([c.sample for c in group.completions]) for group in groups]
    assert right_answers(RuleScorer(judge), groups, scores) == [[True] * 4] * 2
    assert passed(RuleScorer(lambda s: None if s.index else 0.0), groups) == [[False, None, None, None]] * 2


def observe(watch: Watch, step: int, gold: float, reward: float) -> dict[str, float]:
    """A step of ten completions; returns its whole line."""
    rows = [[row(reward, i < 10 * gold) for i in range(10)]]
    metrics = {"reward": reward, "completions/mean_length": 3.0}
    observed = watch.observe(step, [], rows, metrics, RuleScorer(lambda s: float(len(s.text))))
    assert [name for name in observed.metrics if name.startswith("watch/alarm/")] == list(
        dict.fromkeys(f"watch/alarm/{alarm.kind}" for alarm in observed.alarms)
    )
    found = {name: value for name, value in observed.metrics.items() if not is_timing(name)}
    return {"step": float(step), **metrics, **found}


GOLD = [0.2, 0.4, 0.6, 0.9, 0.9, 0.9, 0.7, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2]
ALARM = "watch/alarm/gap"


def fresh() -> Watch:
    return Watch(SETTINGS, None, make_probes([problem("6*7=", "42")], SPEC, "", count=1, seed=0))


def test_a_resumed_watch_raises_what_an_uninterrupted_one_does() -> None:
    whole = fresh()
    lines = [observe(whole, step, gold, 0.1 * step) for step, gold in enumerate(GOLD, start=1)]
    assert any(ALARM in line for line in lines)
    assert ALARM not in lines[5]
    for covered in (3, 8, 11):
        resumed = fresh()
        resumed.restore([{"step": 0.0, "eval/heldout/accuracy": 0.2}, *lines], covered)
        again = [observe(resumed, s, GOLD[s - 1], 0.1 * s) for s in range(covered + 1, len(GOLD) + 1)]
        assert again == lines[covered:]


def test_after_a_swap_the_watch_starts_anew_also_when_resumed() -> None:
    whole = fresh()
    lines = [observe(whole, step, gold, 0.1 * step) for step, gold in enumerate(GOLD[:7], start=1)]
    whole.restart()
    resumed = fresh()
    resumed.restore([*lines[:-1], lines[-1] | {REFIT_TAKEN: 1.0}], 7)
    for watch in (whole, resumed):
        later = [observe(watch, step, 0.2, 5.0 + step) for step in range(8, 20)]
        assert not any(ALARM in line for line in later)


def test_probes_are_asked_on_the_first_step_and_once_a_window() -> None:
    watch = fresh()
    lines = [observe(watch, step, 0.5, 0.5) for step in range(1, 8)]
    asked = [int(line["step"]) for line in lines if "probe/honest/mean" in line]
    assert asked == [1, 3, 6]
    assert unexplained(lines[0].keys() - {"step"}) == []


def test_the_last_words_of_a_stopped_run() -> None:
    watch = fresh()
    alarms = []
    for step, gold in enumerate(GOLD, start=1):
        rows = [[row(0.1 * step, i < 10 * gold) for i in range(10)]]
        alarms = (
            alarms or watch.observe(step, [], rows, {"reward": 0.1 * step}, RuleScorer(lambda s: 0.0)).alarms
        )
    text = stop_message(9, alarms)
    assert "\n" not in text
    assert text.startswith("step 9: stopped by watch.on_alarm=stop: the reward rose from")
