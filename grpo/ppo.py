"""PPO's advantages: each token against what a value model expected, by GAE. Holds no formula.

    values -> rewards of tokens (score at the end, KL on each) -> advantages and returns -> fit of the values

DeepSeekMath (arXiv 2402.03300) equations 1 and 2. The rest of the step (sampling, clipped surrogate, updates)
is the loop's, as for GRPO.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from grpo.advantage import Advantages
from grpo.advantager import Credited, total_rewards
from grpo.collect import Collected
from grpo.critic import Critic, episodes_of
from grpo.penalty import KlPenalty
from grpo.ranks import max_over_ranks, rows_of_ranks
from grpo.timings import Timings
from grpo.update import TrainRow
from grpo.value import gae, token_rewards, whiten


@dataclass(frozen=True, slots=True)
class GaeSettings:
    """gamma, lam: of `grpo.value.gae`. whiten: advantages to mean 0 and deviation 1 over the step's tokens.

    mask_truncated: completions cut by the limit stay in the counts and out of both losses.
    """

    gamma: float
    lam: float
    whiten: bool
    mask_truncated: bool = False


class ValueAdvantager:
    """The advantage of a token over a value model, which learns from the same completions.

    Args:
        penalty: the KL in the reward of every token, None where there is none or it is in the loss.
    """

    def __init__(
        self,
        critic: Critic,
        settings: GaeSettings,
        *,
        accelerator: Accelerator,
        penalty: KlPenalty | None = None,
    ) -> None:
        self.critic = critic
        self.settings = settings
        self.accelerator = accelerator
        self.penalty = penalty

    def credit(self, collected: Collected, timings: Timings) -> Credited:
        """The rows of a step. The values are those before the value model learns from it.

        A completion that was not scored has advantage 0 and teaches the value model nothing.
        """
        rows = episodes_of(collected.groups)
        completions = [completion for group in collected.groups for completion in group.completions]
        rewards = total_rewards(collected.scores)
        scored = ~rewards.isnan().reshape(-1)
        cut = torch.tensor([completion.sample.truncated for completion in completions])
        trained = ~cut if self.settings.mask_truncated else torch.ones_like(cut)
        with timings.phase("values"):
            values = self.critic.values(rows)
        with timings.phase("adv"):
            mask = rows.mask() & scored[:, None]
            charges, charged = self._charges(collected, mask, timings)
            paid = token_rewards(rewards.reshape(-1), charges, mask)
            advantages, returns = gae(paid, values, mask, self.settings.gamma, self.settings.lam)
            advantages, quality = self._over_step(advantages, values, returns, mask)
        with timings.phase("update_critic"):
            fitted = self.critic.fit(rows, values, returns, scored & trained)
        train_rows = tuple(
            TrainRow(p, c.token_ids, a[: len(c.token_ids)].clone(), c.logprobs, bool(t))
            for p, c, a, t in zip(rows.prompt_of_row, completions, advantages, trained, strict=True)
        )
        return Credited(_means(advantages, mask, rewards.shape), train_rows, charged | quality | fitted)

    def _charges(
        self, collected: Collected, mask: Tensor, timings: Timings
    ) -> tuple[Tensor, dict[str, float]]:
        if self.penalty is None:
            return torch.zeros(mask.shape), {}
        with timings.phase("ref", out_of="adv"):
            return self.penalty.charge(collected.groups)

    def _over_step(
        self, advantages: Tensor, values: Tensor, returns: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """This rank's advantages, whitened over all ranks where asked for, and how good the values were."""
        width = int(max_over_ranks(self.accelerator, mask.shape[1]))
        mine = torch.stack([advantages, values, returns, mask.float()], dim=1)
        whole = rows_of_ranks(self.accelerator, nn.functional.pad(mine, (0, width - mask.shape[1])))
        a, v, r, m = whole.unbind(1)
        metrics = _quality(v[m.bool()].double(), r[m.bool()].double())
        if not self.settings.whiten:
            return advantages, metrics
        start = self.accelerator.process_index * len(mask)
        return whiten(a, m.bool())[start : start + len(mask), : mask.shape[1]], metrics


def _quality(values: Tensor, returns: Tensor) -> dict[str, float]:
    """Means, and the share of the returns' variance that the values explain, left out where it is 0."""
    if values.numel() == 0:
        return {}
    metrics = {"critic/value_mean": float(values.mean()), "critic/return_mean": float(returns.mean())}
    variance = float(returns.var(correction=0))
    if variance > 0:
        metrics["critic/explained_variance"] = 1 - float((returns - values).var(correction=0)) / variance
    return metrics


def _means(advantages: Tensor, mask: Tensor, shape: torch.Size) -> Advantages:
    """For files and screens: a completion's mean over its tokens."""
    means = (advantages.sum(1) / mask.sum(1).clamp(min=1)).reshape(shape)
    return Advantages(means, mask.any(1).reshape(shape), (means == 0).all(1))
