"""The formulas of grpo once more, as plain loops over Python floats: slow, obvious, without torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]


def advantages(
    groups: Sequence[Sequence[float | None]], baseline: str, scale: str, eps: float
) -> list[list[float]]:
    """(r - b) / (s + eps) row by row; None is a row that was not scored."""
    everything = [r for group in groups for r in group if r is not None]
    baselines = [[_baseline(group, i, everything, baseline) for i in range(len(group))] for group in groups]
    centred = [
        r - b
        for group, bs in zip(groups, baselines, strict=True)
        for r, b in zip(group, bs, strict=True)
        if r is not None
    ]
    result: list[list[float]] = []
    for group, bs in zip(groups, baselines, strict=True):
        pool = (
            [r for r in group if r is not None] if baseline in ("group_mean", "leave_one_out") else everything
        )
        silent = baseline != "none" and (len(pool) < 2 or max(pool) == min(pool))
        row: list[float] = []
        for i, r in enumerate(group):
            if r is None or silent:
                row.append(0.0)
                continue
            spread = _scale(group, i, everything, centred, scale)
            row.append((r - bs[i]) / (spread + eps) if spread else r - bs[i])
        result.append(row)
    return result


def _baseline(group: Sequence[float | None], i: int, everything: list[float], name: str) -> float:
    own = [r for r in group if r is not None]
    others = [r for j, r in enumerate(group) if r is not None and j != i]
    return {
        "group_mean": lambda: statistics.fmean(own) if own else 0.0,
        "leave_one_out": lambda: statistics.fmean(others or own or [0.0]),
        "batch_mean": lambda: statistics.fmean(everything),
        "none": lambda: 0.0,
    }[name]()


def _scale(
    group: Sequence[float | None], i: int, everything: list[float], centred: list[float], name: str
) -> float:
    own = [r for r in group if r is not None]
    others = [r for j, r in enumerate(group) if r is not None and j != i]
    return {
        "group_std": lambda: statistics.stdev(own),
        "group_std_biased": lambda: statistics.pstdev(own),
        "leave_one_out_std": lambda: statistics.stdev(others) if len(others) > 1 else 0.0,
        "group_mean": lambda: statistics.fmean(own),
        "batch_std": lambda: statistics.stdev(everything) if len(everything) > 1 else 0.0,
        "batch_centred_std": lambda: statistics.stdev(centred) if len(centred) > 1 else 0.0,
        "none": lambda: 0.0,
    }[name]()


def objective(
    name: str, logprob: float, log_ratio: float, advantage: float, clip_low: float, clip_high: float
) -> float:
    """The loss of one token before KL, entropy and importance weight."""
    ratio = math.exp(log_ratio)
    kept = min(max(ratio, 1 - clip_low), 1 + clip_high)
    if name == "clip":
        return -min(ratio * advantage, kept * advantage)
    if name == "cispo":
        return -kept * advantage * logprob
    tau = 1.0 if advantage > 0 else 1.05
    return -4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage


def kl(name: str, logprob: float, ref: float, log_ratio: float) -> float:
    """One of the estimators for one token."""
    d = ref - logprob
    k3 = math.exp(d) - d - 1
    return {"k1": -d, "k2": d * d / 2, "k3": k3, "k3_corrected": math.exp(log_ratio) * k3}[name]


def log_ratios(logprobs: Rows, old: Rows, mask: Rows, ratio: str) -> list[list[float]]:
    """log(pi / pi_old) of each token, or the row's mean of it on every token."""
    rows = [[x - o for x, o in zip(xs, os, strict=True)] for xs, os in zip(logprobs, old, strict=True)]
    if ratio == "token":
        return rows
    means = [
        sum(d for d, m in zip(row, ms, strict=True) if m) / max(sum(1 for m in ms if m), 1)
        for row, ms in zip(rows, mask, strict=True)
    ]
    return [[mean] * len(row) for mean, row in zip(means, rows, strict=True)]


def aggregate(values: Rows, mask: Rows, prompts: Sequence[int], name: str, max_length: int) -> float:
    """Token losses to one number, from the definition of each mean."""
    kept = [[v for v, m in zip(vs, ms, strict=True) if m] for vs, ms in zip(values, mask, strict=True)]
    if name == "sequence_mean":
        return statistics.fmean([statistics.fmean(row) if row else 0.0 for row in kept])
    if name == "token_mean":
        flat = [v for row in kept for v in row]
        return statistics.fmean(flat) if flat else 0.0
    if name == "constant":
        return sum(sum(row) / max_length for row in kept) / len(kept)
    if name == "sequence_sum":
        return statistics.fmean([sum(row) for row in kept])
    per_prompt = [
        [v for row, q in zip(kept, prompts, strict=True) if q == p for v in row] for p in sorted(set(prompts))
    ]
    return statistics.fmean([statistics.fmean(vs) if vs else 0.0 for vs in per_prompt])


def gae(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """A_t = sum over k of (gamma lam)^k delta_{t+k}, from the definition."""
    n = len(rewards)
    following = [*values[1:], 0.0]
    deltas = [rewards[t] + gamma * following[t] - values[t] for t in range(n)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, n)) for t in range(n)]
