"""What the local engine samples: exact log-probs, keyed draws, honoured stops, no trace of the batch."""

from __future__ import annotations

import pytest
import torch
from fakes import SPEC, TOKENIZER, gpt2, llama, policy, prompts

from grpo.policy import Policy, token_batch
from grpo.rollout.local import LocalEngine, Sampling, invert_cdf, stop_ids, uniforms
from grpo.types import RolloutGroup

TEXTS = ("1+2=", "34+5=", "7=", "99+99=", "8+16=")


def sample(
    model: Policy, texts: tuple[str, ...] = TEXTS, *, rows: int = 64, key: str = "k", g: int = 4, n: int = 12
) -> list[RolloutGroup]:
    engine = LocalEngine(model, TOKENIZER, decode_rows=rows)
    return [group for batch in engine.generate(prompts(*texts), Sampling(key, g, n)) for group in batch]


def ids(groups: list[RolloutGroup]) -> dict[str, list[list[int]]]:
    return {g.problem.prompt: [c.token_ids.tolist() for c in g.completions] for g in groups}


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_trap_11_and_19_sampled_logprobs_are_the_policys_own(make: object, temperature: float) -> None:
    model = policy(make(), temperature).eval()  # type: ignore[operator]
    groups = sample(model)
    of_row = [p for p, group in enumerate(groups) for _ in group.completions]
    completions = [c for group in groups for c in group.completions]
    batch = token_batch([g.prompt_ids for g in groups], of_row, [c.token_ids for c in completions], 0)
    scored = model(batch).logprobs
    for i, completion in enumerate(completions):
        n = len(completion.token_ids)
        assert torch.allclose(scored[i, :n], completion.logprobs, atol=2e-5)


@pytest.mark.parametrize("rows", [4, 8, 64])
def test_batch_composition_changes_no_sample(rows: int) -> None:
    model = policy()
    together = ids(sample(model, rows=64))
    assert ids(sample(model, rows=rows)) == together
    assert ids(sample(model, tuple(reversed(TEXTS)), rows=rows)) == together
    for text in TEXTS:
        assert ids(sample(model, (text,))) == {text: together[text]}


def test_finished_rows_leave_without_disturbing_the_others() -> None:
    # with many stop ids rows end at different lengths; each must be a prefix of its unstopped self
    model = policy()
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    free = ids([g for b in engine.generate(prompts(*TEXTS), Sampling("k", 4, 12)) for g in b])
    engine.stop_ids = torch.arange(0, len(TOKENIZER), 5)
    stopping = [g for b in engine.generate(prompts(*TEXTS), Sampling("k", 4, 12)) for g in b]
    stops = set(engine.stop_ids.tolist())
    lengths = set()
    for group in stopping:
        for i, completion in enumerate(group.completions):
            got = completion.token_ids.tolist()
            whole = free[group.problem.prompt][i]
            if TOKENIZER.eos_token_id not in whole:
                end = next((t for t, token in enumerate(whole) if token in stops), len(whole) - 1)
                assert got == whole[: end + 1]
            assert completion.sample.truncated == (got[-1] not in stops)
            lengths.add(len(got))
    assert len(lengths) > 3


def test_trap_32_samples_of_a_group_differ_and_repeat_by_seed() -> None:
    model = policy()
    first, again, other = sample(model), sample(model), sample(model, key="other")
    assert ids(first) == ids(again)
    assert ids(first) != ids(other)
    for completions in ids(first).values():
        assert len({tuple(row) for row in completions}) > 1


