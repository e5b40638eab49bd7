"""What a run works with before anything is trained: data, tokenizer, policy, scorers, checked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from grpo.config import TrainConfig
from grpo.data import ProblemOrder, RunData, load_run_data
from grpo.evaluation import Judges
from grpo.models import load_policy
from grpo.policy import Policy
from grpo.prompt import EncodedPrompt, encode_prompts
from grpo.rollout.local import Sampling, decode_completion
from grpo.rollout.saved import SavedRollouts, check_rollouts
from rewards.build import build, build_scorer
from rewards.config import RewardConfig
from rewards.errors import DataError
from rewards.format import FormatSpec
from rewards.prepared import cache_folder
from rewards.scorer import Scorer
from rewards.types import Problem
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.think_format import ThinkFormatVerifier


@dataclass(frozen=True, slots=True)
class Materials:
    """What is loaded before anything is trained.

    A dry run stops here. reward: what is paid, as `scorer` was built from it. notes: for the user, one
    sentence each.
    """

    spec: FormatSpec
    policy: Policy
    tokenizer: PreTrainedTokenizerBase
    reward: RewardConfig
    scorer: Scorer
    judges: Judges
    data: RunData
    train_prompts: tuple[EncodedPrompt, ...]
    heldout_prompts: tuple[EncodedPrompt, ...]
    notes: tuple[str, ...]


def gather_materials(config: TrainConfig) -> Materials:
    """Loads data, tokenizer, model and scorers; checks them against each other.

    Raises:
        ConfigError, DataError: naming the option or the row and the fix.
    """
    if config.rollout.replay is not None:
        check_rollouts(Path(config.rollout.replay), 1, config.steps)
    spec: FormatSpec = build(config.format)
    scorer = build_scorer(config.reward)
    data = load_run_data(config.data, config.seed, cache_folder())
    loaded = load_policy(
        config.model,
        spec,
        temperature=config.rollout.temperature,
        seed=config.seed,
        entropy_gradient=config.algorithm.entropy_coefficient > 0,
    )
    train, train_notes = _encode(
        data.train, "training", loaded.tokenizer, spec, config.data.max_prompt_tokens
    )
    heldout, heldout_notes = _encode(
        data.evaluation, "held-out", loaded.tokenizer, spec, config.data.max_prompt_tokens
    )
    first = ProblemOrder(config.seed, len(train)).batch(0, config.rollout.prompts_per_step)
    if (saved := saved_rollouts(config, loaded.tokenizer)) is not None:
        limits = Sampling("", config.rollout.group_size, config.rollout.max_completion_tokens, version=1)
        saved.check([train[i] for i in first], limits)
    return Materials(
        spec,
        loaded.policy,
        loaded.tokenizer,
        config.reward,
        scorer,
        Judges(AccuracyVerifier(spec), ThinkFormatVerifier(spec)),
        data,
        train,
        heldout,
        (*data.faults, *loaded.notes, *train_notes, *heldout_notes),
    )


def saved_rollouts(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> SavedRollouts | None:
    """What a run trains on again instead of sampling; None where it samples."""
    if config.rollout.replay is None:
        return None
    return SavedRollouts(
        Path(config.rollout.replay),
        partial(decode_completion, tokenizer),
        temperature=config.rollout.temperature,
    )


def _encode(
    problems: Sequence[Problem],
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    spec: FormatSpec,
    max_tokens: int,
) -> tuple[tuple[EncodedPrompt, ...], list[str]]:
    kept, too_long = encode_prompts(problems, tokenizer, spec, max_tokens=max_tokens)
    if not kept:
        raise DataError(
            f"all {len(problems)} {name} prompts are longer than data.max_prompt_tokens={max_tokens}: "
            f"raise it (the first has {len(too_long[0].ids)} tokens)"
        )
    note = f"{len(too_long)} of {len(problems)} {name} prompts left out: over {max_tokens} tokens"
    return tuple(kept), [f"{note} (data.max_prompt_tokens)"] if too_long else []
