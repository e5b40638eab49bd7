"""PPO: the value model, what it learns, the advantages made of it, and whole runs through the entry."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from fakes import TOKENIZER, RuleScorer, gpt2, llama, policy, prompts
from torch import Tensor, nn
from training_runs import Trainer, assert_same_run, metrics_of, run_folders, wait_for

from grpo.adapters import add_adapter
from grpo.advantager import Credited, total_rewards
from grpo.collect import Collected, Collector
from grpo.config import TRAIN
from grpo.critic import Critic, CriticSettings, Episodes, episodes_of
from grpo.learners import make_learners
from grpo.loop import GrpoLoop
from grpo.loss import LossSettings
from grpo.names import unexplained
from grpo.penalty import KlPenalty
from grpo.policy import Policy, token_batch
from grpo.ppo import GaeSettings, ValueAdvantager
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine
from grpo.timings import Timings
from grpo.tiny import TinyShape, tiny_model
from grpo.update import Trainable, Updater, UpdateSettings
from grpo.value_head import ValueModel
from grpo.watch import make_watch

TEXTS = ("1+2=", "34+5=", "7+7=")
MODELS = {"llama": llama, "gpt2": gpt2}


def lively(model: ValueModel, seed: int = 0) -> ValueModel:
    """A head that is not zero, so that values differ from token to token."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model.head.weight.normal_(std=0.3)
        model.head.bias.fill_(0.1)
    return model