def test_trap_15_truncated_means_cut_by_the_limit() -> None:
    model = policy()
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    engine.stop_ids = torch.arange(len(TOKENIZER))  # every token ends: one token each, never truncated
    (group,) = next(iter(engine.generate(prompts("1="), Sampling("k", 4, 1))))
    assert [len(c.token_ids) for c in group.completions] == [1] * 4
    assert not any(c.sample.truncated for c in group.completions)
    assert all(c.sample.text == "" for c in group.completions)  # the stop id is no text
    engine.stop_ids = torch.tensor([], dtype=torch.long)
    (group,) = next(iter(engine.generate(prompts("1="), Sampling("k", 4, 3))))
    assert all(c.sample.truncated and len(c.token_ids) == 3 for c in group.completions)


def test_trap_33_a_weight_update_reaches_the_sampler() -> None:
    model = policy()
    before = ids(sample(model))
    model.model.load_state_dict(llama(seed=1).state_dict())
    assert ids(sample(model)) != before
    assert ids(sample(model)) == ids(sample(policy(llama(seed=1))))


def test_every_declared_stop_id_is_honoured() -> None:
    model = policy()
    model.model.generation_config.eos_token_id = [7, 9]
    assert stop_ids(model, TOKENIZER) == {7, 9, TOKENIZER.eos_token_id}


def test_greedy_takes_the_likeliest_token_and_keeps_the_mode() -> None:
    model = policy().train()
    engine = LocalEngine(model, TOKENIZER, decode_rows=8)
    (group,) = next(iter(engine.generate(prompts("1+2="), Sampling("k", 1, 6, greedy=True))))
    assert model.training
    completion = group.completions[0]
    row = torch.cat([group.prompt_ids, completion.token_ids])[None]
    logits = model.model(input_ids=row, use_cache=False).logits[0, len(group.prompt_ids) - 1 : -1]
    assert logits.argmax(-1).tolist() == completion.token_ids.tolist()


def test_inverse_cdf_draws_the_distribution() -> None:
    shares = torch.tensor([0.5, 0.0, 0.3, 0.2])
    drawn = invert_cdf(shares.expand(4, -1), torch.tensor([0.0, 0.49, 0.51, 0.999999], dtype=torch.float64))
    assert drawn.tolist() == [0, 0, 2, 3]
    many = invert_cdf(shares.expand(20000, -1), uniforms("key", "p", 0, 20000))
    # three standard deviations of a share near one half of 20000 draws are 0.011
    assert torch.allclose(torch.bincount(many, minlength=4) / 20000, shares, atol=0.011)


def test_inverse_cdf_by_blocks_is_the_one_over_the_whole_vocabulary() -> None:
    g = torch.Generator().manual_seed(0)
    weights = torch.randn(500, 1000, generator=g).mul(4).exp()
    weights[:, 200:700] = 0  # a whole block and parts of two others are empty
    uniform = torch.rand(500, generator=g, dtype=torch.float64)
    uniform[:3] = torch.tensor([0.0, 1 - 2**-53, 0.5])
    cumulative = weights.double().cumsum(dim=1)
    plain = torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True).squeeze(1)
    drawn = invert_cdf(weights, uniform)
    assert (drawn == plain.clamp(max=999)).float().mean() > 0.99  # all but draws within rounding of an edge
    assert (weights.gather(1, drawn[:, None]) > 0).all()


def test_trap_32_uniform_numbers_depend_on_key_problem_and_index() -> None:
    base = uniforms("key", "p", 0, 4)
    assert torch.equal(base, uniforms("key", "p", 0, 4))
    for other in (uniforms("kez", "p", 0, 4), uniforms("key", "q", 0, 4), uniforms("key", "p", 1, 4)):
        assert not torch.equal(base, other)


def test_trap_17_text_is_decoded_from_the_sampled_ids_with_specials_kept() -> None:
    group = sample(policy(), ("1+2=",))[0]
    for completion in group.completions:
        kept = completion.token_ids if completion.sample.truncated else completion.token_ids[:-1]
        assert completion.sample.text == TOKENIZER.decode(kept, skip_special_tokens=False)
    assert SPEC.think_open in TOKENIZER.decode(TOKENIZER(SPEC.think_open).input_ids)
