"""Held-out accuracy of the policy as it is: sampled at the training temperature, and greedy.

The verifiers measure whatever is paid: accuracy and format are reported also where the reward holds neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from accelerate import Accelerator
from accelerate.utils import gather_object

from grpo.prompt import EncodedPrompt
from grpo.rollout.local import LocalEngine, Sampling
from grpo.verdicts import passed
from rewards.intervals import wilson_interval
from rewards.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Judges:
    """Who measures: accuracy decides what is right, layout whether the format was kept."""

    accuracy: Scorer
    layout: Scorer


@dataclass(frozen=True, slots=True)
class Outcome:
    """One held-out problem.

    Right answers of k samples, whether the greedy one was right, and how they looked.

    None: the problem could not be judged.
    """

    right: tuple[bool | None, ...]
    greedy: bool | None
    formatted: tuple[bool | None, ...]
    lengths: tuple[int, ...]
    truncated: tuple[bool, ...]


def measure(
    engine: LocalEngine,
    prompts: Sequence[EncodedPrompt],
    judges: Judges,
    *,
    sampling: Sampling,
    accelerator: Accelerator,
) -> dict[str, float]:
    """Metrics `eval/heldout/...` over all ranks' shares of the prompts.

    sampling.group_size is k of pass@k. The key is fixed by the caller, so that two measurements differ by the
    policy and not by the draw.
    """
    mine = prompts[accelerator.process_index :: accelerator.num_processes]
    greedy = Sampling(sampling.key, 1, sampling.max_tokens, greedy=True, version=sampling.version)
    sampled_groups = [group for batch in engine.generate(mine, sampling) for group in batch]
    greedy_groups = [group for batch in engine.generate(mine, greedy) for group in batch]
    right = passed(judges.accuracy, sampled_groups)
    best = passed(judges.accuracy, greedy_groups)
    formatted = passed(judges.layout, sampled_groups)
    outcomes = [
        Outcome(
            tuple(right[p]),
            best[p][0],
            tuple(formatted[p]),
            tuple(len(c.token_ids) for c in group.completions),
            tuple(c.sample.truncated for c in group.completions),
        )
        for p, group in enumerate(sampled_groups)
    ]
    everywhere: list[Outcome] = gather_object(outcomes)
    return summarise(everywhere)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The figures of a measurement; a mean over nothing is left out, never 0.

    The interval of the accuracy is over problems, the unit that was drawn: the normal one, and Wilson's where
    all problems are alike and the normal one would have no width.
    """
    name = "eval/heldout"
    judged = [[r for r in outcome.right if r is not None] for outcome in outcomes]
    judged = [row for row in judged if row]
    metrics: dict[str, float] = {}
    if judged:
        by_problem = [sum(row) / len(row) for row in judged]
        mean = statistics.fmean(by_problem)
        metrics[f"{name}/accuracy"] = mean
        metrics[f"{name}/accuracy_low"], metrics[f"{name}/accuracy_high"] = _interval(by_problem)
        k = max(len(row) for row in judged)
        if k > 1:
            metrics[f"{name}/pass@{k}"] = statistics.fmean(any(row) for row in judged)
    metrics |= _mean(f"{name}/greedy", [o.greedy for o in outcomes])
    metrics |= _mean(f"{name}/format", [f for o in outcomes for f in o.formatted])
    metrics |= _mean(f"{name}/length", [n for o in outcomes for n in o.lengths])
    metrics |= _mean(f"{name}/clipped_ratio", [t for o in outcomes for t in o.truncated])
    return metrics | _mean(f"{name}/unscored", [r is None for o in outcomes for r in o.right])


def _interval(by_problem: Sequence[float]) -> tuple[float, float]:
    mean = statistics.fmean(by_problem)
    if min(by_problem) == max(by_problem):
        return wilson_interval(mean, len(by_problem))
    half = 1.96 * statistics.stdev(by_problem) / math.sqrt(len(by_problem))
    return max(0.0, mean - half), min(1.0, mean + half)


def _mean(name: str, values: Sequence[float | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: statistics.fmean(known)} if known else {}
