"""Where a number of the step misleads or warns: a sentence, said once.

Knows metric names (`grpo.names`) and what they mean together; nothing of screens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from grpo.probes import DEGENERATE, HONEST, pays_for, probe_metric

Metrics = Mapping[str, float]

WINDOW = 20
"""Steps over which accuracy counts as flat."""


@dataclass(frozen=True, slots=True)
class Rule:
    """applies: whether the step shows it. text: what it means and what to do, with the step's numbers."""

    name: str
    applies: Callable[[Metrics], bool]
    text: Callable[[Metrics], str]


class HealthWatch:
    """Follows the steps of a run and says each thing once, when it is first true."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._recent: deque[Metrics] = deque(maxlen=WINDOW)

    def notice(self, metrics: Metrics) -> list[str]:
        """Takes a step's metrics; returns what is true for the first time."""
        self._recent.append(metrics)
        found = {rule.name: rule.text(metrics) for rule in RULES if rule.applies(metrics)}
        if (text := _flat(self._recent)) is not None:
            found["flat"] = text
        for name in found:
            self._steps[name] = self._steps.get(name, 0) + 1
        new = {name: text for name, text in found.items() if name not in self._said}
        self._said |= new
        return list(new.values())

    def summary(self) -> list[str]:
        """Everything said, in order, with the number of steps on which it was true."""
        return [f"{text} [{_steps(self._steps[name])}]" for name, text in self._said.items()]


def _flat(recent: deque[Metrics]) -> str | None:
    """The layout is always right while accuracy stands still below the top."""
    layout = [step["reward/format/mean"] for step in recent if "reward/format/mean" in step]
    accuracy = [step["reward/accuracy/mean"] for step in recent if "reward/accuracy/mean" in step]
    if len(layout) < WINDOW or len(accuracy) < WINDOW:
        return None
    half = WINDOW // 2
    rise = fmean(accuracy[half:]) - fmean(accuracy[:half])
    if min(layout) < 0.99 or rise > 0.02 or fmean(accuracy) > 0.9:
        return None
    return (
        f"the layout has been right for {WINDOW} steps and accuracy stands at {fmean(accuracy):.2f}: format "
        "is paid in full and teaches nothing more; read the completions, try easier problems or larger groups"
    )


def _is_silent(metrics: Metrics) -> bool:
    """Not by the rewards: a value model, or steps, can tell completions of equal rewards apart.

    A completion alone has no spread to lack.
    """
    return "reward_std" in metrics and metrics.get("groups/frac_silent", 0.0) > 0.5


def _no_signal(metrics: Metrics) -> str:
    good, bad = metrics.get("groups/frac_all_good", 0.0), metrics.get("groups/frac_all_bad", 0.0)
    advice = "try a larger rollout.group_size or problems of another difficulty"
    if good > 2 * bad:
        advice = "most are all right: try harder problems"
    elif bad > 2 * good:
        advice = "most are all wrong: try easier problems, a longer cold start or a larger rollout.group_size"
    return (
        f"{_percent(metrics['groups/frac_silent'])} of the groups carry no signal (all paid alike); {advice}"
    )


def _share_of(metrics: Metrics, start: str, end: str) -> float:
    """The largest of the metrics `<start><component><end>`."""
    return max(
        (x for name, x in metrics.items() if name.startswith(start) and name.endswith(end)), default=0.0
    )


def _timeouts(metrics: Metrics) -> float:
    return _share_of(metrics, "reason/", "/timeout")


def _failed(metrics: Metrics) -> float:
    return _share_of(metrics, "verdict/", "/failed")


def _giveaway(metrics: Metrics) -> str:
    kinds = " and for ".join(DEGENERATE[kind] for kind in pays_for(metrics))
    return (
        f"the reward pays as much for {kinds} as for right work ({metrics[probe_metric(HONEST)]:.3f}): a "
        "policy will find out; pay for the answer too, such as with reward=verifiable+..."
    )


def _abstained(metrics: Metrics) -> float:
    return metrics.get("verdict/total/abstained", 0.0)


RULES = (
    Rule(
        "loss",
        lambda metrics: abs(metrics.get("loss", 1.0)) < 1e-3,
        lambda metrics: (
            "a loss near 0 is normal: on fresh samples a group's advantages add up to 0, and the gradient "
            "does not; follow reward, accuracy, KL and grad_norm instead"
        ),
    ),
    Rule("signal", _is_silent, _no_signal),
    Rule(
        "clipped",
        lambda metrics: metrics.get("completions/clipped_ratio", 0.0) > 0.5,
        lambda metrics: (
            f"{_percent(metrics['completions/clipped_ratio'])} of the completions were cut off at the token "
            "limit, before their answer: raise rollout.max_completion_tokens"
        ),
    ),
    Rule(
        "timeout",
        lambda metrics: _timeouts(metrics) > 0.01,
        lambda metrics: (
            f"{_percent(_timeouts(metrics))} of the answers took too long to compare and earned the floor: "
            "look at them in completions/ (reason timeout)"
        ),
    ),
    Rule(
        "failed",
        lambda metrics: _failed(metrics) > 0,
        lambda metrics: (
            f"{_percent(_failed(metrics))} of the scores failed through our own fault and were left out, not "
            "counted as wrong; the reasons are in completions/"
        ),
    ),
    Rule(
        "abstained",
        lambda metrics: _abstained(metrics) > 0.1,
        lambda metrics: (
            f"{_percent(_abstained(metrics))} of the completions belong to problems that cannot be judged: "
            "check the golds of the data"
        ),
    ),
    Rule(
        "duplicates",
        lambda metrics: (
            metrics.get("groups/duplicates", 0.0) > 0.5 and metrics.get("reward/accuracy/mean", 0.0) < 0.9
        ),
        lambda metrics: (
            f"{_percent(metrics['groups/duplicates'])} of the completions repeat another of their group: the "
            "policy hardly explores; a higher rollout.temperature would"
        ),
    ),
    Rule("giveaway", lambda metrics: bool(pays_for(metrics)), _giveaway),
    Rule(
        "skipped",
        lambda metrics: metrics.get("update/skipped", 0.0) > 0 and metrics.get("grad_norm", 0.0) != 0.0,
        lambda metrics: (
            "an update was left out because its gradient was not finite; if it recurs, lower "
            "optim.learning_rate"
        ),
    ),
)
"""Thresholds are ours, chosen to stay silent on a healthy run."""


def _percent(share: float) -> str:
    """A share in percent; a small one keeps a digit."""
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.2g} %"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
