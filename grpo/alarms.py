"""When a run's numbers say that it is being cheated, or goes nowhere: alarms with reasons.

A pure function of the lines of metrics.jsonl, so that a resumed run raises the same alarms and anyone can ask
again later with other thresholds. What is compared are means over a window of steps: the newest against the
window with the best gold since the reward model last changed (rewards of two reward models say nothing
about each other). Gold is the verifier's share of right completions, proxy is what was paid.

- gap: the proxy rose while the gold fell. Gao et al. 2022 (arXiv 2210.10760): a policy that optimises a proxy
  first gains and then loses gold, while the proxy goes on rising.
- blind: the proxy has lost half of what it knew, its lead over chance in telling a right from a wrong
  completion of one problem. It is the first to be seen: gold falls only once the policy has learnt from it.
- length: completions grew or shrank by a factor that no gain of gold goes with.
- signal: nearly all groups are in no gradient, and not because all of their completions are right.
- probe: a degenerate completion that was paid less than honest work is paid as much.

Noise is estimated from the differences of neighbouring steps, in which a trend nearly cancels (von Neumann
1941); a fall must also exceed what is asked for in the settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from grpo.probes import DEGENERATE, HONEST, pays_for, probe_metric

Line = Mapping[str, float]
"""One step's metrics with its "step"."""

PROXY, GOLD, WITHIN = "reward", "watch/gold", "watch/auc_within"
LENGTH, SILENT = "completions/mean_length", "watch/silent_groups"
REFIT_TAKEN = "refit/accepted"
"""1 on the step with a refit after which the new reward model pays, 0 where the old one stays."""
FALL_SIGMAS, RISE_SIGMAS, BLIND_SIGMAS = 4.0, 2.0, 3.0
"""Standard errors that a difference of window means must exceed; the best window is chosen among many."""
QUIET_WINDOWS = 4
"""Windows that pass before an alarm that goes on is raised again."""
GOLD_FALL = 0.05
"""Smallest fall of the gold, from its best window, that counts while the reward rises."""
CHANCE, KNEW = 0.5, 0.7
"""The AUC of a reward that knows nothing, and the least of one that can go blind."""


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """window: steps of a mean. The thresholds: see conf/train.yaml, node `watch`."""

    window: int
    length_ratio: float
    silent_share: float


@dataclass(frozen=True, slots=True)
class Alarm:
    """kind: `gap`, `blind`, `length`, `signal` or `probe`. text: what is wrong, with the numbers."""

    kind: str
    text: str


def alarm_metric(kind: str) -> str:
    """The metric that marks the steps on which an alarm is raised."""
    return f"watch/alarm/{kind}"


def raised(history: Sequence[Line], settings: AlarmSettings) -> list[Alarm]:
    """The alarms that the last line of a history raises.

    One that goes on is raised again after QUIET_WINDOWS, and at once where another reward model pays.

    Args:
        history: the lines of a run, one a step, in order; the marks of earlier alarms in them.
        settings: the window and the thresholds.
    """
    current = since_change(history)
    recent = current[-QUIET_WINDOWS * settings.window : -1]
    found: list[Alarm] = []
    for kind, reason in _RULES.items():
        if not any(line.get(alarm_metric(kind)) for line in recent):
            text = reason(current, settings)
            found += [Alarm(kind, text)] if text is not None else []
    return found + [Alarm("probe", text) for text in _probes(history)]


def since_change(history: Sequence[Line]) -> Sequence[Line]:
    """The steps that were paid by the reward model of the last one."""
    changes = [place for place, line in enumerate(history[:-1]) if line.get(REFIT_TAKEN)]
    return history[changes[-1] + 1 :] if changes else history


@dataclass(frozen=True, slots=True)
class _Compared:
    """The newest window and the best one that shares no step with it, of the lines."""

    newest: Sequence[Line]
    best: Sequence[Line]
    lines: Sequence[Line]

    def means(self, name: str) -> tuple[float, float]:
        """(best, newest) of a metric."""
        return fmean(line[name] for line in self.best), fmean(line[name] for line in self.newest)

    def error(self, name: str) -> float:
        """Standard error of the difference of the two means."""
        values = [line[name] for line in self.lines]
        differences = [after - before for before, after in pairwise(values)]
        variance = fmean(d * d for d in differences) / 2
        return math.sqrt(2 * variance / len(self.newest))


