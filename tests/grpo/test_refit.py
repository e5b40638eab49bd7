"""A reward model's refit: what it is trained on, when it is taken, and what is left where it is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import RuleScorer

from grpo.alarms import REFIT_TAKEN
from grpo.collect import Collector
from grpo.config import TRAIN
from grpo.labelling import OutcomeLabeller
from grpo.learned import LearnedPart
from grpo.refit import HeldOut, RewardTrainer, Sight, drift, holds, see
from rewards.config import ComponentConfig, RewardConfig
from rewards.labelled import Example, OutcomeExample
from rewards.replay import ReplayBuffer, ReplayGroup, ReplaySettings
from rewards.types import Problem, Reason, Sample, Score

PROMPTS = [f"{n}+1=" for n in range(40)]
"""Of which a quarter, about, is held out."""
RULES = ReplaySettings(seed=0, heldout_share=0.25)


def save(gain: float, folder: Path) -> Path:
    folder.mkdir()
    (folder / "gain.json").write_text(json.dumps(gain))
    return folder


def groups(number: int) -> list[ReplayGroup]:
    """Four completions of every prompt, the first two right; a new text each round."""
    made = []
    for prompt in PROMPTS:
        samples = tuple(
            Sample(Problem(prompt, prompt, ("1",)), f"{'right' if i < 2 else 'wrong'} {number} {i}", index=i)
            for i in range(4)
        )
        scores = tuple(Score.scored(0.0, Reason.MODEL) for _ in samples)
        made.append(ReplayGroup(samples, scores, (True, True, False, False), "v", number))
    return made


def reward(folder: Path) -> RewardConfig:
    model = {"_target_": "rewards.models.settings.ModelSettings", "path": str(folder), "reference": None}
    scorer = {"_target_": "fakes_scorers.FolderGain", "model": model | {"convention": None}}
    return RewardConfig({"orm": ComponentConfig(1.0, None, scorer)})


class Fit:
    """Writes the gains it is given, one a call, and remembers what it was called with."""

    def __init__(self, *gains: float) -> None:
        self.gains = list(gains)
        self.bases: list[str] = []
        self.train: list[Sequence[Example]] = []

    def __call__(
        self, base: str, train: Sequence[Example], held_out: Sequence[Example], target: Path
    ) -> None:
        self.bases.append(base)
        self.train.append(train)
        assert held_out
        assert not {e.question for e in held_out} & {e.question for e in train}
        save(self.gains[len(self.bases) - 1], target)


@dataclass
class World:
    trainer: RewardTrainer
    buffer: ReplayBuffer
    fit: Fit
    said: list[str]

    def round(self, number: int, *, asked: bool = False) -> dict[str, float]:
        self.buffer.add(groups(number))
        self.buffer.finish_round()
        return self.trainer.end_round(self.buffer, number, asked=asked)

    def paid(self) -> float | None:
        """What the collector's scorer pays for a right answer."""
        (score,) = self.trainer.collector.scorer.score([Sample(Problem("q", "q"), "right")])
        return score.value


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    def make(*gains: float, start: float = 0.0, **settings: object) -> World:
        config = TRAIN.load(["reward=orm", "iterate=deepseekmath"]).iterate
        assert config is not None
        said: list[str] = []
        fit = Fit(*gains)
        paid = reward(save(start, tmp_path / "start"))
        part = LearnedPart("orm", "outcome", paid.components["orm"].scorer["model"])
        scorer = RuleScorer(lambda sample: start * sample.text.startswith("right"))
        trainer = RewardTrainer(
            part,
            paid,
            replace(config.reward_model, examples=60, tolerance=0.02, **settings),
            OutcomeLabeller(),
            fit,
            Collector(None, scorer, seed=0, group_size=4, max_tokens=4),  # type: ignore[arg-type]
            [Sample(Problem("q", "q"), text) for text in ("right", "wrong")],
            tmp_path / "reward_models",
            said.append,
        )
        return World(trainer, ReplayBuffer(tmp_path / "replay", RULES), fit, said)

    return make


def test_a_refit_that_sees_as_well_is_taken_and_pays_from_then_on(world: Callable[..., World]) -> None:
    run = world(1.0, 2.0)
    first = run.round(0)
    assert (first["refit/auc_new"], first["refit/auc_new_after"]) == (0.5, 1.0)
    assert first[REFIT_TAKEN] == 1
    assert run.trainer.weights == "round_000000"
    assert run.paid() == 1.0
    assert "refit taken: AUC within held-out questions 0.500 -> 1.000" in run.said[0]
    second = run.round(1)
    # Both see everything, in this round and in the one before; the scale moved.
    assert (second["refit/auc_new"], second["refit/auc_old"], second["refit/auc_old_after"]) == (1, 1, 1)
    assert (second["refit/drift_mean"], second["refit/drift"]) == (0.5, 0.5)
    assert run.fit.bases[1].endswith("reward_models/round_000000"), "it goes on from the last one taken"
    assert run.paid() == 2.0


