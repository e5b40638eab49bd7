"""How far the policy has gone: its KL from the policy it started as, on a part of a step's completions.

The start policy is not the reference of the KL term, which may move (iterative GRPO) or not be there at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelerate import Accelerator

from grpo.penalty import KlRows
from grpo.ranks import sum_over_ranks
from grpo.reference import Reference
from grpo.types import RolloutGroup


@dataclass(frozen=True, slots=True)
class Drift:
    """Measures `watch/kl` and `watch/kl_completion`.

    start: the policy as it started. rows: completions measured a step, over all ranks. rows_at_once,
    tokens_at_once: completions and their tokens of one forward at most; they change memory only.
    """

    start: Reference
    rows: int
    rows_at_once: int
    pad_id: int
    accelerator: Accelerator
    tokens_at_once: int | None = None

    def measure(self, groups: Sequence[RolloutGroup]) -> dict[str, float]:
        """KL(policy || start) in nats by k3, of the policy that sampled: a token, and summed a completion.

        The mean of k3 = e^d - d - 1 over samples is the KL, and it is never negative, so that its root can be
        drawn. groups: this rank's; completions are taken at even distances. Collective over ranks.
        """
        flat = [(p, completion) for p, group in enumerate(groups) for completion in group.completions]
        wanted = min(len(flat), -(-self.rows // self.accelerator.num_processes))
        chosen = [flat[i * len(flat) // wanted] for i in range(wanted)]
        measured = KlRows(
            self.start, "k3", self.rows_at_once, self.pad_id, self.accelerator.device, self.tokens_at_once
        )
        nats = measured.estimate([group.prompt_ids for group in groups], chosen)
        mine = [float(nats.sum()), float(sum(len(c.token_ids) for _, c in chosen)), float(wanted)]
        total, tokens, completions = sum_over_ranks(self.accelerator, mine)
        return {"watch/kl": total / tokens, "watch/kl_completion": total / completions}
