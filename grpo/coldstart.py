"""The supervised phase before the reinforcement: a few worked examples teach the layout, as DeepSeek-R1 does.

Knows how to lay a demonstration out by the format spec and how to imitate it. The result is cached by what it
was made from, so that sweeps over rewards and algorithms start from one and the same policy.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor
from transformers import PreTrainedTokenizerBase, get_cosine_schedule_with_warmup

from grpo.policy import Policy, token_batch
from grpo.prompt import encode_prompt
from rewards.errors import DataError
from rewards.format import FormatSpec
from rewards.types import Problem


@dataclass(frozen=True, slots=True)
class ColdStartSettings:
    """steps of batch_size demonstrations each.

    At a peak learning rate that rises and falls along a cosine.
    """

    steps: int
    batch_size: int
    learning_rate: float
    seed: int


@dataclass(frozen=True, slots=True)
class Demonstration:
    """prompt_ids: (L,) int64; completion_ids: (n,) int64, the stop id included."""

    prompt_ids: Tensor
    completion_ids: Tensor


def demonstrate(problem: Problem, tokenizer: PreTrainedTokenizerBase, spec: FormatSpec) -> Demonstration:
    """Lays out the thought and the answer of `meta` in the format that the verifier will ask for.

    Raises:
        DataError: when the problem carries no worked example, or the tokenizer has no stop id.
    """
    if "thought" not in problem.meta or "answer" not in problem.meta:
        raise DataError(
            f"problem {problem.id!r}: a cold start needs meta.thought and meta.answer; set coldstart.steps=0"
        )
    if tokenizer.eos_token_id is None:
        raise DataError("a cold start needs a tokenizer with an eos token: set coldstart.steps=0")
    prompt = encode_prompt(problem, tokenizer, spec)
    text = spec.lay_out(problem.meta["thought"], problem.meta["answer"]).removeprefix(prompt.prefill)
    ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    return Demonstration(prompt.ids, torch.tensor(ids, dtype=torch.long))


def imitate(
    policy: Policy,
    demonstrations: Sequence[Demonstration],
    settings: ColdStartSettings,
    *,
    pad: int,
    report: Callable[[int, float], None],
) -> float:
    """Minimises the cross-entropy per completion token.

    Reports (step, loss) and returns the mean of the last tenth.
    """
    rng = random.Random(f"coldstart/{settings.seed}")
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, min(20, settings.steps), settings.steps)
    losses: list[float] = []
    policy.train()
    for step in range(1, settings.steps + 1):
        chosen = [demonstrations[rng.randrange(len(demonstrations))] for _ in range(settings.batch_size)]
        batch = token_batch(
            [d.prompt_ids for d in chosen], range(len(chosen)), [d.completion_ids for d in chosen], pad
        ).to(policy.model.device)
        loss = -policy(batch).logprobs.sum() / batch.lengths.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        report(step, losses[-1])
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def cold_start(
    policy: Policy,
    demonstrations: Iterable[Demonstration],
    settings: ColdStartSettings,
    *,
    pad: int,
    cache: Path,
    report: Callable[[int, float], None],
) -> tuple[float, bool]:
    """Trains the policy in place, or loads what an equal cold start left in `cache`.

    demonstrations are asked for only when there is nothing in the cache.

    Returns:
        The final loss, and whether it came from the cache.
    """
    stored = cache / "model.safetensors"
    if stored.exists():
        load_model(policy.model, stored, device=str(policy.model.device))
        return float(json.loads((cache / "coldstart.json").read_text())["loss"]), True
    loss = imitate(policy, list(demonstrations), settings, pad=pad, report=report)
    _store(policy, loss, cache)
    return loss, False


def _store(policy: Policy, loss: float, cache: Path) -> None:
    """Writes beside and renames; a job that was faster with the same cold start wins."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{cache.name}.", dir=cache.parent))
    try:
        save_model(policy.model, str(partial / "model.safetensors"))
        (partial / "coldstart.json").write_text(json.dumps({"loss": loss}), encoding="utf-8")
        if not cache.exists():
            os.rename(partial, cache)
    except OSError:
        if not cache.exists():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
