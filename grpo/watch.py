"""The loop watches itself: what is paid against what is right, how far the policy has gone, probes, alarms.

One Watch per run and rank. It measures, remembers and raises; what an alarm does to the run is decided by
whoever runs it. Its memory is metrics.jsonl, so a resumed run raises what an uninterrupted one would.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean

from accelerate import Accelerator

from grpo.alarms import (
    GOLD,
    LENGTH,
    PROXY,
    REFIT_TAKEN,
    SILENT,
    WITHIN,
    Alarm,
    AlarmSettings,
    alarm_metric,
    raised,
)
from grpo.config import TrainConfig
from grpo.drift import Drift
from grpo.policy import Policy
from grpo.probes import Probe, ask
from grpo.reference import AdapterReference, FrozenReference, Reference
from grpo.summaries import CompletionRow
from grpo.types import RolloutGroup
from rewards.protocols.discrimination import auc_within
from rewards.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Observed:
    """What a step showed, equal on every rank. metrics: `watch/...` and `probe/...`, for the step's line."""

    metrics: dict[str, float]
    alarms: tuple[Alarm, ...]


class Watch:
    """Follows the steps of a run.

    Args:
        settings: window and thresholds.
        drift: None measures no KL from the start policy.
        probes: what the reward is asked about on the first step and then once a window; none are fine.
    """

    def __init__(self, settings: AlarmSettings, drift: Drift | None, probes: Sequence[Probe]) -> None:
        self.settings = settings
        self.drift = drift
        self.probes = probes
        self._history: list[dict[str, float]] = []

    def observe(
        self,
        step: int,
        groups: Sequence[RolloutGroup],
        rows: Sequence[Sequence[CompletionRow]],
        metrics: Mapping[str, float],
        scorer: Scorer,
    ) -> Observed:
        """Measures a step and raises its alarms. Collective over ranks.

        Args:
            step: its number, from 1.
            groups: this rank's, as sampled.
            rows: those of all ranks, a sequence per group.
            metrics: of the step so far, such as the reward and the lengths.
            scorer: the one that paid.
        """
        begun = time.perf_counter()
        found = measure_rows(rows)
        if self.drift is not None:
            found |= self.drift.measure(groups)
        if self.probes and (step == 1 or step % self.settings.window == 0):
            found |= ask(self.probes, scorer)
        self._history.append(_remembered({"step": step, **metrics, **found}))
        alarms = tuple(raised(self._history, self.settings))
        marks = {alarm_metric(alarm.kind): 1.0 for alarm in alarms}
        self._history[-1] |= marks
        spent = {"timing_s/watch": time.perf_counter() - begun}
        return Observed(found | marks | spent, alarms)

    def restart(self) -> None:
        """From the next step on another reward model pays; its rewards are not compared with earlier ones."""
        self._history[-1][REFIT_TAKEN] = 1.0

    def restore(self, lines: Iterable[Mapping[str, float]], covered: int) -> None:
        """Goes on after a checkpoint.

        Args:
            lines: of metrics.jsonl; the step of an accepted refit holds `refit/accepted` = 1.
            covered: the checkpoint's step; later lines were made by a process that was stopped.
        """
        self._history = [_remembered(line) for line in lines if 1 <= line["step"] <= covered]


def make_watch(
    config: TrainConfig,
    start: Reference | None,
    accelerator: Accelerator,
    *,
    probes: Sequence[Probe],
    pad: int,
) -> Watch:
    """The watch that a configuration asks for.

    Args:
        config: checked.
        start: the policy as it starts; None measures no KL from it.
        accelerator: of the run.
        probes: see `grpo.probes.make_probes`.
        pad: id of the padding token.
    """
    watch = config.watch
    settings = AlarmSettings(watch.window, watch.length_ratio, watch.silent_share)
    rows = config.optim.micro_batch_rows
    drift = None if start is None else Drift(start, watch.kl_rows, rows, pad, accelerator)
    return Watch(settings, drift, probes)


def needs_start_policy(config: TrainConfig) -> bool:
    """Whether the watch must keep the start policy itself: it is measured, and no reference stays it."""
    stays = config.iterate is None or config.iterate.reference.follow == "never"
    return config.watch.kl_rows > 0 and not (config.algorithm.kl_coefficient > 0 and stays)


def start_policy(config: TrainConfig, policy: Policy) -> Reference:
    """The policy as it is now, for good: a frozen copy, or the base model under a LoRA adapter."""
    return AdapterReference(policy) if config.model.lora_rank else FrozenReference(policy)


def measure_rows(groups: Sequence[Sequence[CompletionRow]]) -> dict[str, float]:
    """`watch/...` of a step's completions, one inner sequence per group; what cannot be measured is left out.

    Gold and format are the verifiers', whatever is paid. The two correlations are Pearson's over all scored
    completions; the AUC compares right and wrong ones of one group.
    """
    rows = [(p, row) for p, group in enumerate(groups) for row in group]
    found = _mean(GOLD, [row.right for _, row in rows]) | _mean(
        "watch/format", [row.formatted for _, row in rows]
    )
    if groups:
        found[SILENT] = fmean(_is_silent(group) for group in groups)
    paid = [(p, row, row.score.value) for p, row in rows if row.score.value is not None]
    found |= _correlation(
        "watch/length_correlation", [(value, float(len(row.token_ids))) for _, row, value in paid]
    )
    known = [(p, value, row.right) for p, row, value in paid if row.right is not None]
    found |= _correlation("watch/correlation", [(value, float(right)) for _, value, right in known])
    within = auc_within(
        [value for _, value, _ in known], [right for *_, right in known], [p for p, *_ in known]
    )
    return found if within is None else found | {WITHIN: within}


def stop_message(step: int, alarms: Sequence[Alarm]) -> str:
    """Why the run ends, in one line."""
    return (
        f"step {step}: stopped by watch.on_alarm=stop: {'; '.join(alarm.text for alarm in alarms)}. "
        "The last checkpoint is whole; the numbers are in metrics.jsonl"
    )


def _is_silent(group: Sequence[CompletionRow]) -> bool:
    """In no gradient, and not because all of it is right."""
    return not any(row.moves for row in group) and not all(row.right for row in group)


def _mean(name: str, values: Sequence[bool | None]) -> dict[str, float]:
    known = [value for value in values if value is not None]
    return {name: fmean(known)} if known else {}


def _correlation(name: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Nothing where one of the two does not vary."""
    try:
        return {name: correlation([x for x, _ in pairs], [y for _, y in pairs])}
    except StatisticsError:
        return {}


def _remembered(line: Mapping[str, float]) -> dict[str, float]:
    """What the alarms need of a step."""
    kept = {"step", PROXY, GOLD, WITHIN, LENGTH, SILENT, REFIT_TAKEN}
    return {
        name: value
        for name, value in line.items()
        if name in kept or name.startswith(("watch/alarm/", "probe/"))
    }
