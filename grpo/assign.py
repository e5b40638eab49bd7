"""From the scores of a rollout to the rows of an update: who gets which advantage, token by token.

    outcome   every token of a completion gets the completion's advantage
    process   every token gets the credit of the steps that end at or after it (grpo.credit)
    both      the two, each normalised over its own pool, added

Holds no formula. Completions that were not scored, and process credit for completions without steps, are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from grpo.advantage import Advantages
from grpo.batch import pad_rows
from grpo.credit import (
    CreditForm,
    CreditSettings,
    StepBaseline,
    advantage_length_correlation,
    process_advantages,
)
from grpo.offsets import Decode, steps_to_token_ends, token_char_ends
from grpo.types import Completion, RolloutGroup
from grpo.update import TrainRow
from rewards.errors import ConfigError
from rewards.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class CreditPlan:
    """outcome: pay the completion's advantage. process: how steps are credited, None for not at all."""

    outcome: bool
    process: CreditSettings | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """rows: one per completion, in order of groups and samples. metrics: of the process credit."""

    rows: tuple[TrainRow, ...]
    metrics: dict[str, float]


def assign(
    groups: Sequence[RolloutGroup],
    scores: Sequence[Sequence[Score]],
    advantages: Advantages,
    plan: CreditPlan,
    *,
    decode: Decode,
    mask_truncated: bool,
) -> Assignment:
    """The rows of an update.

    Args:
        groups: P groups of G completions.
        scores: (P, G), in the same order.
        advantages: (P, G) of the outcome.
        plan: what is credited.
        decode: token ids -> text, as the samples were decoded.
        mask_truncated: keep completions cut by the limit in the counts and out of the loss.
    """
    token_advantages = [
        [torch.zeros(len(completion.token_ids)) for completion in group.completions] for group in groups
    ]
    metrics: dict[str, float] = {}
    if plan.outcome:
        for p, row in enumerate(token_advantages):
            for g, tokens in enumerate(row):
                tokens += advantages.values[p, g]
    if plan.process is not None:
        _require_steps(scores)
        steps = [_steps(group, row, decode) for group, row in zip(groups, scores, strict=True)]
        for row, group_steps in zip(token_advantages, steps, strict=True):
            credited = process_advantages(
                [s.values for s in group_steps],
                [s.ends for s in group_steps],
                [len(tokens) for tokens in row],
                plan.process,
            )
            for tokens, credit in zip(row, credited, strict=True):
                tokens += credit
        metrics = _process_metrics([s for group_steps in steps for s in group_steps], token_advantages)
    rows = tuple(
        TrainRow(
            p,
            completion.token_ids,
            token_advantages[p][g],
            completion.logprobs,
            not (mask_truncated and completion.sample.truncated),
        )
        for p, group in enumerate(groups)
        for g, completion in enumerate(group.completions)
    )
    return Assignment(rows, metrics)


def _require_steps(scores: Sequence[Sequence[Score]]) -> None:
    scored = [score for row in scores for score in row if score.verdict is Verdict.SCORED]
    if scored and not any(score.steps for score in scored):
        raise ConfigError(
            "credit=process: no score of this step has steps; use a reward with one component that judges "
            "steps, such as reward=verifiable+arithmetic_steps, or credit=outcome"
        )


@dataclass(frozen=True, slots=True)
class _Steps:
    """Step values of a completion and the index of the last token of each; empty where it was not scored."""

    values: list[float]
    ends: list[int]
    tokens: int


def _steps(group: RolloutGroup, scores: Sequence[Score], decode: Decode) -> list[_Steps]:
    return [_completion_steps(c, s, decode) for c, s in zip(group.completions, scores, strict=True)]


def _completion_steps(completion: Completion, score: Score, decode: Decode) -> _Steps:
    tokens = len(completion.token_ids)
    if score.verdict is not Verdict.SCORED or not score.steps:
        return _Steps([], [], tokens)
    char_ends = token_char_ends(completion.token_ids.tolist(), completion.sample.text, decode)
    return _Steps([step.value for step in score.steps], steps_to_token_ends(score.steps, char_ends), tokens)


def _process_metrics(
    steps: Sequence[_Steps], token_advantages: Sequence[Sequence[Tensor]]
) -> dict[str, float]:
    flat = [tokens for row in token_advantages for tokens in row]
    values = [value for s in steps for value in s.values]
    metrics = {
        "prm/steps_mean": fmean(len(s.values) for s in steps),
        "prm/unscored_token_frac": sum(s.tokens for s in steps if not s.values)
        / max(1, sum(s.tokens for s in steps)),
    }
    if values:
        metrics["prm/step_reward_mean"] = fmean(values)
    bad = [first for s in steps if (first := _first_bad(s.values)) is not None]
    if bad:
        metrics["prm/first_bad_step"] = fmean(bad)
    correlation = advantage_length_correlation(
        pad_rows(flat, 0.0, torch.float32), [len(tokens) for tokens in flat]
    )
    return metrics if correlation is None else metrics | {"prm/advantage_length_corr": correlation}


def _first_bad(values: Sequence[float]) -> int | None:
    return next((j for j, value in enumerate(values) if value < 0.5), None)


def credit_plan(source: str, form: CreditForm | None, baseline: StepBaseline | None) -> CreditPlan:
    """The plan of that source: outcome, process or both.

    form and baseline are of grpo.credit, None for outcome.
    """
    if form is None or baseline is None:
        return CreditPlan(True, None)
    return CreditPlan(source != "process", CreditSettings(form=form, baseline=baseline))
