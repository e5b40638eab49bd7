"""The completions of a step, and what they add up to: rewards, verdicts, reasons, lengths, signal.

Knows scores and completions as they come from rollout and scorer; no files, nothing of how a model is
updated. The summaries are pure functions of nested lists, one inner list per group. A mean over nothing is
left out, never 0. The meaning of each name: `grpo.names`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grpo.types import RolloutGroup
from rewards.types import Problem, Score, Verdict

ACCURACY = "accuracy"
"""The component that decides what is right: its value is above 0."""


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """One completion of a step with all that was made of it, for files and screens.

    token_ids: as sampled. advantage: 0.0 where there was none; the mean where tokens have their own. right,
    formatted: by the verifiers, paid or not; None where there is no verdict. moves: whether its advantages
    are in the gradient.
    """

    problem: Problem
    text: str
    token_ids: tuple[int, ...]
    truncated: bool
    score: Score
    advantage: float
    right: bool | None = None
    formatted: bool | None = None
    moves: bool = False


def completion_rows(
    groups: Sequence[RolloutGroup],
    scores: Sequence[Sequence[Score]],
    advantages: Sequence[Sequence[float]],
    moving: Sequence[Sequence[bool]],
    right: Sequence[Sequence[bool | None]],
    formatted: Sequence[Sequence[bool | None]],
) -> list[list[CompletionRow]]:
    """The rows of a step, one inner list per group; all but the groups are (P, G) in the same order."""
    return [
        [
            CompletionRow(
                problem=group.problem,
                text=completion.sample.text,
                token_ids=tuple(completion.token_ids.tolist()),
                truncated=completion.sample.truncated,
                score=score,
                advantage=advantage,
                right=passed,
                formatted=kept,
                moves=moves,
            )
            for completion, score, advantage, moves, passed, kept in zip(
                group.completions, scores_G, advantages_G, moving_G, right_G, formatted_G, strict=True
            )
        ]
        for group, scores_G, advantages_G, moving_G, right_G, formatted_G in zip(
            groups, scores, advantages, moving, right, formatted, strict=True
        )
    ]


def component(score: Score, name: str) -> Score | None:
    """The score of a component, or None where the reward has none of that name."""
    return next((part.score for part in score.parts if part.name == name), None)


def is_correct(score: Score) -> bool | None:
    """Whether the accuracy component passed; None where it did not judge or there is none."""
    accuracy = component(score, ACCURACY)
    return None if accuracy is None or accuracy.value is None else accuracy.value > 0


def summarise_scores(groups: Sequence[Sequence[Score]]) -> dict[str, float]:
    """Rewards, verdicts and reasons of a step's groups, and the share of them whose rewards are all equal."""
    values = _values(groups)
    found: dict[str, float] = _moments("reward", "reward_std", values)
    flat = sorted(value for group in values for value in group)
    if flat:
        found |= {"reward/p10": _percentile(flat, 0.1), "reward/p90": _percentile(flat, 0.9)}
    found |= _verdicts("total", [score for group in groups for score in group])
    for name in dict.fromkeys(part.name for group in groups for score in group for part in score.parts):
        parts = [[part for score in group if (part := component(score, name))] for group in groups]
        found |= _moments(f"reward/{name}/mean", f"reward/{name}/std", _values(parts))
        flat_parts = [part for group in parts for part in group]
        found |= _verdicts(name, flat_parts)
        reasons = Counter(part.reason.value for part in flat_parts)
        found |= {f"reason/{name}/{code}": n / len(flat_parts) for code, n in sorted(reasons.items())}
    if groups:
        found["frac_reward_zero_std"] = sum(_is_constant(group) for group in values) / len(groups)
    return found


def summarise_kinds(groups: Sequence[Sequence[bool | None]]) -> dict[str, float]:
    """Shares of groups by what they hold, right and wrong or one kind; nothing without a verdict."""
    kinds = [{right for right in group if right is not None} for group in groups]
    if not any(kinds):
        return {}
    named = (("mixed", {True, False}), ("all_good", {True}), ("all_bad", {False}))
    return {f"groups/frac_{name}": sum(found == kind for found in kinds) / len(kinds) for name, kind in named}