def critic(
    model: ValueModel,
    *,
    lr: float = 0.0,
    micro: int = 100,
    updates: int = 1,
    clip: float | None = None,
    tokens: int | None = None,
) -> Critic:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return Critic(
        model,
        Trainable(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        CriticSettings("token_mean", 16, micro, updates, float("inf"), clip, tokens),
        accelerator=Accelerator(cpu=True),
        pad_id=0,
    )


def rows(seed: int = 0) -> Episodes:
    """Three prompts of lengths 3, 9 and 5; seven completions of lengths 1 to 8, in no order."""
    g = torch.Generator().manual_seed(seed)

    def ids(n: int) -> Tensor:
        return torch.randint(3, len(TOKENIZER), (n,), generator=g)

    return Episodes(
        (ids(3), ids(9), ids(5)), (1, 0, 2, 0, 1, 2, 1), tuple(ids(n) for n in (4, 8, 1, 3, 6, 2, 5))
    )


def targets(episodes: Episodes) -> Tensor:
    """Returns to fit, of both signs."""
    return torch.randn(episodes.mask().shape, generator=torch.Generator().manual_seed(1)) * episodes.mask()


def collected(model: Policy, rule: RuleScorer) -> Collected:
    """Four completions of each of three prompts, paid by the rule."""
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    collector = Collector(engine, rule, seed=0, group_size=4, max_tokens=8)
    return collector.collect(1, prompts(*TEXTS), lambda _: [], Timings())


def credited(
    step: Collected, judge: Critic, settings: GaeSettings, penalty: KlPenalty | None = None
) -> Credited:
    advantager = ValueAdvantager(judge, settings, accelerator=Accelerator(cpu=True), penalty=penalty)
    return advantager.credit(step, Timings())


# --- the value model


@pytest.mark.parametrize("name", MODELS)
def test_trap_20_values_over_shared_prompts_equal_the_plain_loop_at_every_token(name: str) -> None:
    model = MODELS[name]().eval()
    values = lively(ValueModel(Policy(model, temperature=0.7))).eval()
    episodes = rows()
    found = values(episodes.batch(range(7), 0))
    for i, ids in enumerate(episodes.token_ids):
        prompt = episodes.prompts[episodes.prompt_of_row[i]]
        states = model.get_decoder()(input_ids=torch.cat([prompt, ids])[None], use_cache=False)[0][0]
        plain = values.head(states[len(prompt) - 1 : -1]).squeeze(-1)  # before each token is written
        assert torch.allclose(found[i, : len(ids)], plain, atol=1e-5)
        assert (found[i, len(ids) :] == 0).all()
    assert found.std() > 0.1


def test_the_value_model_is_a_copy_without_the_vocabulary_that_values_everything_at_0() -> None:
    owner = policy(gpt2())
    owner.model.set_output_embeddings(torch.nn.Linear(32, len(TOKENIZER), bias=False))  # not tied
    values = ValueModel(owner)
    assert (values(rows().batch(range(7), 0)) == 0).all()
    size = sum(p.numel() for p in values.parameters())
    assert size == sum(p.numel() for p in owner.model.get_decoder().parameters()) + 32 + 1
    own = {p.data_ptr() for p in values.parameters()}
    assert not own & {p.data_ptr() for p in owner.parameters()}
    assert isinstance(owner.model.get_output_embeddings(), torch.nn.Linear)


def test_values_and_their_gradients_survive_recomputed_activations() -> None:
    found = []
    for recompute in (False, True):
        owner = policy().eval()
        if recompute:
            owner.model.activation_checkpointing_enable({"use_reentrant": False})
        values = lively(ValueModel(owner))
        assert values.body.model.training
        out = values(rows().batch(range(7), 0))
        out.square().sum().backward()
        found.append((out, [p.grad for p in values.parameters()]))
    (plain, plain_grads), (again, again_grads) = found
    assert torch.allclose(plain, again, atol=1e-6)
    for one, other in zip(plain_grads, again_grads, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one, other, atol=1e-4 * float(one.abs().max()) + 1e-6)


def test_with_adapters_only_adapters_and_the_head_are_fitted() -> None:
    pytest.importorskip("peft")
    model = llama()
    add_adapter(model, 2, 0)
    values = ValueModel(policy(model))
    fitted = {name for name, p in values.named_parameters() if p.requires_grad}
    assert {name for name in fitted if "lora" not in name} == {"head.weight", "head.bias"}
    before = copy.deepcopy(values.state_dict())
    judge = critic(values, lr=0.1, updates=3)
    judge.fit(rows(), judge.values(rows()), targets(rows()), torch.ones(7, dtype=torch.bool))
    moved = {name for name, x in values.state_dict().items() if not torch.equal(x, before[name])}
    assert moved <= fitted
    assert any("lora" in name for name in moved)
    assert "head.weight" in moved


def test_values_are_the_same_in_micro_batches_of_any_size() -> None:
    episodes = rows()
    values = lively(ValueModel(policy()))
    whole = critic(values).values(episodes)
    assert not whole.requires_grad
    for micro in (1, 2, 3):
        assert torch.allclose(critic(values, micro=micro).values(episodes), whole, atol=1e-5)


# --- what it learns


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_value_loss_falls_on_a_fixed_batch(clip: float | None) -> None:
    episodes = rows()
    judge = critic(ValueModel(policy()), lr=0.02, clip=clip)
    learned = torch.ones(7, dtype=torch.bool)
    before = judge.values(episodes)
    losses = [judge.fit(episodes, before, targets(episodes), learned)["critic/loss"] for _ in range(30)]
    # with all values at 0 the first loss is half the mean square of the returns
    half_square = float(targets(episodes).square().sum() / episodes.mask().sum() / 2)
    assert losses[0] == pytest.approx(half_square, rel=1e-4)
    assert losses[-1] < 0.8 * losses[0]


def test_the_bound_on_values_changes_the_second_update() -> None:
    episodes = rows()
    learned = torch.ones(7, dtype=torch.bool)
    ends = []
    for clip in (None, 1e-3):
        judge = critic(lively(ValueModel(policy())), lr=0.05, updates=3, clip=clip)
        judge.fit(episodes, judge.values(episodes), targets(episodes), learned)
        ends.append(judge.values(episodes))
    assert (ends[0] - ends[1]).abs().max() > 1e-3


def gradient(
    micro: int, learned: Tensor, episodes: Episodes, returns: Tensor | None = None
) -> dict[str, Tensor]:
    """The gradient of one fit: SGD of rate 1, read off the change of the weights."""
    model = lively(ValueModel(policy()))
    returns = targets(episodes) if returns is None else returns
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    judge = critic(model, lr=1.0, micro=micro)
    judge.fit(episodes, judge.values(episodes), returns, learned)
    return {name: before[name] - p.detach() for name, p in model.named_parameters()}


def observed(model: nn.Module) -> list[int]:
    """The completion tokens of every forward pass of the model from now on."""
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(int(inputs[0].lengths.sum())))
    return seen


def test_a_bound_on_tokens_holds_for_the_value_model_and_changes_no_gradient() -> None:
    learned, found = torch.ones(7, dtype=torch.bool), []
    for tokens in (None, 9):  # the longest row has 8
        judge = critic(lively(ValueModel(policy())), lr=1.0, tokens=tokens)
        seen = observed(judge.model)
        values = judge.values(rows())
        judge.fit(rows(), values, targets(rows()), learned)
        found.append((values, judge.model.state_dict(), seen))
    (values, weights, whole), (values_9, weights_9, split) = found
    assert whole == [29, 29]  # all rows at once, to value and to fit
    assert max(split) <= 9
    assert sum(split) == 2 * 29
    assert torch.allclose(values, values_9, atol=1e-5)
    for name, x in weights.items():
        assert torch.allclose(x, weights_9[name], atol=1e-5), name


