"""Every option of an algorithm reaches the weights: overrides, the session made of them, two steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from grpo.algorithm import AlgorithmConfig, ValueConfig
from grpo.collect import Engine
from grpo.config import TRAIN
from grpo.materials import Materials, gather_materials
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import Sampling
from grpo.session import make_accelerator, make_session
from grpo.types import RolloutGroup
from rewards.types import Part, Reason, Sample, Score, Verdict

P, G = 4, 4
TINY = (
    "device=cpu",
    "model.hidden_size=16",
    "model.layers=1",
    "model.heads=2",
    "data.train_size=16",
    "data.eval_size=4",
    "coldstart.steps=0",
    "watch.kl_rows=0",
    "watch.probe_problems=0",
    "optim.warmup_steps=0",
    "optim.learning_rate=0.01",
    f"rollout.prompts_per_step={P}",
    f"rollout.group_size={G}",
    "rollout.max_completion_tokens=12",
)
RIGHT = ((1.0, 0.0, 0.5, 1.0), (1.0, 1.0, 1.0, 1.0), (0.0, 1.0, 1.0, 1.0), (0.0, 0.0, 1.0, None))
FORMED = ((1.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.0, 1.0), (0.0, 1.0, 1.0, 1.0))
"""What is paid: the second group is silent, the last completion of the fourth is not scored."""


@dataclass(frozen=True)
class Row:
    """change: an option and its value. base: what both runs have.

    beside: what else only the changed run has; against: what only the other has.
    """

    change: str
    base: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """Its name."""
        return self.change.partition("=")[0]


TWICE = "updates_per_rollout=2"
UNSCALED = ("scale=none",)
IN_LOSS = ("kl_coefficient=0.5",)
IN_REWARD = ("kl_coefficient=0.5", "kl_in=reward")
PPO = ("algorithm=ppo",)
ALONE = ("algorithm=reinforce_pp", "rollout.group_size=1")
ROWS = (
    Row("baseline=leave_one_out"),
    Row("baseline=batch_mean", UNSCALED),
    Row("baseline=none", UNSCALED),
    Row("baseline=value", (*PPO, *UNSCALED), against=("baseline=none", "value=null")),
    Row("scale=group_std_biased"),
    Row("scale=leave_one_out_std"),
    Row("scale=group_mean"),
    Row("scale=batch_std"),
    Row("scale=batch_centred_std"),
    Row("scale=none"),
    Row("scale=whiten", (*PPO, "scale=none")),
    Row("combine=normalize_then_sum"),
    Row("ratio=sequence", (TWICE,)),
    Row("objective=cispo", (TWICE,)),
    Row("objective=sapo", (TWICE,), ("clip_low=null", "clip_high=null")),
    Row("clip_low=0.01", (TWICE,)),
    Row("clip_high=0.01", (TWICE,)),
    Row("dual_clip=1.02", (TWICE, "clip_high=0.01")),
    Row("aggregation=token_mean"),
    Row("aggregation=constant"),
    Row("aggregation=prompt_mean"),
    Row("aggregation=sequence_sum"),
    Row("kl_coefficient=0.5"),
    Row("kl_estimator=k1", IN_REWARD),
    Row("kl_estimator=k2", IN_LOSS),
    Row("kl_estimator=k3_corrected", IN_LOSS),
    Row("kl_in=reward", IN_LOSS),
    Row("kl_target=0.01", IN_REWARD),
    Row("entropy_coefficient=0.1"),
    Row("importance_cap=1.1"),
    Row(TWICE),
    Row("mask_truncated=true"),
    Row("silent_groups=keep", IN_LOSS),
    Row("dynamic_sampling_rounds=1"),
    Row("value=null", (*PPO, *UNSCALED), ("baseline=none",)),
    Row("value.gamma=0.9", PPO),
    Row("value.gae_lambda=0.5", PPO),
    Row("value.clip=null", PPO),
    Row("value.learning_rate_ratio=1", PPO),
)
"""One for each option of an algorithm, and for each value of an option that has a few."""


@dataclass(frozen=True)
class Paid:
    """Pays RIGHT and FORMED by the place of the problem and of the completion."""

    places: Mapping[str, int]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One score per sample, in order."""
        return [self._one(self.places[s.problem.id] % P, s.index) for s in samples]

    def _one(self, p: int, g: int) -> Score:
        right, formed = RIGHT[p][g], FORMED[p][g]
        if right is None or formed is None:
            return Score.failed(Reason.INTERNAL)
        parts = (
            Part("accuracy", 1.0, Score.scored(right, Reason.MISMATCH)),
            Part("format", 0.2, Score.scored(formed, Reason.FORMAT_OK)),
        )
        return Score(Verdict.SCORED, right + 0.2 * formed, Reason.COMBINED, parts=parts)


