"""From the scores of a step to the rows of its update: rewards, advantages, credit to tokens.

The loop knows one call, `Advantager.credit`. Here is the group's: each completion is compared with the others
of its prompt (GRPO and its kin). `grpo.ppo` has the other: each token is compared with what a value model
expected. Holds no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.advantage import Advantages, AdvantageSettings, outcome_advantages
from grpo.assign import CreditPlan, assign, mean_advantages, process_metrics, require_steps
from grpo.collect import Collected, Timings
from grpo.offsets import Decode
from grpo.penalty import KlPenalty
from grpo.ranks import rows_of_ranks
from grpo.update import TrainRow
from rewards.errors import ConfigError
from rewards.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class Credited:
    """rows: one a completion, in order of groups and samples.

    advantages: (P, G) for files and screens, of the rows: a mean where the tokens of a completion differ.
    """

    advantages: Advantages
    rows: tuple[TrainRow, ...]
    metrics: dict[str, float]

    @property
    def moving(self) -> Tensor:
        """(P, G) bool: whose advantages are in the gradient."""
        moving = [row.trained and bool((row.advantages != 0).any()) for row in self.rows]
        return torch.tensor(moving).reshape(self.advantages.values.shape)


class Advantager(Protocol):
    """Decides what every token of a step is worth. Called once a step, on every rank."""

    def credit(self, collected: Collected, timings: Timings) -> Credited:
        """The rows to learn from; whatever else learns from the scores (a value model) learns here."""
        ...


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What is compared and credited.

    weights: of the reward's components by name, used where each is normalised apart. mask_truncated:
    completions cut by the limit stay in the counts and out of the loss.
    """

    advantage: AdvantageSettings
    credit: CreditPlan
    weights: Mapping[str, float]
    mask_truncated: bool = False


class GroupAdvantager:
    """The advantage of a completion over its group, or over the step.

    Args:
        decode: token ids -> text, as the engine decodes samples.
        penalty: the KL in the reward, None where there is none or it is in the loss.

    Raises:
        ConfigError: for a penalty where completions are not paid: it would reach no token.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        decode: Decode,
        accelerator: Accelerator,
        penalty: KlPenalty | None = None,
    ) -> None:
        if penalty is not None and not settings.credit.outcome:
            raise ConfigError("penalty: credit to steps alone pays no completion whose KL could be charged")
        self.settings = settings
        self.decode = decode
        self.accelerator = accelerator
        self.penalty = penalty

    def credit(self, collected: Collected, timings: Timings) -> Credited:
        """The rows of a step."""
        with timings.phase("adv"):
            outcome, metrics = self._outcome(collected)
            assigned = assign(
                collected.groups,
                collected.scores,
                outcome,
                self.settings.credit,
                decode=self.decode,
                mask_truncated=self.settings.mask_truncated,
            )
            if assigned.facts is None:
                return Credited(outcome, assigned.rows, metrics)
            facts = rows_of_ranks(self.accelerator, assigned.facts)
            require_steps(facts)
        advantages = mean_advantages(assigned.rows, outcome)
        return Credited(advantages, assigned.rows, metrics | process_metrics(facts))

    def _outcome(self, collected: Collected) -> tuple[Advantages, dict[str, float]]:
        """This rank's rows of advantages over all ranks, so that batch statistics are the step's.

        All 0 where completions are not paid.
        """
        if not self.settings.credit.outcome:
            scored = ~total_rewards(collected.scores).isnan()
            return Advantages(torch.zeros(scored.shape), scored, torch.ones(len(scored)).bool()), {}
        weights: list[float] | None = None
        metrics: dict[str, float] = {}
        if self.settings.advantage.combine == "normalize_then_sum":
            paid = {name: weight for name, weight in self.settings.weights.items() if weight != 0}
            rewards, weights = part_rewards(collected.scores, list(paid)), list(paid.values())
        else:
            rewards = total_rewards(collected.scores)
        if self.penalty is not None:
            charges, metrics = self.penalty.charge(collected.groups)
            rewards = rewards - charges.sum(1).reshape(rewards.shape)
        whole = outcome_advantages(
            rows_of_ranks(self.accelerator, rewards), self.settings.advantage, weights=weights
        )
        start = self.accelerator.process_index * len(collected.scores)
        mine = slice(start, start + len(collected.scores))
        return Advantages(whole.values[mine], whole.valid[mine], whole.zero_signal[mine]), metrics


def total_rewards(scores: Sequence[Sequence[Score]]) -> Tensor:
    """(P, G) float64 rewards as paid, NaN where not scored."""
    return torch.tensor([[_value(score.value) for score in row] for row in scores], dtype=torch.float64)


def part_rewards(scores: Sequence[Sequence[Score]], names: Sequence[str]) -> Tensor:
    """(P, G, C) float64 unweighted values of the named components, NaN where not scored.

    A part that a gate closed was paid at weight 0: it is worth 0. A score that is not SCORED is NaN in all.
    """
    return torch.tensor([[_parts(score, names) for score in row] for row in scores], dtype=torch.float64)


def _parts(score: Score, names: Sequence[str]) -> list[float]:
    if score.verdict is not Verdict.SCORED:
        return [float("nan")] * len(names)
    parts = {part.name: part for part in score.parts}
    return [_value(parts[n].score.value) if parts[n].weight != 0 else 0.0 for n in names]


def _value(value: float | None) -> float:
    return float("nan") if value is None else value