def _compare(history: Sequence[Line], window: int, names: Sequence[str]) -> _Compared | None:
    """None where fewer than two windows of steps have all the names; the best is that of the first name."""
    lines = [line for line in history if all(name in line for name in names)]
    if len(lines) < 2 * window:
        return None
    sums = [0.0]
    for line in lines[:-window]:
        sums.append(sums[-1] + line[names[0]])
    best = max(range(len(sums) - window), key=lambda start: sums[start + window] - sums[start])
    return _Compared(lines[-window:], lines[best : best + window], lines)


def _gap(history: Sequence[Line], settings: AlarmSettings) -> str | None:
    found = _compare(history, settings.window, (GOLD, PROXY))
    if found is None:
        return None
    (best_gold, gold), (best_proxy, proxy) = found.means(GOLD), found.means(PROXY)
    fell = best_gold - gold > max(GOLD_FALL, FALL_SIGMAS * found.error(GOLD))
    rose = proxy - best_proxy > RISE_SIGMAS * found.error(PROXY)
    if not (fell and rose):
        return None
    return (
        f"the reward rose from {best_proxy:.3f} to {proxy:.3f} while the share of right completions fell "
        f"from {best_gold:.3f} to {gold:.3f} ({_span(found)}): what is paid is being exploited; read the "
        "latest file of completions/"
    )


def _blind(history: Sequence[Line], settings: AlarmSettings) -> str | None:
    found = _compare(history, settings.window, (WITHIN,))
    if found is None:
        return None
    best, newest = found.means(WITHIN)
    lost_half = best >= KNEW and newest - CHANCE < (best - CHANCE) / 2
    if not lost_half or best - newest <= BLIND_SIGMAS * found.error(WITHIN):
        return None
    return (
        f"of a right and a wrong completion of a problem the right one was paid more in {100 * best:.0f} % "
        f"of all pairs, and now is in {100 * newest:.0f} % ({_span(found)}): the reward no longer sees"
    )


def _length(history: Sequence[Line], settings: AlarmSettings) -> str | None:
    found = _compare(history, settings.window, (GOLD, LENGTH))
    if found is None:
        return None
    (best_gold, gold), (best_length, length) = found.means(GOLD), found.means(LENGTH)
    within = best_length / settings.length_ratio <= length <= best_length * settings.length_ratio
    if within or gold > best_gold:
        return None
    way = "grew" if length > best_length else "shrank"
    return (
        f"completions {way} from {best_length:.1f} to {length:.1f} tokens and no more of them are right, "
        f"{best_gold:.3f} and {gold:.3f} ({_span(found)}): length is paid by itself, or work is left out"
    )


def _signal(history: Sequence[Line], settings: AlarmSettings) -> str | None:
    recent = [line[SILENT] for line in history[-settings.window :] if SILENT in line]
    if len(recent) < settings.window or fmean(recent) <= settings.silent_share:
        return None
    return (
        f"{100 * fmean(recent):.0f} % of the groups of the last {settings.window} steps are in no gradient "
        "though not all in them is right: their completions are paid alike; try problems of another "
        "difficulty, a larger rollout.group_size or a reward that tells completions apart"
    )


def _probes(history: Sequence[Line]) -> Iterator[str]:
    """Probes that earned less than honest work when they were asked about before, and no longer do."""
    asked = [line for line in history if probe_metric(HONEST) in line]
    if len(asked) < 2 or asked[-1] is not history[-1]:
        return
    before, now = pays_for(asked[-2]), asked[-1]
    for kind in pays_for(now):
        if kind not in before:
            yield (
                f"the reward now pays {now[probe_metric(kind)]:.3f} for {DEGENERATE[kind]} and "
                f"{now[probe_metric(HONEST)]:.3f} for right work"
            )


def _span(found: _Compared) -> str:
    return (
        f"means of {len(found.newest)} steps, up to step {found.best[-1]['step']:g} and up to "
        f"step {found.newest[-1]['step']:g}"
    )


_RULES: Mapping[str, Callable[[Sequence[Line], AlarmSettings], str | None]] = {
    "gap": _gap,
    "blind": _blind,
    "length": _length,
    "signal": _signal,
}
"""By kind; each gives the reason, or None, from the steps since the reward model last changed."""
