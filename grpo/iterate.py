"""Algorithm 1 around the steps of a run (DeepSeekMath, Shao et al. 2024, arXiv 2402.03300, 4.1.4).

A round is so many steps. Every scored group of it goes into the replay buffer; at its end the buffer gets a
shard, the reference follows the policy, and the reward model trains on, where the run has one. Knows when
these things happen; how a reward model is refitted is grpo.refit. All that a round needs to be repeated to
the same bits is in the checkpoints: `state`, `save`, `restore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from grpo.policy import Policy
from grpo.reference import Following, FrozenReference
from grpo.refit import RewardTrainer
from grpo.summaries import component
from grpo.types import RolloutGroup
from rewards.replay import ReplayBuffer, ReplayGroup
from rewards.types import Score, Verdict

FOLDER = "replay"
"""Of a run's directory: the buffer."""
_OPEN_ROUND = "open_round.parquet"


@dataclass(slots=True)
class Iteration:
    """The outer loop of a run, and where it is.

    Args:
        steps: of a round.
        buffer: None on ranks that write no files.
        policy: the model that is trained, unwrapped.
        reference: of the KL, None without one of its own weights.
        following: when it does.
        trainer: of the reward model, None where none is learned.
        round: from 0.
        begun: the last step before the round.
    """

    steps: int
    buffer: ReplayBuffer | None
    policy: Policy
    reference: FrozenReference | None
    following: Following
    trainer: RewardTrainer | None
    accelerator: Accelerator
    round: int = field(default=0, init=False)
    begun: int = field(default=0, init=False)

    def keep(
        self,
        groups: Sequence[RolloutGroup],
        scores: Sequence[Sequence[Score]],
        right: Sequence[Sequence[bool | None]],
    ) -> None:
        """Puts a step's groups (P, G) of all ranks into the buffer, with the verifier's labels."""
        mine = [
            ReplayGroup(
                tuple(completion.sample for completion in group.completions),
                tuple(own),
                tuple(labels),
                self._version(own),
                self.round,
            )
            for group, own, labels in zip(groups, scores, right, strict=True)
        ]
        everywhere: list[ReplayGroup] = gather_object(mine)
        if self.buffer is not None:
            self.buffer.add(everywhere)

    def end_step(self, step: int, *, last: bool, refit: bool) -> dict[str, float]:
        """Moves the reference if it is time, and ends the round where it is over.

        Args:
            step: the number of the step that was taken.
            last: of the run; its round ends with it.
            refit: an alarm wants a refit: the round ends now.

        Returns:
            `iterate/...`, and at a round's end `replay/...` and `refit/...`; those on the main process only.
        """
        metrics = {"iterate/round": float(self.round)}
        ended = last or refit or step - self.begun == self.steps
        if self.reference is not None and self.following.follow != "never":
            moved = self.following.after_step(self.reference, self.policy, step, round_ended=ended)
            metrics["iterate/reference_moved"] = float(moved)
        if ended:
            metrics |= self._end_round(refit)
            self.round, self.begun = self.round + 1, step
        return metrics

    def state(self) -> dict[str, Any]:
        """Where the loop is, in json values, for a checkpoint."""
        trainer = None if self.trainer is None else self.trainer.state()
        return {"round": self.round, "begun": self.begun, "trainer": trainer}

    def reference_state(self) -> Mapping[str, Tensor]:
        """The weights of a reference that moves; empty without one."""
        return {} if self.reference is None else self.reference.state()

    def save(self, folder: Path) -> None:
        """Writes the groups of the open round into a checkpoint's folder."""
        if self.buffer is not None:
            self.buffer.save_open_round(folder / _OPEN_ROUND)

    def restore(self, folder: Path, state: Mapping[str, Any], reference: Mapping[str, Tensor]) -> None:
        """Goes back to where the checkpoint in the folder was made; what came after is removed."""
        self.round, self.begun = state["round"], state["begun"]
        if self.reference is not None:
            self.reference.load_state(reference)
        if self.buffer is not None:
            self.buffer.rewind(self.round - 1 if self.round else None)
            self.buffer.load_open_round(folder / _OPEN_ROUND)
        if self.trainer is not None:
            self.trainer.restore(state["trainer"])

    def tidy(self) -> None:
        """Deletes what no later step needs; for after a checkpoint, when no earlier one is wanted."""
        if self.buffer is not None:
            self.buffer.drop_evicted()
        if self.trainer is not None:
            self.trainer.forget_replaced()

    def _end_round(self, refit: bool) -> dict[str, float]:
        if self.buffer is None:
            return {}
        self.buffer.finish_round()
        metrics = {"replay/groups": float(len(self.buffer))}
        if self.trainer is not None:
            metrics |= self.trainer.end_round(self.buffer, self.round, asked=refit)
        return metrics

    def _version(self, scores: Sequence[Score]) -> str:
        """Of what paid a group: the learned component where there is one; a failed score may know none."""
        name = None if self.trainer is None else self.trainer.part.name
        own = [score if name is None else component(score, name) for score in scores]
        return next((s.version for s in own if s is not None and s.verdict is not Verdict.FAILED), "")