def summarise_lengths(
    lengths: Sequence[int], truncated: Sequence[bool], correct: Sequence[bool | None]
) -> dict[str, float]:
    """Lengths in tokens of a step's completions, apart for those that ended, were right and were wrong."""
    rows = list(zip(lengths, truncated, correct, strict=True))
    found: dict[str, float] = {}
    for kind, chosen in (
        ("length", [length for length, _, _ in rows]),
        ("terminated_length", [length for length, cut, _ in rows if not cut]),
    ):
        if chosen:
            found[f"completions/mean_{kind}"] = statistics.fmean(chosen)
            found[f"completions/min_{kind}"] = float(min(chosen))
            found[f"completions/max_{kind}"] = float(max(chosen))
    if rows:
        found["completions/clipped_ratio"] = sum(truncated) / len(rows)
    for kind, wanted in (("correct", True), ("wrong", False)):
        chosen = [length for length, _, right in rows if right is wanted]
        if chosen:
            found[f"completions/length_{kind}"] = statistics.fmean(chosen)
    return found


def summarise_duplicates(groups: Sequence[Sequence[tuple[int, ...]]]) -> dict[str, float]:
    """Share of completions (token ids) equal to an earlier one of their group."""
    total = sum(len(group) for group in groups)
    repeated = sum(len(group) - len(set(group)) for group in groups)
    return {"groups/duplicates": repeated / total} if total else {}


def summarise_advantages(groups: Sequence[Sequence[CompletionRow]]) -> dict[str, float]:
    """Spread of a step's advantages, one per completion, and what of the step is in no gradient."""
    rows = [row for group in groups for row in group]
    advantages = [row.advantage for row in rows]
    if not advantages:
        return {}
    found = {
        "advantages/min": min(advantages),
        "advantages/max": max(advantages),
        "advantages/zero_frac": sum(not row.moves for row in rows) / len(rows),
        "groups/frac_silent": sum(not any(row.moves for row in group) for group in groups) / len(groups),
    }
    if math.isfinite(found["advantages/min"]) and math.isfinite(found["advantages/max"]):
        found["advantages/mean"] = statistics.fmean(advantages)
        found["advantages/std"] = statistics.stdev(advantages) if len(advantages) > 1 else 0.0
    return found


def summarise_step(groups: Sequence[Sequence[CompletionRow]]) -> dict[str, float]:
    """All of the above for the completions of a step, one inner sequence per group."""
    rows = [row for group in groups for row in group]
    return (
        summarise_scores([[row.score for row in group] for group in groups])
        | summarise_lengths(
            [len(row.token_ids) for row in rows],
            [row.truncated for row in rows],
            [row.right for row in rows],
        )
        | summarise_kinds([[row.right for row in group] for group in groups])
        | summarise_duplicates([[row.token_ids for row in group] for group in groups])
        | summarise_advantages(groups)
    )


def _is_constant(values: Sequence[float]) -> bool:
    """Equal up to rounding, by the rule of `grpo.advantage.constant_groups`."""
    if len(values) < 2:
        return True
    return max(values) - min(values) <= 1e-6 * max(1.0, abs(statistics.fmean(values)))


def _values(groups: Sequence[Sequence[Score]]) -> list[list[float]]:
    return [[score.value for score in group if score.value is not None] for group in groups]


def _moments(mean: str, std: str, values: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean over all values, and the mean over groups of two or more of their deviation (n - 1)."""
    flat = [value for group in values for value in group]
    deviations = [statistics.stdev(group) for group in values if len(group) > 1]
    found = {mean: math.fsum(flat) / len(flat)} if flat else {}
    return found | ({std: statistics.fmean(deviations)} if deviations else {})


def _verdicts(name: str, scores: Sequence[Score]) -> dict[str, float]:
    counts = Counter(score.verdict for score in scores)
    return {f"verdict/{name}/{verdict.value}": counts[verdict] / len(scores) for verdict in Verdict if scores}


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy's default."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