def test_a_bound_on_tokens_holds_for_the_kl_in_the_reward_and_changes_no_charge() -> None:
    reference, accelerator = FrozenReference(policy(llama(seed=5))), Accelerator(cpu=True)
    groups = collected(policy(), RuleScorer(lambda s: float(s.index))).groups
    seen = observed(reference.policy)
    whole, _ = KlPenalty(reference, "k1", 0.05, 100, 0, accelerator).charge(groups)
    (everything,) = seen
    seen.clear()
    split, _ = KlPenalty(reference, "k1", 0.05, 100, 0, accelerator, tokens=17).charge(groups)
    assert max(seen) <= 17
    assert sum(seen) == everything
    assert len(seen) > 1
    assert torch.allclose(whole, split, atol=1e-6)


def test_the_bound_on_tokens_arrives_from_the_settings() -> None:
    config = TRAIN.load(["algorithm=ppo_penalty", "optim.micro_batch_tokens=12", "device=cpu"])
    learners = make_learners(config, policy(), Accelerator(cpu=True), decode=str, pad=0)
    assert learners.critic is not None
    assert learners.penalty is not None
    assert learners.critic.settings.micro_batch_tokens == 12
    assert learners.penalty.tokens == 12
    assert learners.updater.settings.micro_batch_tokens == 12
    watch = make_watch(config, learners.reference, Accelerator(cpu=True), probes=(), pad=0)
    assert watch.drift is not None
    assert watch.drift.tokens_at_once == 12


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_trap_23_micro_batches_change_no_gradient_of_the_value_model(micro: int) -> None:
    learned = torch.tensor([True, True, False, True, True, True, True])
    whole, split = (gradient(size, learned, rows()) for size in (100, micro))
    largest = max(float(x.abs().max()) for x in whole.values())
    assert largest > 1e-3
    for name, x in whole.items():
        assert (x - split[name]).abs().max() <= 1e-6 * max(1.0, largest), name


def test_rows_that_teach_nothing_are_as_if_they_were_not_there() -> None:
    episodes = rows()
    learned = torch.tensor([True] * 5 + [False] * 2)
    fewer = Episodes(episodes.prompts, episodes.prompt_of_row[:5], episodes.token_ids[:5])
    left_out = gradient(100, learned, episodes)
    absent = gradient(100, learned[:5], fewer, targets(episodes)[:5])
    largest = max(float(x.abs().max()) for x in left_out.values())
    for name, x in left_out.items():
        assert (x - absent[name]).abs().max() <= 1e-6 * max(1.0, largest), name


def test_nothing_to_learn_from_moves_nothing() -> None:
    judge = critic(lively(ValueModel(policy())), lr=1.0)
    before = copy.deepcopy(judge.model.state_dict())
    metrics = judge.fit(rows(), judge.values(rows()), targets(rows()), torch.zeros(7, dtype=torch.bool))
    assert metrics == {"critic/skipped": 1.0}
    assert all(torch.equal(before[name], x) for name, x in judge.model.state_dict().items())


def test_a_gradient_that_is_not_finite_is_left_out() -> None:
    judge = critic(lively(ValueModel(policy())), lr=1.0, updates=2)
    before = copy.deepcopy(judge.model.state_dict())
    learned = torch.ones(7, dtype=torch.bool)
    metrics = judge.fit(rows(), judge.values(rows()), targets(rows()) * float("inf"), learned)
    assert metrics["critic/skipped"] == 2.0
    assert all(torch.equal(before[name], x) for name, x in judge.model.state_dict().items())


# --- the advantages


