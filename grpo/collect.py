"""Rollout and scores of one step: groups are sampled, scored while the next ones decode, replaced if silent.

Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups whose completions are all right or all wrong
teach nothing, so other prompts are sampled in their place, for a bounded number of rounds. What counts is the
accuracy component where the reward has one: a length penalty on top would make every group look mixed. The
choice is made over all ranks: one process and several train on the same groups, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from grpo.advantage import constant_groups
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import Sampling
from grpo.summaries import ACCURACY, component
from grpo.timings import Timings
from grpo.types import RolloutGroup
from rewards.errors import EngineError
from rewards.scorer import Scorer
from rewards.types import Score

Reserve = Callable[[int], Sequence[EncodedPrompt]]
"""Round number (1, 2, ...) -> further prompts of the step, a function of the step and the round alone."""


class Engine(Protocol):
    """Whatever samples: yields whole groups in prompt order, as soon as they are done."""

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """The groups of the prompts."""
        ...


@dataclass(frozen=True, slots=True)
class DynamicSampling:
    """rounds: at most, beyond the first. accelerator: of the ranks that share a step."""

    rounds: int
    accelerator: Accelerator


@dataclass(frozen=True, slots=True)
class Collected:
    """groups and scores[p][g], (P, G). metrics: of dynamic sampling, empty without it."""

    groups: tuple[RolloutGroup, ...]
    scores: tuple[tuple[Score, ...], ...]
    metrics: dict[str, float]


class Collector:
    """Samples and scores the groups of a step.

    Args:
        seed: of the run; with the step it keys every sample.
        dynamic: how silent groups are replaced; None keeps them.
    """

    def __init__(
        self,
        engine: Engine,
        scorer: Scorer,
        *,
        seed: int,
        group_size: int,
        max_tokens: int,
        dynamic: DynamicSampling | None = None,
    ) -> None:
        self.engine = engine
        self.scorer = scorer
        self.seed = seed
        self.group_size = group_size
        self.max_tokens = max_tokens
        self.dynamic = dynamic

    def collect(
        self, step: int, prompts: Sequence[EncodedPrompt], reserve: Reserve, timings: Timings
    ) -> Collected:
        """As many groups as prompts; silent ones are replaced while rounds last, and kept after.

        With dynamic sampling every rank has equally many prompts, and which rank a group is trained on is
        decided at the end: a rank with groups to spare gives them to one that lacks some.
        """
        first = self._sample(f"{self.seed}/train/{step}", step, prompts, timings)
        if self.dynamic is None:
            return _collected(first, {})
        mine = {group.problem.id: (group, scores) for group, scores in first}
        silent = _silence(first)
        wanted, rounds = len(silent), 0
        while rounds < self.dynamic.rounds and list(silent.values()).count(False) < wanted:
            rounds += 1
            fresh = [prompt for prompt in reserve(rounds) if prompt.problem.id not in silent]
            more = self._sample(f"{self.seed}/train/{step}/{rounds}", step, fresh, timings)
            mine |= {group.problem.id: (group, scores) for group, scores in more}
            silent |= _silence(more)
        chosen = sorted(silent, key=lambda problem: silent[problem])[:wanted]  # in the order they were found
        kept = dict(gather_object([(problem, mine[problem]) for problem in chosen if problem in mine]))
        share = wanted // self.dynamic.accelerator.num_processes
        own = chosen[self.dynamic.accelerator.process_index * share :][:share]
        metrics = {"rollout/extra_rounds": float(rounds), "rollout/groups_sampled": float(len(silent))}
        return _collected([kept[problem] for problem in own], metrics)

    def _sample(
        self, key: str, version: int, prompts: Sequence[EncodedPrompt], timings: Timings
    ) -> list[_Pair]:
        """A group a prompt, with its scores."""
        if not prompts:
            return []
        sampling = Sampling(key, self.group_size, self.max_tokens, version=version)
        groups: list[RolloutGroup] = []
        pending: list[Future[list[Score]]] = []
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer") as scoring:
            with timings.phase("gen"):
                for batch in self.engine.generate(prompts, sampling):
                    groups.extend(batch)
                    pending.append(scoring.submit(self._score, batch, timings))
            with timings.phase("reward"):  # what decoding did not hide
                flat = [score for future in pending for score in future.result()]
        starts = range(0, len(flat), self.group_size)
        return list(zip(groups, [tuple(flat[i : i + self.group_size]) for i in starts], strict=True))

    def _score(self, batch: Sequence[RolloutGroup], timings: Timings) -> list[Score]:
        with timings.phase("scorer"):
            return score_completions(self.scorer, batch)


_Pair = tuple[RolloutGroup, tuple[Score, ...]]
"""A group and its scores."""


def _collected(pairs: Sequence[_Pair], metrics: dict[str, float]) -> Collected:
    return Collected(tuple(group for group, _ in pairs), tuple(scores for _, scores in pairs), metrics)


def _silence(pairs: Sequence[_Pair]) -> dict[str, bool]:
    """Whether each group of all ranks is silent, by problem id in the order of the step's prompts."""
    return dict(gather_object([(group.problem.id, is_silent(scores)) for group, scores in pairs]))


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


def is_silent(scores: Sequence[Score]) -> bool:
    """Whether the unshaped rewards of a group are all equal, or fewer than two are known."""
    unshaped = [component(score, ACCURACY) or score for score in scores]
    values = torch.tensor(
        [[float("nan") if s.value is None else s.value for s in unshaped]], dtype=torch.float64
    )
    valid = ~values.isnan()
    return bool(constant_groups(values.nan_to_num(), valid)[0])
