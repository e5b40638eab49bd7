"""Shared prompts on models of several kinds: training and decoding against the library's own forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fakes import TOKENIZER, gpt2, llama, policy, prompts, sharpen
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedModel

import grpo.rollout.decoding
from grpo.attention import PackedRows, shares_prompts
from grpo.policy import Policy, pack, token_batch
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine, Sampling
from grpo.types import RolloutGroup

SHAPE = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "eos_token_id": 1,
}


def grouped() -> PreTrainedModel:
    """Two query heads a key head."""
    torch.manual_seed(0)
    return sharpen(LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)))


def windowed() -> PreTrainedModel:
    """Every layer sees the last four positions only: shorter than the prompts and completions below."""
    torch.manual_seed(0)
    return sharpen(MistralForCausalLM(MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=4)))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": llama,
    "gpt2": gpt2,
    "grouped": grouped,
    "windowed": windowed,
}


def library_logprobs(model: PreTrainedModel, prompt: Tensor, completion: Tensor) -> Tensor:
    """Whole row, no padding, the library's own attention."""
    logits = model(input_ids=torch.cat([prompt, completion])[None], use_cache=False).logits[0].float()
    logprobs = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 : -1]
    return logprobs.gather(1, completion[:, None]).squeeze(1)


def batch_of(seed: int = 0) -> tuple[list[Tensor], list[int], list[Tensor]]:
    g = torch.Generator().manual_seed(seed)
    ids = [torch.randint(3, len(TOKENIZER), (n,), generator=g) for n in (7, 12, 9, 6, 11, 1, 9)]
    return ids[:2], [1, 0, 0, 1, 1], ids[2:]


def sampled(model: Policy, n: int = 10) -> list[RolloutGroup]:
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    engine.stop_ids = torch.arange(0, len(TOKENIZER), 9)  # rows leave at different times
    texts = prompts("1+2=", "34+56=", "7=")
    return [group for batch in engine.generate(texts, Sampling("k", 4, n)) for group in batch]


def ids_of(groups: list[RolloutGroup]) -> list[list[int]]:
    return [c.token_ids.tolist() for group in groups for c in group.completions]


@pytest.mark.parametrize("name", MODELS)
def test_trap_20_packed_rows_score_as_the_library_does_alone(name: str) -> None:
    model = MODELS[name]().eval()
    ids, of_row, completions = batch_of()
    plain = [library_logprobs(model, ids[p], c) for p, c in zip(of_row, completions, strict=True)]
    scores = Policy(model, temperature=1.0).eval()(token_batch(ids, of_row, completions, 0)).logprobs
    for i, expected in enumerate(plain):
        assert torch.allclose(scores[i, : len(expected)], expected, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_decoding_reports_what_the_library_gives_to_the_sampled_ids(name: str) -> None:
    model = MODELS[name]().eval()
    for group in sampled(policy(model).eval()):
        for completion in group.completions:
            expected = library_logprobs(model, group.prompt_ids, completion.token_ids)
            assert torch.allclose(completion.logprobs, expected, atol=3e-5)


def test_a_window_changes_the_scores() -> None:
    # negative control of the windowed model above
    ids, of_row, completions = batch_of()
    model = windowed().eval()
    narrow = library_logprobs(model, ids[of_row[0]], completions[0])
    model.config.sliding_window = None
    for layer in model.model.layers:
        layer.self_attn.sliding_window = None
    assert (library_logprobs(model, ids[of_row[0]], completions[0]) - narrow).abs().max() > 1e-2


def test_buffers_that_grow_change_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ids_of(sampled(policy(grouped())))
    monkeypatch.setattr(grpo.rollout.decoding, "FIRST_CAPACITY", 2)
    assert ids_of(sampled(policy(grouped()))) == whole
    assert max(len(row) for row in whole) > 4


def test_models_that_cannot_share_run_row_by_row_and_agree() -> None:
    apart = policy(grouped()).eval()
    apart.shares_prompts = False
    shared = policy(grouped()).eval()
    assert ids_of(sampled(apart)) == ids_of(sampled(shared))
    batch = token_batch(*batch_of(), 0)
    assert torch.allclose(apart(batch).logprobs, shared(batch).logprobs, atol=2e-5)


def test_layers_that_are_no_attention_are_not_shared() -> None:
    model = grouped()
    assert shares_prompts(model)
    model.config.layer_types = ["linear_attention", "full_attention"]
    assert not shares_prompts(model)


def test_packing_runs_every_prompt_once_and_no_last_token() -> None:
    packed = pack(token_batch(*batch_of(), 0))
    # prompts of 7 and 12 tokens; rows of prompt 0: 6 and 11 tokens, of prompt 1: 9, 1 and 9, each less one
    assert packed.layout == PackedRows((7, 12), ((5, 10), (8, 0, 8)))
    assert len(packed.ids) == 7 + 12 + 15 + 16
    assert packed.positions.tolist()[:19] == [*range(7), *range(12)]
    assert packed.positions.tolist()[19:24] == [*range(7, 12)]
    # row 0 is of prompt 1: its first token follows token 18, its second its own first, after 15 tokens of 0's
    assert packed.before.tolist()[:2] == [18, 19 + 15]


def test_bf16_is_as_close_to_fp32_as_the_librarys_own() -> None:
    ids, of_row, completions = batch_of()
    model = grouped().eval()
    exact = [library_logprobs(model, ids[p], c) for p, c in zip(of_row, completions, strict=True)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = [library_logprobs(model, ids[p], c) for p, c in zip(of_row, completions, strict=True)]
    low = Policy(model, temperature=1.0, precision=torch.bfloat16).eval()
    scores = low(token_batch(ids, of_row, completions, 0)).logprobs

    def error(rows: list[Tensor]) -> float:
        return max(float((a - b).detach().abs().max()) for a, b in zip(rows, exact, strict=True))

    ours = error([scores[i, : len(c)] for i, c in enumerate(completions)])
    assert 0 < ours < 2 * error(theirs)


def test_bf16_sampler_trainer_and_reference_share_one_precision() -> None:
    model = Policy(grouped(), temperature=1.0, precision=torch.bfloat16).eval()
    before = {name: p.clone() for name, p in model.named_parameters()}
    groups = sampled(model)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())  # fp32 again, untouched
    of_row = [p for p, group in enumerate(groups) for _ in group.completions]
    completions = [c for group in groups for c in group.completions]
    batch = token_batch([g.prompt_ids for g in groups], of_row, [c.token_ids for c in completions], 0)
    with torch.no_grad():
        scored = model(batch).logprobs
    reference = FrozenReference(model)
    assert torch.equal(reference.logprobs(batch), scored)
    full = Policy(grouped(), temperature=1.0).eval()(batch).logprobs
    gaps = [
        (other[i, : len(c.logprobs)] - c.logprobs).abs()
        for other in (scored, full)
        for i, c in enumerate(completions)
    ]
    n = len(completions)
    assert torch.cat(gaps[:n]).mean() < torch.cat(gaps[n:]).mean()  # nearer to its own precision than to fp32