def test_without_discount_and_values_a_token_is_worth_the_reward_minus_the_charges_to_come() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: None if s.index == 3 else float(s.index)))
    reference = FrozenReference(policy(llama(seed=5)))
    penalty = KlPenalty(reference, "k1", 0.05, 5, 0, Accelerator(cpu=True))
    judge = critic(ValueModel(model))
    found = credited(step, judge, GaeSettings(gamma=1.0, lam=1.0, whiten=False), penalty)
    assert len(found.rows) == 12
    charged = []
    for i, row in enumerate(found.rows):
        group, g = step.groups[i // 4], i % 4
        completion = group.completions[g]
        batch = token_batch([group.prompt_ids], [0], [completion.token_ids], 0)
        kl = [float(a - b) for a, b in zip(completion.logprobs, reference.logprobs(batch)[0], strict=True)]
        charged.append(0.05 * sum(kl))
        # the score comes with the last token, each charge with its own
        expected = [g - 0.05 * sum(kl[t:]) for t in range(len(kl))]
        if g == 3:  # not scored
            assert (row.advantages == 0).all()
        else:
            assert row.advantages.tolist() == pytest.approx(expected, abs=1e-4)
            mean = sum(expected) / len(expected)
            assert float(found.advantages.values[i // 4, g]) == pytest.approx(mean, abs=1e-4)
        assert torch.equal(row.token_ids, completion.token_ids)
    assert found.advantages.valid.tolist() == [[True, True, True, False]] * 3
    assert found.metrics["reward/kl_charge"] == pytest.approx(sum(charged) / 12, abs=1e-5)
    assert unexplained(found.metrics) == []


def test_values_are_subtracted_and_later_ones_are_trusted_by_lambda() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: float(s.index)))
    judge = critic(lively(ValueModel(model)))
    values = judge.values(episodes_of(step.groups))
    found = credited(step, judge, GaeSettings(gamma=0.9, lam=0.5, whiten=False))
    for g, row in enumerate(found.rows[:4]):
        n = len(row.token_ids)
        v = [*values[g][:n].tolist(), 0.0]
        advantage, expected = 0.0, [0.0] * n
        for t in reversed(range(n)):
            advantage = (g if t == n - 1 else 0.0) + 0.9 * v[t + 1] - v[t] + 0.9 * 0.5 * advantage
            expected[t] = advantage
        assert row.advantages.tolist() == pytest.approx(expected, abs=1e-4)


def test_whitened_advantages_have_mean_0_and_deviation_1_over_the_scored_tokens() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: None if s.index == 3 else float(s.index)))
    found = credited(step, critic(ValueModel(model)), GaeSettings(1.0, 0.95, whiten=True))
    tokens = torch.cat([row.advantages for i, row in enumerate(found.rows) if i % 4 != 3])
    assert float(tokens.mean()) == pytest.approx(0, abs=1e-5)
    assert float(tokens.std()) == pytest.approx(1, abs=1e-4)
    assert all((row.advantages == 0).all() for row in found.rows[3::4])


def test_truncated_rows_can_be_left_out_of_both_losses() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: float(s.index)))
    cut = [c.sample.truncated for group in step.groups for c in group.completions]
    assert all(cut)  # so that there is nothing left to learn
    masked, plain = (
        credited(step, critic(ValueModel(model)), GaeSettings(1.0, 1.0, whiten=False, mask_truncated=masking))
        for masking in (True, False)
    )
    assert not any(row.trained for row in masked.rows)
    assert masked.metrics["critic/skipped"] == 1
    assert all(row.trained for row in plain.rows)
    assert plain.metrics["critic/skipped"] == 0


def test_the_values_of_a_step_are_those_before_it_is_learned_from() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: float(s.index)))
    still, moving = critic(lively(ValueModel(model))), critic(lively(ValueModel(model)), lr=0.1)
    settings = GaeSettings(1.0, 0.95, whiten=False)
    first, second = credited(step, still, settings), credited(step, moving, settings)
    for a, b in zip(first.rows, second.rows, strict=True):
        assert torch.equal(a.advantages, b.advantages)
    again = credited(step, moving, settings)
    assert not torch.equal(again.rows[1].advantages, second.rows[1].advantages)


# --- the coefficient that adapts


def test_the_coefficient_moves_towards_its_target_after_it_was_charged() -> None:
    model = policy()
    step = collected(model, RuleScorer(lambda s: 0.0))
    far = FrozenReference(policy(llama(seed=5)))
    for reference, target, factor in ((far, 1e-3, 1.02), (FrozenReference(model), 1.0, 0.98)):
        penalty = KlPenalty(reference, "k1", 0.05, 5, 0, Accelerator(cpu=True), target)
        charges, metrics = penalty.charge(step.groups)
        assert metrics["reward/kl_coefficient"] == 0.05
        assert (metrics["reward/kl"] > target) == (factor > 1)
        # far from the target the error is cut to 0.2, and the gain is 0.1
        assert penalty.coefficient == pytest.approx(0.05 * factor)
        assert float(charges.sum()) == pytest.approx(0.05 * metrics["reward/kl"] * 12, abs=1e-9)
    fixed = KlPenalty(far, "k1", 0.05, 5, 0, Accelerator(cpu=True))
    assert "reward/kl_coefficient" not in fixed.charge(step.groups)[1]
    assert fixed.coefficient == 0.05


