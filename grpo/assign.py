"""From the scores of a rollout to the rows of an update: who gets which advantage, token by token.

    outcome   every token of a completion gets the completion's advantage
    process   every token gets the credit of the steps that end at or after it (grpo.credit)
    both      the two, each normalised over its own pool, added

Holds no formula. Completions that were not scored, and process credit for completions without steps, are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import torch
from torch import Tensor

from grpo.advantage import Advantages
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
    """rows: one per completion, in order of groups and samples. facts: of process credit, else None.

    facts: (B, 6) float64, what `process_metrics` and `require_steps` need of each row.
    """

    rows: tuple[TrainRow, ...]
    facts: Tensor | None


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
        advantages: (P, G) of the outcome, not read where the plan does not pay it.
        plan: what is credited.
        decode: token ids -> text, as the samples were decoded.
        mask_truncated: keep completions cut by the limit in the counts and out of the loss.
    """
    token_advantages = [
        [torch.zeros(len(completion.token_ids)) for completion in group.completions] for group in groups
    ]
    facts: Tensor | None = None
    if plan.outcome:
        for p, row in enumerate(token_advantages):
            for g, tokens in enumerate(row):
                tokens += advantages.values[p, g]
    if plan.process is not None:
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
        facts = _facts(
            [s for group_steps in steps for s in group_steps],
            [tokens for row in token_advantages for tokens in row],
        )
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
    return Assignment(rows, facts)


def mean_advantages(rows: Sequence[TrainRow], outcome: Advantages) -> Advantages:
    """Of rows whose tokens differ: a completion's mean over its tokens, for files and screens.

    outcome: (P, G), says which were scored.
    """
    means = torch.stack([row.advantages.sum() / max(1, len(row.advantages)) for row in rows])
    silent = torch.tensor([not bool((row.advantages != 0).any()) for row in rows])
    shape = outcome.valid.shape
    return Advantages(means.reshape(shape), outcome.valid, silent.reshape(shape).all(1))


@dataclass(frozen=True, slots=True)
class _Steps:
    """Step values of a completion and the index of the last token of each; empty where it was not scored.

    stepless: its text was judged, and not by one component of its reward that gives steps.
    """

    values: list[float]
    ends: list[int]
    tokens: int
    stepless: bool = False


def _steps(group: RolloutGroup, scores: Sequence[Score], decode: Decode) -> list[_Steps]:
    return [_completion_steps(c, s, decode) for c, s in zip(group.completions, scores, strict=True)]


def _completion_steps(completion: Completion, score: Score, decode: Decode) -> _Steps:
    tokens = len(completion.token_ids)
    if score.verdict is not Verdict.SCORED or not score.steps:
        judged = score.verdict is Verdict.SCORED and completion.sample.text != ""
        # The steps of one component may be missing here: a gate could not judge the problem.
        stepped = sum(bool(part.score.steps) for part in score.parts)
        return _Steps([], [], tokens, judged and stepped != 1)
    char_ends = token_char_ends(completion.token_ids.tolist(), completion.sample.text, decode)
    return _Steps([step.value for step in score.steps], steps_to_token_ends(score.steps, char_ends), tokens)


def _facts(steps: Sequence[_Steps], advantages: Sequence[Tensor]) -> Tensor:
    """(B, 6): steps, sum of their values, index of the first bad one or -1, tokens, advantage, stepless."""
    rows = [
        [
            len(s.values),
            fsum(s.values),
            next((j for j, value in enumerate(s.values) if value < 0.5), -1),
            s.tokens,
            float(tokens.double().sum()),
            s.stepless,
        ]
        for s, tokens in zip(steps, advantages, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def require_steps(facts: Tensor) -> None:
    """Refuses scores to which no component, or more than one, gave steps.

    facts: (B, 6) of all ranks, so that all of them refuse.
    """
    steps, *_, stepless = facts.T
    if bool(stepless.any()) and not bool(steps.any()):
        raise ConfigError(
            "credit=process: no score of this step has steps; use a reward with one component that judges "
            "steps, such as reward=verifiable+arithmetic_steps, or credit=outcome"
        )


def process_metrics(facts: Tensor) -> dict[str, float]:
    """`prm/...` of a step. facts: (B, 6) of all ranks."""
    steps, sums, first_bad, tokens, advantages, _ = facts.T
    metrics = {
        "prm/steps_mean": float(steps.mean()),
        "prm/unscored_token_frac": float(tokens[steps == 0].sum() / tokens.sum().clamp(min=1)),
    }
    if bool(steps.any()):
        metrics["prm/step_reward_mean"] = float(sums.sum() / steps.sum())
    if bool((first_bad >= 0).any()):
        metrics["prm/first_bad_step"] = float(first_bad[first_bad >= 0].mean())
    correlation = advantage_length_correlation(advantages[:, None], [int(n) for n in tokens])
    return metrics if correlation is None else metrics | {"prm/advantage_length_corr": correlation}


def credit_plan(source: str, form: CreditForm | None, baseline: StepBaseline | None) -> CreditPlan:
    """The plan of that source: outcome, process or both.

    form and baseline are of grpo.credit, None for outcome.
    """
    if form is None or baseline is None:
        return CreditPlan(True, None)
    return CreditPlan(source != "process", CreditSettings(form=form, baseline=baseline))
