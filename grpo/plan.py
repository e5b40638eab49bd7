"""What is told before anything is trained: two scored samples, the size of a step, a limit too low."""

from __future__ import annotations

import math

from rich.console import Console

from grpo.config import TrainConfig
from grpo.credit_config import credit_notes
from grpo.display import print_plan, print_samples
from grpo.learned import learned_parts
from grpo.materials import Materials
from grpo.summaries import CompletionRow
from grpo.watch import needs_start_policy
from rewards.types import Sample

GIB = 2**30


def show_plan(config: TrainConfig, materials: Materials, console: Console) -> None:
    """Prints notes, two scored samples (the gold laid out, and an empty completion), the plan of a step."""
    for note in start_notes(config, materials):
        console.print(note, markup=False)
    fitted = [part.name for part in learned_parts(config.reward) if part.is_fitted_here]
    if fitted:
        console.print(f"reward model {fitted[0]!r}: fitted on the policy's completions when the run starts")
    else:
        _show_samples(materials, console)
    print_plan(console, plan_rows(config, materials))


def _show_samples(materials: Materials, console: Console) -> None:
    """Two scored samples: the gold laid out, and an empty completion."""
    prompt = materials.train_prompts[0]
    gold = "; ".join(prompt.problem.gold)
    texts = [materials.spec.lay_out("...", gold).removeprefix(prompt.prefill), ""]
    samples = [Sample(prompt.problem, text, prefill=prompt.prefill) for text in texts]
    rows = [
        CompletionRow(prompt.problem, sample.text, (), False, score, math.nan)  # no group, no advantage
        for sample, score in zip(samples, materials.scorer.score(samples), strict=True)
    ]
    print_samples(console, rows, "two scored samples: the gold laid out, and an empty completion")


def start_notes(config: TrainConfig, materials: Materials) -> list[str]:
    """What the user should know before anything is trained, one sentence each."""
    return [
        *materials.notes,
        *limit_notes(config, materials),
        *credit_notes(config.credit, config.reward),
    ]


def limit_notes(config: TrainConfig, materials: Materials) -> list[str]:
    """A note where no completion can be in the layout within rollout.max_completion_tokens."""
    thought = "." if materials.spec.mode == "required" else None
    shortest = materials.spec.lay_out(thought, "1").removeprefix(materials.train_prompts[0].prefill)
    needed = len(materials.tokenizer(shortest, add_special_tokens=False).input_ids) + 1  # and the end
    limit = config.rollout.max_completion_tokens
    if limit >= needed:
        return []
    return [
        f"rollout.max_completion_tokens={limit}: the layout alone takes {needed} tokens ({shortest!r} and "
        "the end), so no completion can be right and whole; raise it"
    ]


def plan_rows(config: TrainConfig, materials: Materials) -> list[tuple[str, str, str]]:
    """(quantity, value, note) of one step. Memory is arithmetic from the shapes, not a measurement."""
    rollout, model = config.rollout, materials.policy.model
    settings = model.config.get_text_config()
    completions = rollout.prompts_per_step * rollout.group_size
    longest = max(len(prompt.ids) for prompt in materials.train_prompts)
    weights = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    frozen = (config.algorithm.kl_coefficient > 0) + needs_start_policy(config)
    copies = 1 if config.model.lora_rank else 1 + frozen
    width = longest + rollout.max_completion_tokens
    heads = settings.num_key_value_heads * settings.hidden_size // settings.num_attention_heads
    cache = 2 * settings.num_hidden_layers * heads * 4 * width * min(rollout.decode_rows, completions)
    batch_tokens = config.optim.micro_batch_rows * width
    per_token = settings.hidden_size * (2 if config.model.gradient_checkpointing else 34)
    activations = 4 * settings.num_hidden_layers * per_token * batch_tokens
    learners = 2 if config.algorithm.value is not None else 1  # the value model is another of the same size
    states = 4 * (weights * (copies + learners - 1) + trained * 3 * learners)
    return [
        (
            "training problems",
            f"{len(materials.train_prompts)}",
            f"held out: {len(materials.heldout_prompts)}",
        ),
        ("prompts a step", f"{rollout.prompts_per_step}", f"longest {longest} tokens"),
        ("completions a step", f"{completions}", f"{rollout.group_size} of each prompt"),
        (
            "completion tokens a step",
            f"<= {completions * rollout.max_completion_tokens}",
            "the limit of every row",
        ),
        ("decode batches a step", f"{-(-completions // rollout.decode_rows)}", "rollout.decode_rows"),
        (
            "backward passes an update",
            f"<= {-(-completions // config.optim.micro_batch_rows)}",
            "optim.micro_batch_rows",
        ),
        ("updates a step", f"{config.algorithm.updates_per_rollout}", "algorithm.updates_per_rollout"),
        ("steps", f"{config.steps}", f"{config.steps * completions} completions in all"),
        ("parameters", f"{weights}", f"trained: {trained}"),
        (
            "memory: weights and optimiser",
            f"{states / GIB:.2f} GiB",
            f"fp32, {copies + learners - 1} copies of the weights, AdamW for {learners}",
        ),
        ("memory: decode cache", f"{cache / GIB:.2f} GiB", "fp32 keys and values at the limit"),
        ("memory: one backward pass", f"{activations / GIB:.2f} GiB", "estimate of the activations kept"),
    ]
