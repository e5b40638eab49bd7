"""One GRPO step, from prompts to updated weights: who calls whom. Holds no formula.

    rollout -> scores -> advantages (P, G) -> credit (rows of tokens) -> update

Finished decode batches go to the scorer at once, in a thread of their own, while the next one decodes. The
rows of a prompt stay on one rank; batch statistics, counts and metrics are over all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import Tensor

from grpo.advantage import Advantages, AdvantageSettings, outcome_advantages
from grpo.prompt import EncodedPrompt
from grpo.ranks import rows_of_ranks
from grpo.rollout.local import LocalEngine, Sampling
from grpo.types import Completion, RolloutGroup
from grpo.update import TrainRow, Updater
from rewards.errors import EngineError
from rewards.scorer import Scorer
from rewards.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """seed: of the run. mask_truncated: completions cut by the limit stay in the counts and out of the loss.

    max_failed_share: of a step's scores that may fail through our own fault before the run stops.
    """

    seed: int
    group_size: int
    max_completion_tokens: int
    mask_truncated: bool = False
    max_failed_share: float = 0.1


@dataclass(slots=True)
class Timings:
    """Seconds by phase, under the field's names."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time inside the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did on this rank.

    Groups and scores[p][g] (P, G), their advantages, metrics of the update.
    """

    groups: tuple[RolloutGroup, ...]
    scores: tuple[tuple[Score, ...], ...]
    advantages: Advantages
    metrics: dict[str, float]
    timings: Timings


class GrpoLoop:
    """Wires rollout engine, scorer and updater."""

    def __init__(
        self,
        engine: LocalEngine,
        scorer: Scorer,
        updater: Updater,
        advantage: AdvantageSettings,
        settings: LoopSettings,
        *,
        accelerator: Accelerator,
    ) -> None:
        self.engine = engine
        self.scorer = scorer
        self.updater = updater
        self.advantage = advantage
        self.settings = settings
        self.accelerator = accelerator

    def step(self, step: int, prompts: Sequence[EncodedPrompt]) -> StepResult:
        """Runs step number `step` (it keys the samples and versions them) on this rank's prompts."""
        timings = Timings()
        with timings.phase("step"):
            groups, scores = self._rollout(step, prompts, timings)
            self._stop_if_scoring_fails(scores)
            advantages = self._advantages(scores)
            rows = to_rows(groups, advantages, mask_truncated=self.settings.mask_truncated)
            with timings.phase("update_actor"):
                metrics = self.updater.update([group.prompt_ids for group in groups], rows)
        return StepResult(groups, scores, advantages, metrics, timings)

    def _rollout(
        self, step: int, prompts: Sequence[EncodedPrompt], timings: Timings
    ) -> tuple[tuple[RolloutGroup, ...], tuple[tuple[Score, ...], ...]]:
        sampling = Sampling(
            f"{self.settings.seed}/train/{step}",
            self.settings.group_size,
            self.settings.max_completion_tokens,
            version=step,
        )
        groups: list[RolloutGroup] = []
        pending: list[Future[list[Score]]] = []
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer") as scoring:
            with timings.phase("gen"):
                for batch in self.engine.generate(prompts, sampling):
                    groups.extend(batch)
                    pending.append(scoring.submit(score_completions, self.scorer, batch))
            with timings.phase("reward"):  # what decoding did not hide
                flat = [score for future in pending for score in future.result()]
        size = self.settings.group_size
        return tuple(groups), tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))

    def _advantages(self, scores: Sequence[Sequence[Score]]) -> Advantages:
        """Over the rewards of all ranks, so that batch statistics are the step's.

        Returns this rank's rows.
        """
        rewards, weights = reward_tensor(scores, apart=self.advantage.combine == "normalize_then_sum")
        whole = outcome_advantages(rows_of_ranks(self.accelerator, rewards), self.advantage, weights=weights)
        start = self.accelerator.process_index * len(scores)
        mine = slice(start, start + len(scores))
        return Advantages(whole.values[mine], whole.valid[mine], whole.zero_signal[mine])

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


def score_completions(scorer: Scorer, groups: Sequence[RolloutGroup]) -> list[Score]:
    """The scores of all completions of the groups, in order.

    Raises:
        EngineError: when the scorer breaks its contract on the number of scores.
    """
    samples = [completion.sample for group in groups for completion in group.completions]
    scores = scorer.score(samples)
    if len(scores) != len(samples):
        raise EngineError(f"{type(scorer).__name__} returned {len(scores)} scores for {len(samples)} samples")
    return scores


def reward_tensor(
    scores: Sequence[Sequence[Score]], *, apart: bool
) -> tuple[Tensor, tuple[float, ...] | None]:
    """Scores -> (P, G) float64 rewards, NaN where not scored.

    Apart: (P, G, C) paid parts, weighted, and C ones.

    A part that a gate closed was paid at weight 0, so its paid value is 0.
    """
    if not apart:
        return torch.tensor(
            [[_value(score.value) for score in row] for row in scores], dtype=torch.float64
        ), None
    parts = [
        [[_value(part.score.value) * part.weight for part in score.parts] for score in row] for row in scores
    ]
    tensor = torch.tensor(parts, dtype=torch.float64)
    failed = torch.tensor([[score.verdict is not Verdict.SCORED for score in row] for row in scores])
    return tensor.masked_fill(failed[..., None], float("nan")), (1.0,) * tensor.shape[2]


def to_rows(
    groups: Sequence[RolloutGroup], advantages: Advantages, *, mask_truncated: bool
) -> list[TrainRow]:
    """Outcome credit: every token of a completion gets the completion's advantage."""
    rows: list[TrainRow] = []
    for p, group in enumerate(groups):
        for g, completion in enumerate(group.completions):
            value = float(advantages.values[p, g])
            rows.append(_row(p, completion, value, not (mask_truncated and completion.sample.truncated)))
    return rows


def _row(prompt: int, completion: Completion, advantage: float, trained: bool) -> TrainRow:
    return TrainRow(
        prompt,
        completion.token_ids,
        torch.full((len(completion.token_ids),), advantage),
        completion.logprobs,
        trained,
    )


def _value(value: float | None) -> float:
    return float("nan") if value is None else value
