"""One GRPO step, from prompts to updated weights: who calls whom. Holds no formula.

    collect (rollout, scores) -> pay (rewards, advantages) -> assign (credit to tokens) -> update

The rows of a prompt stay on one rank; batch statistics, counts and metrics are over all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.advantage import Advantages, AdvantageSettings, outcome_advantages
from grpo.assign import CreditPlan, assign
from grpo.collect import Collected, Collector, Reserve, Timings
from grpo.offsets import Decode
from grpo.penalty import KlPenalty
from grpo.prompt import EncodedPrompt
from grpo.ranks import rows_of_ranks
from grpo.types import RolloutGroup
from grpo.update import Updater
from rewards.errors import EngineError
from rewards.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What is paid and credited.

    weights: of the reward's components by name, used where each is normalised apart. mask_truncated:
    completions cut by the limit stay in the counts and out of the loss. max_failed_share: of a step's scores
    that may fail through our own fault before the run stops.
    """

    advantage: AdvantageSettings
    credit: CreditPlan
    weights: Mapping[str, float]
    mask_truncated: bool = False
    max_failed_share: float = 0.1


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did on this rank: groups and scores[p][g] (P, G), and what came of them."""

    groups: tuple[RolloutGroup, ...]
    scores: tuple[tuple[Score, ...], ...]
    advantages: Advantages
    metrics: dict[str, float]
    timings: Timings


class GrpoLoop:
    """Wires collector, credit and updater.

    Args:
        decode: token ids -> text, as the engine decodes samples.
        penalty: the KL in the reward, None where there is none or it is in the loss.
    """

    def __init__(
        self,
        collector: Collector,
        updater: Updater,
        settings: LoopSettings,
        *,
        decode: Decode,
        accelerator: Accelerator,
        penalty: KlPenalty | None = None,
    ) -> None:
        self.collector = collector
        self.updater = updater
        self.settings = settings
        self.decode = decode
        self.accelerator = accelerator
        self.penalty = penalty

    def step(self, step: int, prompts: Sequence[EncodedPrompt], reserve: Reserve) -> StepResult:
        """Runs step number `step` (it keys the samples and versions them) on this rank's prompts."""
        timings = Timings()
        with timings.phase("step"):
            collected = self.collector.collect(step, prompts, reserve, timings)
            self._stop_if_scoring_fails(collected.scores)
            with timings.phase("adv"):
                advantages, charged = self._advantages(collected)
                assigned = assign(
                    collected.groups,
                    collected.scores,
                    advantages,
                    self.settings.credit,
                    decode=self.decode,
                    mask_truncated=self.settings.mask_truncated,
                )
            with timings.phase("update_actor"):
                updated = self.updater.update([group.prompt_ids for group in collected.groups], assigned.rows)
        metrics = collected.metrics | charged | assigned.metrics | updated
        return StepResult(collected.groups, collected.scores, advantages, metrics, timings)

    def _advantages(self, collected: Collected) -> tuple[Advantages, dict[str, float]]:
        """This rank's rows of advantages over all ranks, so that batch statistics are the step's."""
        weights: list[float] | None = None
        metrics: dict[str, float] = {}
        if self.settings.advantage.combine == "normalize_then_sum":
            paid = {name: weight for name, weight in self.settings.weights.items() if weight != 0}
            rewards, weights = part_rewards(collected.scores, list(paid)), list(paid.values())
        else:
            rewards = total_rewards(collected.scores)
        if self.penalty is not None:
            charge = self.penalty.charge(collected.groups)
            rewards = rewards - charge
            metrics["reward/kl_charge"] = float(charge.mean())
        whole = outcome_advantages(
            rows_of_ranks(self.accelerator, rewards), self.settings.advantage, weights=weights
        )
        start = self.accelerator.process_index * len(collected.scores)
        mine = slice(start, start + len(collected.scores))
        return Advantages(whole.values[mine], whole.valid[mine], whole.zero_signal[mine]), metrics

    def _stop_if_scoring_fails(self, scores: Sequence[Sequence[Score]]) -> None:
        flat = [score for row in scores for score in row]
        failed = [score for score in flat if score.verdict is Verdict.FAILED]
        if len(failed) > self.settings.max_failed_share * len(flat):
            reasons = sorted({part.score.reason for score in failed for part in score.parts} or {"unknown"})
            raise EngineError(
                f"{len(failed)} of {len(flat)} scores failed through our own fault ({', '.join(reasons)}): "
                f"more than max_failed_share={self.settings.max_failed_share}. The last checkpoint is whole; "
                "mend the scorer and run the same command again"
            )


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
