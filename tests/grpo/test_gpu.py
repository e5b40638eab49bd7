"""The same code on a CUDA device, in fp32 and bf16: against the CPU, against the library, against itself."""

from __future__ import annotations

import pytest
import torch
from fakes import TOKENIZER, llama, prompts
from torch import Tensor

from grpo.policy import Policy, TokenBatch, token_batch
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine, Sampling
from grpo.types import RolloutGroup

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
PRECISIONS = [torch.float32, torch.bfloat16]


def batch() -> TokenBatch:
    g = torch.Generator().manual_seed(0)
    ids = [torch.randint(3, len(TOKENIZER), (n,), generator=g) for n in (7, 12, 9, 6, 11, 1, 9)]
    return token_batch(ids[:2], [1, 0, 0, 1, 1], ids[2:], 0)


def scored(device: torch.device, precision: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs and the gradient of their sum of squares, on the CPU."""
    model = Policy(llama(), temperature=0.7, precision=precision).to(device).eval()
    logprobs = model(batch().to(device)).logprobs
    logprobs.square().sum().backward()
    gradient = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return logprobs.detach().cpu(), gradient


def samples(precision: torch.dtype) -> tuple[Policy, list[RolloutGroup]]:
    model = Policy(llama(), temperature=1.0, precision=precision).to(CUDA).eval()
    engine = LocalEngine(model, TOKENIZER, decode_rows=64)
    texts = prompts("1+2=", "34+56=", "7=")
    return model, [group for part in engine.generate(texts, Sampling("k", 4, 12)) for group in part]


def test_fp32_scores_and_gradients_are_the_cpus() -> None:
    (ours, gradient), (expected, plain) = (scored(d, torch.float32) for d in (CUDA, torch.device("cpu")))
    assert torch.allclose(ours, expected, atol=1e-3)
    for name, g in plain.items():
        assert torch.allclose(gradient[name], g, atol=1e-2 * float(g.abs().max()) + 1e-4), name


def test_bf16_scores_stay_near_fp32() -> None:
    low, full = (scored(CUDA, precision)[0] for precision in (torch.bfloat16, torch.float32))
    assert 0 < (low - full).abs().mean() < 0.2


@pytest.mark.parametrize("precision", PRECISIONS)
def test_sampled_logprobs_are_the_policys(precision: torch.dtype) -> None:
    model, groups = samples(precision)
    of_row = [p for p, group in enumerate(groups) for _ in group.completions]
    completions = [c for group in groups for c in group.completions]
    rows = token_batch([g.prompt_ids for g in groups], of_row, [c.token_ids for c in completions], 0)
    with torch.no_grad():
        again = model(rows.to(CUDA)).logprobs.cpu()
    gap = torch.cat([(again[i, : len(c.logprobs)] - c.logprobs).abs() for i, c in enumerate(completions)])
    assert gap.mean() < (1e-3 if precision == torch.float32 else 0.2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_reference_starts_equal(precision: torch.dtype) -> None:
    model = Policy(llama(), temperature=1.0, precision=precision).to(CUDA).eval()
    with torch.no_grad():
        assert torch.equal(
            FrozenReference(model).logprobs(batch().to(CUDA)), model(batch().to(CUDA)).logprobs
        )


def test_the_fused_optimiser_steps_on_the_device() -> None:
    model = Policy(llama(), temperature=1.0).to(CUDA)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    model(batch().to(CUDA)).logprobs.sum().backward()
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
