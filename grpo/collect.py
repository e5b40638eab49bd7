"""Rollout and scores of one step: groups are sampled, scored while the next ones decode, replaced if silent.

Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups whose completions are all right or all wrong
teach nothing, so other prompts are sampled in their place, for a bounded number of rounds. What counts is the
accuracy component where the reward has one: a length penalty on top would make every group look mixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from grpo.advantage import constant_groups
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import Sampling
from grpo.summaries import ACCURACY, component
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
class Collected:
    """groups and scores[p][g], (P, G). metrics: of dynamic sampling, empty without it."""

    groups: tuple[RolloutGroup, ...]
    scores: tuple[tuple[Score, ...], ...]
    metrics: dict[str, float]


class Collector:
    """Samples and scores the groups of a step.

    Args:
        seed: of the run; with the step it keys every sample.
        extra_rounds: of dynamic sampling at most; 0 for none.
    """

    def __init__(
        self,
        engine: Engine,
        scorer: Scorer,
        *,
        seed: int,
        group_size: int,
        max_tokens: int,
        extra_rounds: int = 0,
    ) -> None:
        self.engine = engine
        self.scorer = scorer
        self.seed = seed
        self.group_size = group_size
        self.max_tokens = max_tokens
        self.extra_rounds = extra_rounds

    def collect(
        self, step: int, prompts: Sequence[EncodedPrompt], reserve: Reserve, timings: Timings
    ) -> Collected:
        """As many groups as prompts; silent ones are replaced while rounds last, and kept after."""
        groups, scores = self._sample(f"{self.seed}/train/{step}", step, prompts, timings)
        if self.extra_rounds == 0:
            return Collected(groups, scores, {})
        pairs = list(zip(groups, scores, strict=True))
        used = {group.problem.id for group in groups}
        sampled, rounds = len(pairs), 0
        speaking = [pair for pair in pairs if not is_silent(pair[1])]
        silent = [pair for pair in pairs if is_silent(pair[1])]
        while len(speaking) < len(prompts) and rounds < self.extra_rounds:
            rounds += 1
            fresh = [prompt for prompt in reserve(rounds) if prompt.problem.id not in used]
            if not fresh:
                continue
            used |= {prompt.problem.id for prompt in fresh}
            more = zip(*self._sample(f"{self.seed}/train/{step}/{rounds}", step, fresh, timings), strict=True)
            for pair in more:
                (silent if is_silent(pair[1]) else speaking).append(pair)
                sampled += 1
        chosen = (speaking + silent)[: len(prompts)]
        metrics = {"rollout/extra_rounds": float(rounds), "rollout/groups_sampled": float(sampled)}
        return Collected(tuple(group for group, _ in chosen), tuple(row for _, row in chosen), metrics)

    def _sample(
        self, key: str, version: int, prompts: Sequence[EncodedPrompt], timings: Timings
    ) -> tuple[tuple[RolloutGroup, ...], tuple[tuple[Score, ...], ...]]:
        sampling = Sampling(key, self.group_size, self.max_tokens, version=version)
        groups: list[RolloutGroup] = []
        pending: list[Future[list[Score]]] = []
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer") as scoring:
            with timings.phase("gen"):
                for batch in self.engine.generate(prompts, sampling):
                    groups.extend(batch)
                    pending.append(scoring.submit(score_completions, self.scorer, batch))
            with timings.phase("reward"):  # what decoding did not hide
                flat = [score for future in pending for score in future.result()]
        starts = range(0, len(flat), self.group_size)
        return tuple(groups), tuple(tuple(flat[i : i + self.group_size]) for i in starts)


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
