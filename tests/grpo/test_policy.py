"""The policy's log-probs against a plain loop: a row at a time, no padding, cache, sharing or chunks."""

from __future__ import annotations

import math

import pytest
import torch
from fakes import TOKENIZER, gpt2, llama, policy
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedModel

import grpo.head
from grpo.policy import Policy, check_head, token_batch
from rewards.errors import ConfigError

MODELS = {"llama": llama, "gpt2": gpt2}


def rows(seed: int = 0) -> tuple[list[Tensor], list[int], list[Tensor]]:
    """Three prompts of lengths 3, 9 and 5; seven completions of lengths 1 to 8, in no order."""
    g = torch.Generator().manual_seed(seed)

    def ids(n: int) -> Tensor:
        return torch.randint(3, len(TOKENIZER), (n,), generator=g)

    prompts = [ids(3), ids(9), ids(5)]
    return prompts, [1, 0, 2, 0, 1, 2, 1], [ids(n) for n in (4, 8, 1, 3, 6, 2, 5)]


def plain_logprobs(model: PreTrainedModel, prompt: Tensor, completion: Tensor, temperature: float) -> Tensor:
    """The definition: log softmax(logits / T) at each completion token, whole row, no padding."""
    logits = model(input_ids=torch.cat([prompt, completion])[None], use_cache=False).logits[0].float()
    logprobs = torch.log_softmax(logits / temperature, dim=-1)[len(prompt) - 1 : -1]
    return logprobs.gather(1, completion[:, None]).squeeze(1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_shared_prefix_scores_equal_the_plain_loop_at_every_position(name: str, temperature: float) -> None:
    model = MODELS[name]().eval()
    prompts, of_row, completions = rows()
    scores = Policy(model, temperature=temperature).eval()(token_batch(prompts, of_row, completions, 0))
    for i, completion in enumerate(completions):
        plain = plain_logprobs(model, prompts[of_row[i]], completion, temperature)
        assert torch.allclose(scores.logprobs[i, : len(completion)], plain, atol=1e-5)
        assert (scores.logprobs[i, len(completion) :] == 0).all()


def test_a_prompt_of_another_row_would_change_the_scores() -> None:
    # negative control of the test above: the comparison can see a wrong prefix
    model = llama().eval()
    prompts, of_row, completions = rows()
    wrong = plain_logprobs(model, prompts[0], completions[0], 1.0)
    right = plain_logprobs(model, prompts[of_row[0]], completions[0], 1.0)
    assert (wrong - right).abs().max() > 1e-2


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_the_plain_loop(name: str) -> None:
    prompts, of_row, completions = rows()
    weights = [torch.linspace(-1, 1, len(c)) for c in completions]
    model = MODELS[name]().eval()
    for i, completion in enumerate(completions):
        (plain_logprobs(model, prompts[of_row[i]], completion, 1.0) * weights[i]).sum().backward()
    plain = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    scores = Policy(model, temperature=1.0).eval()(token_batch(prompts, of_row, completions, 0))
    padded = torch.zeros_like(scores.logprobs)
    for i, w in enumerate(weights):
        padded[i, : len(w)] = w
    (scores.logprobs * padded).sum().backward()
    for n, p in model.named_parameters():
        assert p.grad is not None
        assert torch.allclose(p.grad, plain[n], atol=1e-4 * float(plain[n].abs().max()) + 1e-6), n


def test_checkpointed_rows_equal_shared_prefixes() -> None:
    batch = token_batch(*rows(), 0)
    shared = policy().train()
    checkpointed = policy()
    checkpointed.model.activation_checkpointing_enable({"use_reentrant": False})
    checkpointed.train()
    losses = [model(batch).logprobs.square().sum() for model in (shared, checkpointed)]
    for loss in losses:
        loss.backward()
    assert torch.allclose(losses[0], losses[1], rtol=1e-5)
    for a, b in zip(shared.parameters(), checkpointed.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad, b.grad, atol=1e-4 * float(a.grad.abs().max()) + 1e-6)


@pytest.mark.parametrize("block", [1, 7])
def test_trap_21_blocks_of_the_head_change_no_value_and_no_gradient(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = token_batch(*rows(), 0)
    whole, parted = policy().eval(), policy().eval()
    a = whole(batch)
    a.logprobs.square().sum().backward()
    monkeypatch.setattr(grpo.head, "BLOCK", block)
    b = parted(batch)
    b.logprobs.square().sum().backward()
    assert torch.allclose(a.logprobs, b.logprobs, atol=1e-6)
    assert torch.allclose(a.entropy, b.entropy, atol=1e-6)
    for p, q in zip(whole.parameters(), parted.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert torch.allclose(p.grad, q.grad, atol=1e-5 * float(p.grad.abs().max()) + 1e-7)


def test_entropy_of_a_uniform_head_is_the_log_of_the_vocabulary() -> None:
    model = llama()
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    batch = token_batch(*rows(), 0)
    entropy = policy(model).eval()(batch).entropy
    assert torch.allclose(entropy[batch.mask], torch.tensor(math.log(len(TOKENIZER))), atol=1e-5)
    assert (entropy[~batch.mask] == 0).all()


def test_entropy_has_a_gradient_only_when_asked_for() -> None:
    batch = token_batch(*rows(), 0)
    assert not policy().eval()(batch).entropy.requires_grad
    assert Policy(llama(), temperature=1.0, entropy_gradient=True).eval()(batch).entropy.requires_grad


def test_trap_13_the_mask_comes_from_lengths_where_pad_is_eos() -> None:
    eos = TOKENIZER.eos_token_id
    batch = token_batch(
        [torch.tensor([5, 6])], [0, 0], [torch.tensor([7, eos]), torch.tensor([8, 9, 7])], eos
    )
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    scores = policy().eval()(batch)
    assert scores.logprobs[0, 1] != 0
    assert scores.logprobs[0, 2] == 0


def test_padding_in_the_batch_moves_nothing() -> None:
    prompts, of_row, completions = rows()
    model = policy().eval()
    alone = model(token_batch(prompts, of_row[:1], completions[:1], 0)).logprobs
    together = model(token_batch(prompts, of_row, completions, 0)).logprobs[:1, : alone.shape[1]]
    assert torch.allclose(alone, together, atol=1e-5)


def test_a_model_that_caps_its_logits_is_refused() -> None:
    config = Gemma2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.1,
    )
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="gemma2"):
        check_head(Policy(Gemma2ForCausalLM(config), temperature=1.0))
    check_head(policy())


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature=0"):
        Policy(llama(), temperature=0)