def test_a_refit_that_sees_less_leaves_the_old_model(world: Callable[..., World]) -> None:
    run = world(-1.0, 3.0, start=1.0)
    first = run.round(0)
    assert (first["refit/auc_new"], first["refit/auc_new_after"], first[REFIT_TAKEN]) == (1, 0, 0)
    assert run.trainer.weights is None
    assert list((run.trainer.folder).iterdir()) == []
    assert run.paid() == 1.0
    assert "refused, the old reward model stays" in run.said[0]
    run.round(1)
    assert run.fit.bases[1] == run.fit.bases[0], "it goes on from the old one"
    assert run.paid() == 3.0


def test_it_trains_on_verified_labels_of_the_round_and_a_tenth_of_history(
    world: Callable[..., World],
) -> None:
    run = world(1.0, 1.0, 1.0)
    for number in range(3):
        metrics = run.round(number)
    examples = [example for example in run.fit.train[2] if isinstance(example, OutcomeExample)]
    assert all(example.label == example.completion.startswith("right") for example in examples)
    rounds = Counter(example.completion.split()[1] for example in examples)
    assert rounds["2"] == 60
    assert sorted([rounds["0"], rounds["1"]]) == [3, 4], "spread over past rounds"
    assert metrics["replay/history_share"] == pytest.approx(0.1, abs=0.01)
    assert metrics["refit/examples"] == 67
    assert sum(example.label for example in examples) in (33, 34), "as many right as wrong"


def test_there_is_no_refit_without_right_and_wrong_completions(world: Callable[..., World]) -> None:
    run = world(start=1.0)
    run.buffer.add([replace(group, labels=(True,) * 4) for group in groups(0)])
    run.buffer.finish_round()
    assert REFIT_TAKEN not in run.trainer.end_round(run.buffer, 0, asked=False)
    assert run.fit.train == []
    assert "no refit: its 67 completions" in run.said[0]


def test_when_it_is_due(world: Callable[..., World]) -> None:
    run = world(1.0, refit="off", start=1.0)
    assert REFIT_TAKEN not in run.round(0)
    assert run.round(1)["refit/auc_old"] == 1
    assert REFIT_TAKEN in run.round(2, asked=True)


def test_a_gap_is_a_fall_of_what_it_sees(world: Callable[..., World]) -> None:
    run = world(1.0, refit="gap", gap=0.1, start=1.0)
    assert REFIT_TAKEN not in run.round(0)
    assert REFIT_TAKEN not in run.round(1)
    run.trainer.seen = 1.2  # as if it had seen more when it was fitted
    assert REFIT_TAKEN in run.round(2)
    assert run.trainer.seen == 1.0


def test_a_checkpoint_brings_weights_back_and_removes_later_ones(world: Callable[..., World]) -> None:
    run = world(1.0, 2.0, 3.0)
    run.round(0)
    kept = json.loads(json.dumps(run.trainer.state()))
    run.round(1)
    assert run.paid() == 2.0
    run.trainer.restore(kept)
    assert [path.name for path in run.trainer.folder.iterdir()] == ["round_000000"]
    assert run.trainer.weights == "round_000000"
    # A fit that was killed leaves what it had written.
    (run.trainer.folder / "round_000001").mkdir()
    run.buffer.rewind(0)
    run.fit.gains[2] = 2.0
    assert run.round(1)[REFIT_TAKEN] == 1
    run.trainer.forget_replaced()
    assert [path.name for path in run.trainer.folder.iterdir()] == ["round_000001"]


def test_the_gate() -> None:
    assert holds(Sight(None, None, 0.8), Sight(None, None, 0.79), 0.01)
    assert not holds(Sight(None, None, 0.8), Sight(None, None, 0.78), 0.01)
    assert not holds(Sight(None, None, None), Sight(None, None, 0.9), 0.01), "nothing to compare with"


def test_sight_leaves_out_what_has_no_value_or_verdict() -> None:
    (group,) = groups(0)[:1]
    scorer = RuleScorer(lambda s: None if s.index == 3 else float(s.text.startswith("right")))
    assert see(scorer, HeldOut((group,), ())) == Sight(1.0, None, 1.0)
    unknown = replace(group, labels=(None, None, False, False))
    assert see(scorer, HeldOut((unknown,), ())) == Sight(None, None, None)


def test_drift_is_over_what_both_judged() -> None:
    assert drift([1.0, None, 3.0], [2.0, 5.0, 2.5]) == {"refit/drift_mean": 0.25, "refit/drift": 0.75}
    assert drift([None], [1.0]) == {}
