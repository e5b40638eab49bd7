"""The reward model keeps up with its policy: measured each round, trained on, taken only if it still sees.

A refit goes on from the last accepted reward model with a fresh optimiser, on completions of the round and a
share of history, labelled by the verifier. It is taken only if its AUC within questions, on questions that
no training holds, does not fall by more than a tolerance; otherwise the old one stays. Runs in one process.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from grpo.alarms import REFIT_TAKEN
from grpo.collect import Collector
from grpo.iterate_config import RefitConfig
from grpo.labelling import Judged, Labeller
from grpo.learned import LearnedPart, with_weights
from rewards.build import build, build_scorer
from rewards.config import RewardConfig
from rewards.labelled import Example
from rewards.models.engine import release
from rewards.protocols.discrimination import auc_within
from rewards.replay import ReplayBuffer, ReplayGroup, history_size
from rewards.scorer import Scorer
from rewards.types import Sample

T = TypeVar("T")
FOLDER = "reward_models"
"""Of a run's directory: a folder for each round whose refit was taken."""

_HELD_OUT_FEWER = 4
"""A fit is measured and calibrated on this many times fewer held-out completions than it trains on: the steps
of a process reward model cost completions."""

Fit = Callable[[str, Sequence[Example], Sequence[Example], Path], object]
"""(the reward model to go on from, training and held-out examples, the folder to write)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How well a reward model sees: its AUC within questions, None without a right and a wrong one of any.

    new: on the held-out completions of the round. old: on those of the rounds before. all: on both.
    """

    new: float | None
    old: float | None
    all: float | None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Groups of questions that no training holds: of the round, and as many of the rounds before."""

    new: tuple[ReplayGroup, ...]
    old: tuple[ReplayGroup, ...]

    @staticmethod
    def of(buffer: ReplayBuffer, number: int) -> HeldOut:
        """Those of a round that is finished; of the past they are taken evenly."""
        groups = list(buffer.held_out_groups())
        new = [group for group in groups if group.round == number]
        old = [group for group in groups if group.round != number]
        return HeldOut(tuple(new), tuple(_evenly(old, len(new))))

    def judged(self, most: int) -> list[Judged]:
        """The completions that the verifier has judged, or so many of them, taken evenly."""
        return _evenly([one for group in (*self.new, *self.old) for one in judged_of(group)], most)


def judged_of(group: ReplayGroup) -> list[Judged]:
    """The completions of a group that the verifier has judged."""
    pairs = zip(group.samples, group.labels, strict=True)
    return [Judged(sample, label) for sample, label in pairs if label is not None]


@dataclass(slots=True)
class RewardTrainer:
    """The reward model of a run from round to round.

    Args:
        part: the component that it pays.
        reward: what is paid, with the weights that the run starts from.
        settings: the node iterate.reward_model.
        labeller: completions -> examples.
        fit: trains on.
        collector: its scorer is replaced when a refit is taken.
        probes: completions that never change, to see how the scale of the values drifts.
        folder: for the weights of accepted refits.
        say: takes a sentence for the log.
        weights: the name in `folder` of the weights that pay now, None for those of the start.
        seen: `Sight.new` when these weights were new, None before they were measured.
    """

    part: LearnedPart
    reward: RewardConfig
    settings: RefitConfig
    labeller: Labeller
    fit: Fit
    collector: Collector
    probes: Sequence[Sample]
    folder: Path
    say: Callable[[str], None]
    weights: str | None = field(default=None, init=False)
    seen: float | None = field(default=None, init=False)

    def end_round(self, buffer: ReplayBuffer, number: int, *, asked: bool) -> dict[str, float]:
        """Measures the reward model on a finished round, and trains it on where that is due.

        asked: an alarm wants a refit, whatever the measurement.

        Returns:
            `refit/...`; `REFIT_TAKEN` is there exactly when there was a refit.
        """
        start = time.perf_counter()
        held_out = HeldOut.of(buffer, number)
        before = see(self._scorer(self.reward_now), held_out)
        metrics = _told({"auc_new": before.new, "auc_old": before.old})
        if asked or self._is_due(before):
            metrics |= self._refit(buffer, number, held_out, before)
        if self.seen is None:
            self.seen = before.new
        return metrics | {"timing_s/refit": time.perf_counter() - start}

    @property
    def reward_now(self) -> RewardConfig:
        """What is paid, with the weights of now."""
        if self.weights is None:
            return self.reward
        return with_weights(self.reward, self.part.name, self.folder / self.weights)

    def state(self) -> dict[str, Any]:
        """Which weights pay, in json values, for a checkpoint."""
        return {"weights": self.weights, "seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes back to the weights of a checkpoint; later ones are removed."""
        self.weights, self.seen = state["weights"], state["seen"]
        for path in self.folder.glob("*"):
            if self.weights is None or path.name > self.weights:
                shutil.rmtree(path)
        self.collector.scorer = build_scorer(self.reward_now)

    def forget_replaced(self) -> None:
        """Deletes weights that no longer pay; for after a checkpoint that needs none of them."""
        for path in self.folder.glob("*"):
            if path.name != self.weights:
                shutil.rmtree(path)

    def _is_due(self, sight: Sight) -> bool:
        if self.settings.refit != "gap":
            return self.settings.refit == "round"
        if self.settings.gap is None or self.seen is None or sight.new is None:
            return False
        return self.seen - sight.new > self.settings.gap

    def _refit(self, buffer: ReplayBuffer, number: int, held_out: HeldOut, before: Sight) -> dict[str, float]:
        n_new, share = self.settings.examples, self.settings.history_share
        drawn = buffer.draw(n_new + history_size(n_new, share), share)
        judged = [Judged(one.sample, one.label) for one in (*drawn.new, *drawn.old)]
        if len({one.right for one in judged}) < 2:
            self.say(f"round {number}: no refit: its {len(judged)} completions are not right and wrong ones")
            return {}
        target = self._train(judged, held_out, number)
        metrics = self._take_or_leave(target, number, held_out, before)
        metrics |= {"refit/examples": float(len(judged)), "replay/history_share": drawn.history_share}
        return metrics

    def _train(self, judged: Sequence[Judged], held_out: HeldOut, number: int) -> Path:
        """The folder of a reward model that goes on from the one that pays now."""
        target = self.folder / f"round_{number:06d}"
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        base = str(self._node(self.reward_now)["model"]["path"])
        few = held_out.judged(max(1, self.settings.examples // _HELD_OUT_FEWER))
        examples = self.labeller.label(judged, f"round/{number}")
        self.fit(base, examples, self.labeller.label(few, f"heldout/{number}"), target)
        return target

    def _take_or_leave(self, target: Path, number: int, held_out: HeldOut, before: Sight) -> dict[str, float]:
        """Lets the model in the folder pay from now on, or removes it."""
        reward = with_weights(self.reward, self.part.name, target)
        new, old = self._scorer(reward), self._scorer(self.reward_now)
        after = see(new, held_out)
        taken = holds(before, after, self.settings.tolerance)
        metrics = _told({"auc_new_after": after.new, "auc_old_after": after.old})
        metrics |= drift(values_of(old, self.probes), values_of(new, self.probes))
        self._tell(number, before, after, taken)
        release(build(self._node(self.reward_now if taken else reward)["model"]))
        if taken:
            self.weights, self.seen = target.name, after.new
            self.collector.scorer = build_scorer(self.reward_now)
        else:
            shutil.rmtree(target)
        return metrics | {REFIT_TAKEN: float(taken)}

    def _tell(self, number: int, before: Sight, after: Sight, accepted: bool) -> None:
        done = "taken" if accepted else "refused, the old reward model stays"
        self.say(
            f"round {number}: refit {done}: AUC within held-out questions {_show(before.all)} -> "
            f"{_show(after.all)} (this round {_show(before.new)} -> {_show(after.new)}, earlier rounds "
            f"{_show(before.old)} -> {_show(after.old)})"
        )

    def _node(self, reward: RewardConfig) -> Mapping[str, Any]:
        return reward.components[self.part.name].scorer

    def _scorer(self, reward: RewardConfig) -> Scorer:
        return build(self._node(reward))


def holds(before: Sight, after: Sight, tolerance: float) -> bool:
    """Whether a refit may be taken: its AUC within all held-out questions fell by the tolerance at most.

    One that cannot be measured is not taken.
    """
    return before.all is not None and after.all is not None and after.all >= before.all - tolerance


def see(scorer: Scorer, held_out: HeldOut) -> Sight:
    """Measures a reward model; completions without a value or a verdict are left out."""
    new, old = (_points(scorer, groups) for groups in (held_out.new, held_out.old))
    return Sight(*(_auc(points) for points in (new, old, new + old)))


def values_of(scorer: Scorer, samples: Sequence[Sample]) -> list[float | None]:
    """What a scorer says of each; None where it does not."""
    return [score.value for score in scorer.score(samples)]


def drift(old: Sequence[float | None], new: Sequence[float | None]) -> dict[str, float]:
    """`refit/drift...`: how the values of the same completions moved, over those that both judged."""
    pairs = zip(old, new, strict=True)
    moved = [after - before for before, after in pairs if before is not None and after is not None]
    if not moved:
        return {}
    return {"refit/drift_mean": fmean(moved), "refit/drift": fmean(map(abs, moved))}


Point = tuple[float, bool, str]
"""A value, whether right, the problem."""


def _points(scorer: Scorer, groups: Sequence[ReplayGroup]) -> list[Point]:
    judged = [one for group in groups for one in judged_of(group)]
    values = values_of(scorer, [one.sample for one in judged])
    return [
        (value, one.right, one.sample.problem.id)
        for one, value in zip(judged, values, strict=True)
        if value is not None
    ]


def _auc(points: Sequence[Point]) -> float | None:
    return auc_within([v for v, _, _ in points], [right for _, right, _ in points], [q for *_, q in points])


def _evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, in order, evenly spaced."""
    stride = max(1, math.ceil(len(items) / max(1, most)))
    return list(items[::stride])


def _told(values: Mapping[str, float | None]) -> dict[str, float]:
    return {f"refit/{name}": value for name, value in values.items() if value is not None}


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