# --- together


def test_ppo_learns_what_is_paid_and_the_values_foresee_it() -> None:
    model = policy(tiny_model(TOKENIZER, TinyShape(32, 2, 2), seed=0)).train()
    accelerator = Accelerator(cpu=True)
    value_model = ValueModel(model)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=3e-3) for m in (model, value_model)]
    steady = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0) for optimizer in optimizers]
    judge = Critic(
        value_model,
        Trainable(value_model, optimizers[1], steady[1]),
        CriticSettings("token_mean", 6, 100, 4, 1.0, 0.2),
        accelerator=accelerator,
        pad_id=0,
    )
    updater = Updater(
        Trainable(model, optimizers[0], steady[0]),
        UpdateSettings("token_mean", 6, 100, 4, 1.0),
        LossSettings(),
        accelerator=accelerator,
        reference=None,
        pad_id=0,
    )
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    pay = RuleScorer(lambda s: sum(letter in "0123456789" for letter in s.text) / 6)
    loop = GrpoLoop(
        Collector(engine, pay, seed=0, group_size=8, max_tokens=6),
        ValueAdvantager(judge, GaeSettings(1.0, 0.95, whiten=True), accelerator=accelerator),
        updater,
    )
    results = [loop.step(step, prompts(*TEXTS), lambda _: []) for step in range(1, 26)]
    paid = [float(total_rewards(result.scores).mean()) for result in results]
    # a digit is one of about 100 tokens at first
    assert sum(paid[:3]) / 3 < 0.3
    assert sum(paid[-3:]) / 3 > 0.8
    assert max(result.metrics["critic/explained_variance"] for result in results) > 0.1
    assert results[-1].metrics["critic/value_mean"] > 0.4


# --- whole runs


def test_a_killed_run_equals_one_left_alone(tmp_path: Path, program_env: Mapping[str, str]) -> None:
    # warm-up, weights, optimiser and coefficient of both models must all be in the checkpoint
    run = (
        "algorithm=ppo_penalty",
        "steps=5",
        "checkpoint.every=1",
        "optim.warmup_steps=2",
        "optim.schedule=cosine",
        "rollout.group_size=4",
        "log.completions=0",
    )
    trainer = Trainer(tmp_path, program_env)
    with trainer.started(*run) as process:
        assert wait_for(
            lambda: any(p.read_bytes().count(b"\n") > 2 for p in trainer.output.glob("*/metrics.jsonl")),
            process,
        )
        os.killpg(process.pid, signal.SIGKILL)
    done = trainer.run(*run)
    assert done.returncode == 0, done.stderr
    (killed,) = run_folders(trainer.output)
    left_alone = trainer.finish(*run, output=tmp_path / "left_alone")
    assert_same_run(killed, left_alone)
    states = [
        torch.load(run / "checkpoints" / "step_000005" / "training.pt", weights_only=True)["critic"]
        for run in (killed, left_alone)
    ]
    assert states[0]["weights"].keys() == states[1]["weights"].keys()
    for name, weight in states[0]["weights"].items():
        assert torch.equal(weight, states[1]["weights"][name]), name
    lines = metrics_of(left_alone)[1:]
    assert all(unexplained(line.keys() - {"step"}) == [] for line in lines)
    assert all(line["critic/grad_norm"] > 0 for line in lines)
    assert lines[0]["critic/value_mean"] == 0
    assert lines[-1]["critic/value_mean"] != 0
    # at first the policy is the reference: below the target, so the coefficient falls
    assert lines[0]["reward/kl"] == pytest.approx(0, abs=1e-3)
    assert lines[1]["reward/kl_coefficient"] == pytest.approx(0.98 * lines[0]["reward/kl_coefficient"])


def test_one_completion_a_prompt_is_enough(tmp_path: Path, program_env: Mapping[str, str]) -> None:
    trainer = Trainer(tmp_path, program_env)
    run = trainer.finish(
        "algorithm=ppo", "steps=2", "optim.warmup_steps=1", "rollout.group_size=1", "log.completions=0"
    )
    for line in metrics_of(run)[1:]:
        assert line["grad_norm"] > 0
        assert line["advantages/zero_frac"] == 0
        assert unexplained(line.keys() - {"step"}) == []