@dataclass(frozen=True)
class OwnProbabilities:
    """An engine whose log-probs differ from the trainer's, by up to 0.3 from token to token."""

    engine: Engine

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """The groups of the prompts."""
        for batch in self.engine.generate(prompts, sampling):
            yield [
                replace(
                    group,
                    completions=tuple(
                        replace(c, logprobs=c.logprobs + 0.3 * c.token_ids.float().sin())
                        for c in group.completions
                    ),
                )
                for group in batch
            ]


@cache
def loaded(entropy_coefficient: float) -> Materials:
    """What all runs start from; of an algorithm it depends on whether the entropy has a gradient."""
    return gather_materials(TRAIN.load([*TINY, f"algorithm.entropy_coefficient={entropy_coefficient}"]))


@cache
def trained(overrides: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """(start, end): all weights of the policy before and after two steps on the same problems."""
    settings = (o if o in PPO or o in ALONE else f"algorithm.{o}" for o in overrides)
    config = TRAIN.load([*TINY, *settings])
    materials = loaded(config.algorithm.entropy_coefficient)
    prompts = materials.train_prompts
    places = {prompt.problem.id: i for i, prompt in enumerate(prompts)}
    materials = replace(materials, scorer=Paid(places), policy=deepcopy(materials.policy))
    with TemporaryDirectory() as folder:
        session = make_session(config, materials, make_accelerator(config), Path(folder), print)
    session.loop.collector.engine = OwnProbabilities(session.loop.collector.engine)

    def weights() -> Tensor:
        return torch.cat([p.detach().reshape(-1).clone() for p in materials.policy.parameters()])

    start = weights()
    for step in (1, 2):
        # The extra round of dynamic sampling finds problems whose completions differ.
        session.loop.step(step, prompts[:P], lambda _: [prompts[P], prompts[P + 2]])
    return start, weights()


@pytest.fixture(autouse=True)
def _cache(program_env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", program_env["PLUMBLINE_CACHE"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.change)
def test_trap_08_every_option_reaches_the_weights(row: Row) -> None:
    start, before = trained((*row.base, *row.against))
    start_of_changed, after = trained((*row.base, *row.beside, row.change))
    assert torch.equal(start, start_of_changed)
    assert before.isfinite().all()
    assert after.isfinite().all()
    # Relative to the way that the weights went; without effect the two runs are equal to the bit.
    assert (after - before).norm() > 1e-3 * (before - start).norm() > 0


def test_equal_settings_give_equal_weights_to_the_bit() -> None:
    _, once = trained(())
    _, again = trained.__wrapped__(())
    assert torch.equal(once, again)


def test_every_option_and_every_choice_has_a_row() -> None:
    plain = TRAIN.load().algorithm
    names = [field.name for field in fields(AlgorithmConfig)]
    names += [f"value.{field.name}" for field in fields(ValueConfig)]
    assert {row.option for row in ROWS} == set(names)
    values = {row.change for row in ROWS}
    for field in fields(AlgorithmConfig):
        bounds = field.metadata.get("bounds")
        for choice in bounds.choices if bounds is not None else ():
            assert choice == getattr(plain, field.name) or f"{field.name}={choice}" in values


@pytest.mark.parametrize("beside", [(), ("baseline=none",), ("baseline=none", "scale=none")])
def test_groups_of_one_are_trained_on_where_completions_are_compared_over_the_step(
    beside: tuple[str, ...],
) -> None:
    start, end = trained((*ALONE, *beside))
    assert end.isfinite().all()
    assert not torch.equal(start, end)
