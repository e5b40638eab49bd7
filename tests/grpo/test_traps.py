"""Traps of the list that belong to no one module, by number: sampling, modes, sharing, metrics, threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from fakes import SPEC, TOKENIZER, RuleScorer, gpt2, llama, policy, problem, prompts
from tokenizers.processors import TemplateProcessing

import grpo.policy
from grpo.advantage import AdvantageSettings
from grpo.advantager import GroupAdvantager, GroupSettings
from grpo.assign import CreditPlan
from grpo.attention import PackedRows
from grpo.collect import Collected, Collector, Timings
from grpo.config import TRAIN
from grpo.loss import LossSettings
from grpo.models import load_policy
from grpo.policy import Packed, Policy, TokenBatch, token_batch
from grpo.prompt import EncodedPrompt, encode_prompt
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine, Sampling
from grpo.summaries import completion_rows, summarise_step
from grpo.tiny import tiny_tokenizer
from grpo.types import Completion, RolloutGroup
from grpo.update import Trainable, TrainRow, Updater, UpdateSettings
from rewards.composite import Component, Composite
from rewards.isolation import Limits
from rewards.types import Problem, Reason, Sample, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier

TEXTS = ("1+2=", "34+5=", "7=", "99+99=")
MAKERS = {"llama": llama, "gpt2": gpt2}
PROMPTS = [torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10, 11, 12, 13]), torch.tensor([14, 15])]


def sampled(model: Policy, texts: Sequence[str] = TEXTS, *, tokens: int = 12) -> list[RolloutGroup]:
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    return [group for batch in engine.generate(prompts(*texts), Sampling("k", 4, tokens)) for group in batch]


def ids(groups: Sequence[RolloutGroup]) -> list[list[list[int]]]:
    return [[c.token_ids.tolist() for c in group.completions] for group in groups]


def train_rows(seed: int = 0) -> list[TrainRow]:
    """Three prompts with three completions each, of lengths 1 to 9, advantages of both signs."""
    g = torch.Generator().manual_seed(seed)
    return [
        TrainRow(
            i // 3,
            torch.randint(3, 60, (n,), generator=g),
            torch.full((n,), float(torch.randn((), generator=g))),
            torch.full((n,), -2.0),
        )
        for i, n in enumerate((4, 9, 1, 6, 3, 8, 2, 7, 5))
    ]


def updater(model: Policy, *, micro: int = 100, updates: int = 1, lr: float = 0.0) -> Updater:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return Updater(
        Trainable(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        UpdateSettings("token_mean", 16, micro, updates, math.inf),
        LossSettings(kl_coefficient=0.1, kl_estimator="k3"),
        accelerator=Accelerator(cpu=True),
        reference=FrozenReference(policy(llama(seed=3))),
        pad_id=0,
    )


def test_trap_12_a_models_own_top_k_and_temperature_do_not_shape_the_samples() -> None:
    # many hub models ship generation defaults; the log-probs are of the full distribution at our temperature
    plain = ids(sampled(policy()))
    model = llama()
    assert model.generation_config is not None
    model.generation_config.update(do_sample=True, top_k=1, top_p=0.1, temperature=0.01)
    assert ids(sampled(policy(model))) == plain
    assert len({tuple(row) for row in plain[0]}) > 1  # with top-k 1 all would be equal


@pytest.mark.parametrize("name", MAKERS)
def test_trap_14_a_short_prompt_beside_longer_ones_keeps_its_logprobs_and_samples(name: str) -> None:
    model = policy(MAKERS[name]()).eval()
    alone = sampled(model, ("7=",))[0]
    beside = sampled(model, ("1234567890+1234567890=", "7=", "99+99="))[1]
    assert ids([alone]) == ids([beside])
    rows = [c.token_ids for c in alone.completions]
    by_itself = model(token_batch([alone.prompt_ids], [0] * 4, rows, 0)).logprobs
    longer = [torch.arange(3, 40), alone.prompt_ids, torch.arange(20, 30)]
    batch = token_batch(longer, [0, 1, 1, 1, 1, 2], [rows[0], *rows, rows[1]], 0)
    assert torch.allclose(model(batch).logprobs[1:5], by_itself, atol=1e-5)


def test_trap_18_dropout_of_a_model_is_off_in_every_pass(tmp_path: Path) -> None:
    model = gpt2()
    model.config.update({"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5})
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    config = TRAIN.load(["model=hub", f"model.name={tmp_path}", "coldstart.steps=0"]).model
    loaded = load_policy(config, SPEC, temperature=1.0, seed=0, entropy_gradient=False).policy
    batch = token_batch(PROMPTS, [0, 1, 2], [torch.arange(5, 12)] * 3, 0)
    with torch.no_grad():
        training, evaluating = loaded.train()(batch).logprobs, loaded.eval()(batch).logprobs
    assert torch.equal(training, evaluating)
    # negative control: with the file's own rates the two modes differ
    careless = policy(type(model).from_pretrained(tmp_path))
    with torch.no_grad():
        assert not torch.allclose(careless.train()(batch).logprobs, evaluating, atol=1e-2)


def test_trap_17_what_is_trained_on_is_what_was_sampled() -> None:
    g = torch.Generator().manual_seed(0)
    spelled = torch.tensor(TOKENIZER.convert_tokens_to_ids(list("<think>")))  # a tag letter by letter
    rows = [spelled, *(torch.randint(0, len(TOKENIZER), (12,), generator=g) for _ in range(199))]
    texts = [TOKENIZER.decode(row, skip_special_tokens=False) for row in rows]
    again = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert again[0] != spelled.tolist()  # so that decoding and encoding would be seen
    group = prompts("1+2=")[0]
    completions = tuple(
        Completion(Sample(group.problem, text, index=i), row, torch.full((len(row),), -1.0))
        for i, (row, text) in enumerate(zip(rows, texts, strict=True))
    )
    scores = tuple(RuleScorer(lambda s: float(s.index)).score([c.sample for c in completions]))
    advantager = GroupAdvantager(
        GroupSettings(AdvantageSettings(), CreditPlan(True, None), {}),
        decode=TOKENIZER.decode,
        accelerator=Accelerator(cpu=True),
    )
    collected = Collected((RolloutGroup(group.problem, group.ids, completions),), (scores,), {})
    trained = advantager.credit(collected, Timings()).rows
    assert all(torch.equal(row.token_ids, ids) for row, ids in zip(trained, rows, strict=True))


@pytest.mark.parametrize(
    "template", [None, "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"]
)
@pytest.mark.parametrize("ends", ["", " <eos>"])
def test_trap_17_a_prompt_has_one_start_and_no_end(template: str | None, ends: str) -> None:
    tokenizer = tiny_tokenizer([])
    tokenizer.bos_token = "<unk>"
    tokenizer.chat_template = template
    specials = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<unk>", "<eos>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"<unk> $A{ends}", special_tokens=specials
    )
    ids = encode_prompt(problem("1+2="), tokenizer, SPEC).ids.tolist()
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.eos_token_id not in ids


@pytest.mark.parametrize("training", [True, False])
def test_trap_18_sampling_and_scoring_restore_the_mode(training: bool) -> None:
    model = policy().train(training)
    sampled(model, ("1+2=",), tokens=2)
    assert model.training is training
    FrozenReference(model).logprobs(token_batch(PROMPTS, [0], [torch.arange(5, 9)], 0))
    assert model.training is training


@pytest.mark.parametrize("name", MAKERS)
def test_trap_20_shared_rows_score_as_rows_alone_at_every_token(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = policy(MAKERS[name]()).eval()
    assert model.shares_prompts
    of_row, completions = [0, 1, 0, 1, 1], [torch.arange(5, 5 + n) * 7 % 60 + 3 for n in (6, 3, 1, 8, 5)]
    batch = token_batch(PROMPTS, of_row, completions, 0)
    together = model(batch).logprobs
    for i, completion in enumerate(completions):
        alone = model(token_batch(PROMPTS, [of_row[i]], [completion], 0)).logprobs[0]
        # the first token, which the prompt's last state predicts, as well as all others
        assert torch.allclose(together[i, : len(completion)], alone, atol=1e-5)

    # negative control: where the rows of a prompt see each other, their scores are others
    pack = grpo.policy.pack

    def leaking(batch: TokenBatch) -> Packed:
        packed = pack(batch)
        merged = tuple((sum(rows),) for rows in packed.layout.rows)
        return replace(packed, layout=PackedRows(packed.layout.prompts, merged))

    monkeypatch.setattr(grpo.policy, "pack", leaking)
    assert (model(batch).logprobs - together).abs().max() > 1e-2


def test_trap_22_no_statistic_of_an_update_knows_the_padding() -> None:
    # row by row nothing is padded; all rows together are padded to the longest
    wide, narrow = (updater(policy(), micro=micro).update(PROMPTS, train_rows()) for micro in (100, 1))
    assert wide["entropy"] == pytest.approx(narrow["entropy"], rel=1e-5)
    scores = [policy()(token_batch(PROMPTS, [r.prompt], [r.token_ids], 0)) for r in train_rows()]
    entropies = torch.cat([score.entropy[0] for score in scores])
    assert wide["entropy"] == pytest.approx(float(entropies.mean()), rel=1e-5)


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_trap_35_metrics_are_token_means_over_any_split(micro: int) -> None:
    whole = updater(policy(), updates=2, lr=0.01).update(PROMPTS, train_rows())
    split = updater(policy(), updates=2, lr=0.01, micro=micro).update(PROMPTS, train_rows())
    assert whole.keys() == split.keys()
    for name, value in whole.items():
        assert value == pytest.approx(split[name], rel=1e-3, abs=1e-6), name
    assert whole["kl"] > 0
    assert whole["policy/ratio_max"] > 1


def test_trap_35_the_reward_that_is_logged_is_the_one_that_is_paid() -> None:
    parts = {
        "accuracy": Component(1.0, RuleScorer(lambda s: float(s.index % 2))),
        "format": Component(0.25, RuleScorer(lambda s: 1.0)),
    }
    engine = LocalEngine(policy(), TOKENIZER, decode_rows=64)
    collector = Collector(engine, Composite(parts), seed=0, group_size=4, max_tokens=4)
    collected = collector.collect(1, prompts(*TEXTS), lambda _: [], Timings())
    zeros = [[0.0] * 4 for _ in collected.groups]
    still = [[False] * 4 for _ in collected.groups]
    unknown: list[list[None]] = [[None] * 4 for _ in collected.groups]
    logged = summarise_step(
        completion_rows(collected.groups, collected.scores, zeros, still, unknown, unknown)
    )
    assert logged["reward"] == pytest.approx(0.5 + 0.25)
    assert logged["reward/accuracy/mean"] == pytest.approx(0.5)
    assert logged["reward/format/mean"] == pytest.approx(1.0)  # unweighted, and said to be


class Writes:
    """An engine whose completions are given texts."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """One group a prompt."""
        for prompt in prompts:
            completions = [
                Completion(Sample(prompt.problem, text, index=i), torch.tensor([5]), torch.tensor([-1.0]))
                for i, text in enumerate(self.texts)
            ]
            yield [RolloutGroup(prompt.problem, prompt.ids, tuple(completions))]


def test_trap_37_an_answer_over_its_limit_is_told_apart_from_a_scoring_thread() -> None:
    gold = "+".join(f"\\sin({n}y)^2" for n in range(1, 60))
    dear = "+".join(f"\\frac{{1 - \\cos({2 * n}y)}}{{2}}" for n in range(1, 60))
    asked = [replace(prompts("x")[0], problem=Problem("p", "x", (gold,)))]
    hasty = AccuracyVerifier(limits=Limits(cpu_seconds=0.0001, wall_seconds=60.0))
    collector = Collector(
        Writes(f"\\boxed{{{dear}}}", f"\\boxed{{{gold}}}"), hasty, seed=0, group_size=2, max_tokens=4
    )
    (scores,) = collector.collect(
        1, asked, lambda _: [], Timings()
    ).scores  # scored in the collector's thread
    assert [(score.verdict, score.reason) for score in scores] == [
        (Verdict.SCORED, Reason.TIMEOUT),
        (Verdict.SCORED, Reason.MATCH_STRING),
    ]
    assert [score.value for score in scores] == [0.0, 1.0]


@pytest.mark.parametrize("extra_rounds", [0, 2])
def test_trap_40_the_samples_of_a_step_are_of_one_version(extra_rounds: int) -> None:
    seen: list[Sample] = []
    scorer = RuleScorer(lambda s: seen.append(s) or 1.0)  # silent groups: sampled again where allowed
    engine = LocalEngine(policy(), TOKENIZER, decode_rows=4)
    collector = Collector(engine, scorer, seed=0, group_size=4, max_tokens=4, extra_rounds=extra_rounds)
    collector.collect(7, prompts(*TEXTS), lambda round_: prompts(f"{round_}+{round_}="), Timings())
    assert {s.policy_version for s in seen} == {7}
    assert len(seen) == 4 * (len(TEXTS) + extra_rounds)
