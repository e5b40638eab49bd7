"""One GRPO step, from prompts to updated weights: who calls whom. Holds no formula.

    collect (rollout, scores) -> credit (rewards, advantages, credit to tokens) -> update

The rows of a prompt stay on one rank; batch statistics, counts and metrics are over all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from grpo.advantage import Advantages
from grpo.advantager import Advantager
from grpo.collect import Collector, Reserve
from grpo.prompt import EncodedPrompt
from grpo.ranks import sum_over_ranks
from grpo.timings import Timings
from grpo.types import RolloutGroup
from grpo.update import Updater
from rewards.errors import EngineError
from rewards.types import Score, Verdict


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did on this rank: groups and scores[p][g] (P, G), and what came of them.

    moving: (P, G) bool, whose advantages were in the gradient.
    """

    groups: tuple[RolloutGroup, ...]
    scores: tuple[tuple[Score, ...], ...]
    advantages: Advantages
    moving: Tensor
    metrics: dict[str, float]
    timings: Timings


class GrpoLoop:
    """Wires collector, advantager and updater.

    Args:
        max_failed_share: of a step's scores that may fail through our own fault before the run stops.
    """

    def __init__(
        self,
        collector: Collector,
        advantager: Advantager,
        updater: Updater,
        *,
        max_failed_share: float = 0.1,
    ) -> None:
        self.collector = collector
        self.advantager = advantager
        self.updater = updater
        self.max_failed_share = max_failed_share

    def step(self, step: int, prompts: Sequence[EncodedPrompt], reserve: Reserve) -> StepResult:
        """Runs step number `step` (it keys the samples and versions them) on this rank's prompts."""
        timings = Timings()
        with timings.phase("step"):
            collected = self.collector.collect(step, prompts, reserve, timings)
            self._stop_if_scoring_fails(collected.scores)
            credited = self.advantager.credit(collected, timings)
            with timings.phase("update_actor"):
                prompt_ids = [group.prompt_ids for group in collected.groups]
                updated = self.updater.update(prompt_ids, credited.rows, timings)
        metrics = collected.metrics | credited.metrics | updated
        return StepResult(
            collected.groups, collected.scores, credited.advantages, credited.moving, metrics, timings
        )

    def _stop_if_scoring_fails(self, scores: Sequence[Sequence[Score]]) -> None:
        """Counts over all ranks: one that stopped alone would leave the others waiting."""
        flat = [score for row in scores for score in row]
        own = [score for score in flat if score.verdict is Verdict.FAILED]
        failed, total = sum_over_ranks(self.updater.accelerator, [len(own), len(flat)])
        if failed > self.max_failed_share * total:
            reasons = sorted({part.score.reason for score in own for part in score.parts} or {"unknown"})
            raise EngineError(
                f"{failed:.0f} of {total:.0f} scores failed through our own fault ({', '.join(reasons)}): "
                f"more than max_failed_share={self.max_failed_share}. The last checkpoint is whole; "
                "mend the scorer and run the same command again"
            )
