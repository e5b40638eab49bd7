"""The replay buffer fed by the trainer's own loop: what it samples and scores is what comes back."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo.config import TRAIN
from grpo.loop import StepResult
from grpo.materials import gather_materials
from grpo.session import make_accelerator, make_session
from grpo.summaries import is_correct
from rewards.replay import ReplayBuffer, ReplayGroup, ReplaySettings

P, G, STEPS_A_ROUND = 3, 4, 2
TINY = (
    "device=cpu",
    "model.hidden_size=32",
    "model.layers=1",
    "data.train_size=32",
    "data.eval_size=8",
    "coldstart.steps=0",
    f"rollout.prompts_per_step={P}",
    f"rollout.group_size={G}",
    "rollout.max_completion_tokens=12",
)


def replay_groups(result: StepResult, number: int) -> list[ReplayGroup]:
    return [
        ReplayGroup(
            tuple(completion.sample for completion in group.completions),
            scores,
            tuple(is_correct(score) for score in scores),
            reward_version="verifiable",
            round=number,
        )
        for group, scores in zip(result.groups, result.scores, strict=True)
    ]


def test_the_groups_of_real_steps_come_back_whole(
    tmp_path: Path, program_env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", program_env["PLUMBLINE_CACHE"])
    config = TRAIN.load([*TINY, "reward=verifiable+format"])
    materials = gather_materials(config)
    session = make_session(config, materials, make_accelerator(config), tmp_path, print)
    rules = ReplaySettings(seed=config.seed)
    held_out = [prompt.problem.prompt for prompt in materials.heldout_prompts]
    buffer = ReplayBuffer(tmp_path, rules, evaluation=held_out)
    added: list[ReplayGroup] = []
    for step in range(1, 3 * STEPS_A_ROUND + 1):
        number = (step - 1) // STEPS_A_ROUND  # the policy moves within a round, never within a group
        prompts = [materials.train_prompts[i] for i in session.order.batch(step - 1, P)]
        groups = replay_groups(session.loop.step(step, prompts, lambda _: []), number)
        assert [len(group.samples) for group in groups] == [G] * P
        buffer.add(groups)
        added += groups
        if step % STEPS_A_ROUND == 0:
            buffer.finish_round()

    assert buffer.refused == 0, "the trainer's own problems are not held-out ones"
    assert list(buffer.groups()) == added
    assert {group.policy_version for group in buffer.groups()} == set(range(1, 7))
    drawn = buffer.draw(10)
    assert (len(drawn.new), len(drawn.old)) == (9, 1)
    stored = {
        (group.round, sample.policy_version, sample.problem.id, sample.index): (sample, score, label)
        for group in added
        for sample, score, label in zip(group.samples, group.scores, group.labels, strict=True)
    }
    for one in (*drawn.new, *drawn.old):
        place = (one.round, one.sample.policy_version, one.sample.problem.id, one.sample.index)
        assert (one.sample, one.score, one.label) == stored[place]
    assert ReplayBuffer(tmp_path, rules, evaluation=held_out).draw(10) == drawn
