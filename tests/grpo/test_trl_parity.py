"""Our advantages and losses equal TRL 1.16's own, to 1e-6, on random inputs; skipped without TRL.

TRL's loss method and the advantage statements of its rollout method are run as installed, with a stand-in for
the trainer that hands out fixed log-probs: no model, no data, nothing of TRL is kept here.
"""

from __future__ import annotations

import ast
import collections
import inspect
import textwrap
import types
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from grpo.advantage import AdvantageSettings, outcome_advantages
from grpo.batch import row_weights, step_totals
from grpo.kl import token_kl_penalty
from grpo.loss import LossSettings, policy_loss
from grpo.types import LossInputs

NAN = float("nan")
MAX_LENGTH = 10


@pytest.fixture(scope="module")
def trl() -> types.SimpleNamespace:
    """TRL's two trainers with the modules their code lives in."""
    pytest.importorskip("trl", minversion="1.16")
    from trl.trainer import grpo_trainer, rloo_trainer  # takes seconds, so only when a test asks

    return types.SimpleNamespace(grpo=grpo_trainer, rloo=rloo_trainer)


@dataclass(frozen=True)
class Rows:
    """Random rows of a step: (B, T) float64 tensors, one advantage a row."""

    logprobs: Tensor
    old: Tensor
    ref: Tensor
    sampling: Tensor
    entropy: Tensor
    mask: Tensor
    advantages: Tensor


def random_rows(seed: int) -> Rows:
    g = torch.Generator().manual_seed(seed)

    def draw(scale: float, *shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=g, dtype=torch.float64)

    logprobs = -draw(1.5, 5, 6).abs()
    lengths = torch.randint(1, 7, (5,), generator=g)
    return Rows(
        logprobs,
        logprobs + draw(0.3, 5, 6),
        logprobs + draw(0.3, 5, 6),
        logprobs + draw(0.3, 5, 6),
        draw(1.0, 5, 6).abs(),
        torch.arange(6) < lengths[:, None],
        draw(1.0, 5),
    )


def ours(
    rows: Rows, aggregation: str, settings: LossSettings, on_policy: bool = False
) -> tuple[Tensor, Tensor]:
    """(loss, gradient) of our code."""
    lengths, index = rows.mask.sum(1), torch.arange(5)
    leaf = rows.logprobs.clone().requires_grad_(True)
    inputs = LossInputs(
        leaf,
        None if on_policy else rows.old,
        rows.ref,
        rows.advantages[:, None].expand(5, 6),
        rows.mask,
        row_weights(lengths, index, aggregation, MAX_LENGTH, step_totals(lengths, index)),
        rows.sampling,
        rows.entropy,
    )
    loss = policy_loss(inputs, settings).loss
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad


class OneProcess:
    """The accelerator of a run with one process."""

    num_processes = 1
    sync_gradients = True

    def gather(self, x: Tensor) -> Tensor:
        return x

    def reduce(self, x: Tensor, reduction: str = "sum") -> Tensor:
        return x


def stand_in(leaf: Tensor, entropy: Tensor, loss_type: str, **settings: object) -> types.SimpleNamespace:
    """What TRL's loss methods read of their trainer; settings override the defaults below."""
    arguments = {
        "delta": None,
        "use_bias_correction_kl": False,
        "sapo_temperature_pos": 1.0,
        "sapo_temperature_neg": 1.05,
        "steps_per_generation": 1,
    }
    trainer = {
        "_get_per_token_logps_and_entropies": lambda *args, **kwargs: (leaf, entropy, None),
        "accelerator": OneProcess(),
        "model": types.SimpleNamespace(training=True),
        "_metrics": {"train": collections.defaultdict(list)},
        "loss_type": loss_type,
        "beta": 0.0,
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "max_completion_length": MAX_LENGTH,
        "current_gradient_accumulation_steps": 1,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False,
        "use_adaptive_entropy": False,
    }
    trainer |= {name: value for name, value in settings.items() if name not in arguments}
    arguments |= {name: value for name, value in settings.items() if name in arguments}
    return types.SimpleNamespace(**trainer, args=types.SimpleNamespace(**arguments))


def theirs(
    trl: types.SimpleNamespace, rows: Rows, loss_type: str, on_policy: bool = False, **settings: object
) -> tuple[Tensor, Tensor]:
    """(loss, gradient) of TRL's code."""
    leaf = rows.logprobs.clone().requires_grad_(True)
    mask = rows.mask.long()
    inputs = {
        "prompt_ids": torch.zeros(5, 1, dtype=torch.long),
        "prompt_mask": torch.ones(5, 1, dtype=torch.long),
        "completion_ids": torch.zeros(5, 6, dtype=torch.long),
        "completion_mask": mask,
        "advantages": rows.advantages,
        "num_items_in_batch": mask.sum(),
        "ref_per_token_logps": rows.ref,
        "importance_sampling_ratio": (rows.old - rows.sampling).exp().clamp(max=1.2),
        "old_per_token_logps": None if on_policy else rows.old,
    }
    trainer = stand_in(leaf, rows.entropy, loss_type, **settings)
    loss = trl.grpo.GRPOTrainer._compute_loss(trainer, None, inputs)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad


BOUNDS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
VLLM = {"use_vllm": True, "vllm_importance_sampling_correction": True}
CASES = {
    "grpo": ("sequence_mean", {"clip_high": 0.28}, "grpo", BOUNDS),
    "bnpo": ("token_mean", {"clip_high": 0.28}, "bnpo", BOUNDS),
    "dapo": ("token_mean", {"clip_high": 0.28}, "dapo", BOUNDS),
    "dr_grpo": ("constant", {"clip_high": 0.28}, "dr_grpo", BOUNDS),
    "dual clip is delta": ("token_mean", {"dual_clip": 1.5}, "dapo", {"delta": 1.5}),
    "gspo": (
        "sequence_mean",
        {"ratio": "sequence", "clip_low": 3e-2, "clip_high": 4e-2},
        "grpo",
        {"importance_sampling_level": "sequence", "epsilon_low": 3e-2, "epsilon_high": 4e-2},
    ),
    "luspo": (
        "sequence_sum",
        {"ratio": "sequence"},
        "luspo",
        {"importance_sampling_level": "sequence"},
    ),
    "cispo": (
        "token_mean",
        {"objective": "cispo", "clip_low": 1.0, "clip_high": 0.2},
        "cispo",
        {"epsilon_high": 1.2},  # an absolute cap there, a distance from 1 here
    ),
    "sapo": (
        "sequence_mean",
        {"objective": "sapo", "clip_low": None, "clip_high": None},
        "sapo",
        {},
    ),
    "k3": ("sequence_mean", {"kl_coefficient": 0.04}, "grpo", {"beta": 0.04}),
    "k3 corrected": (
        "token_mean",
        {"kl_coefficient": 0.04, "kl_estimator": "k3_corrected"},
        "dapo",
        {"beta": 0.04, "use_bias_correction_kl": True},
    ),
    "k3 corrected, sequence ratio": (
        "sequence_mean",
        {"kl_coefficient": 0.04, "kl_estimator": "k3_corrected", "ratio": "sequence"},
        "grpo",
        {"beta": 0.04, "use_bias_correction_kl": True, "importance_sampling_level": "sequence"},
    ),
    "truncated importance, then KL": (
        "token_mean",
        {"importance_cap": 1.2, "kl_coefficient": 0.04},
        "dapo",
        {"beta": 0.04, **VLLM},
    ),
    "entropy bonus": (
        "token_mean",
        {"entropy_coefficient": 0.1},
        "bnpo",
        {"_entropy_bonus_enabled": True, "entropy_coef": 0.1},
    ),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("case", CASES)
def test_trap_28_loss_and_gradient_equal_trl(trl: types.SimpleNamespace, case: str, seed: int) -> None:
    aggregation, our_settings, loss_type, their_settings = CASES[case]
    rows = random_rows(seed)
    loss, grad = ours(rows, aggregation, LossSettings(**our_settings))
    their_loss, their_grad = theirs(trl, rows, loss_type, **their_settings)
    tolerance = 1e-6 if case == "sapo" else 1e-10  # TRL keeps sapo's temperature 1.05 in float32
    torch.testing.assert_close(loss, their_loss, rtol=0, atol=tolerance)
    torch.testing.assert_close(grad, their_grad, rtol=0, atol=tolerance)


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_trap_29_leaving_the_old_pass_out_equals_trl(trl: types.SimpleNamespace, beta: float) -> None:
    rows = random_rows(3)
    settings = LossSettings(kl_coefficient=beta, kl_estimator="k3_corrected")
    mine = ours(rows, "sequence_mean", settings, on_policy=True)
    other = theirs(trl, rows, "grpo", on_policy=True, beta=beta, use_bias_correction_kl=True)
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_clip_counts_equal_trl(trl: types.SimpleNamespace) -> None:
    rows = random_rows(8)
    trainer = stand_in(rows.logprobs, rows.entropy, "dapo", **BOUNDS, beta=0.04)
    mask = rows.mask.long()
    ids = torch.zeros(5, 6, dtype=torch.long)
    inputs = {"prompt_ids": ids, "prompt_mask": ids, "completion_ids": ids, "completion_mask": mask}
    inputs |= {"advantages": rows.advantages, "num_items_in_batch": mask.sum()}
    inputs |= {"old_per_token_logps": rows.old, "ref_per_token_logps": rows.ref}
    trl.grpo.GRPOTrainer._compute_loss(trainer, None, inputs)
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}

    expanded = rows.advantages[:, None].expand(5, 6)
    loss_inputs = LossInputs(rows.logprobs, rows.old, rows.ref, expanded, rows.mask, torch.ones(5))
    sums = policy_loss(replace(loss_inputs, entropy=rows.entropy), LossSettings(clip_high=0.28)).sums
    means = {name: value.item() / rows.mask.sum().item() for name, value in sums.items()}
    assert means["clip_low"] > 0
    assert means["clip_high"] > 0
    assert means["clip_low"] == pytest.approx(logged["clip_ratio/low_mean"], abs=1e-6)
    assert means["clip_high"] == pytest.approx(logged["clip_ratio/high_mean"], abs=1e-6)
    assert means["kl"] == pytest.approx(logged["kl"], abs=1e-6)
    assert means["entropy"] == pytest.approx(logged["entropy"], abs=1e-6)


def test_rloo_gradient_equals_trl_on_policy(trl: types.SimpleNamespace) -> None:
    rows = random_rows(5)
    leaf = rows.logprobs.clone().requires_grad_(True)
    ids = torch.zeros(5, 6, dtype=torch.long)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": ids,
        "completion_mask": rows.mask.long(),
    }
    inputs |= {"advantages": rows.advantages, "old_logps": (rows.logprobs * rows.mask).sum(1)}
    loss = trl.rloo.RLOOTrainer._compute_loss(stand_in(leaf, rows.entropy, "rloo"), None, inputs)
    (their_grad,) = torch.autograd.grad(loss, leaf)
    _, grad = ours(rows, "sequence_sum", LossSettings(), on_policy=True)
    torch.testing.assert_close(grad, their_grad, rtol=0, atol=1e-10)


# --- advantages ---


def advantage_statements(method: object) -> str:
    """TRL's rollout method from its first statement on unscorable rows to its last on advantages."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))  # type: ignore[arg-type]
    body = tree.body[0].body  # type: ignore[attr-defined]
    texts = [ast.unparse(statement) for statement in body]
    first = next(i for i, text in enumerate(texts) if text.startswith("unscorable_mask ="))
    last = next(i for i, text in enumerate(texts) if text.startswith("advantages = torch.nan_to_num"))
    return "\n".join(texts[first : last + 1])


def their_advantages(
    trl: types.SimpleNamespace, trainer: str, rewards: Tensor, weights: list[float], **settings: object
) -> Tensor:
    """(P, G) advantages by TRL's statements for rewards (P, G, C)."""
    flat = rewards.reshape(-1, rewards.shape[2]).float()
    stand = types.SimpleNamespace(
        reward_weights=torch.tensor(weights),
        reward_funcs=[None] * len(weights),
        reward_clip_range=None,
        normalize_advantages=False,
        multi_objective_aggregation=settings.get("combine", "sum_then_normalize"),
        scale_rewards=settings.get("scale", "group"),
        beta=settings.get("beta", 0.0),
    )
    module = {"grpo": trl.grpo, "rloo": trl.rloo}[trainer]
    cls = {"grpo": "GRPOTrainer", "rloo": "RLOOTrainer"}[trainer]
    names = dict(vars(module))
    names |= {"self": stand, "rewards_per_func": flat, "num_generations": rewards.shape[1], "device": "cpu"}
    names |= {"gather": lambda x: x, "old_per_token_logps": settings.get("old")}
    names |= {"ref_per_token_logps": settings.get("ref"), "completion_mask": settings.get("mask")}
    exec(advantage_statements(vars(module)[cls]._generate_and_score_completions), names)
    return names["advantages"].reshape(rewards.shape[:2])


def random_rewards(seed: int, missing: float) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    rewards = torch.stack(
        [torch.randint(0, 2, (3, 5), generator=g).double(), torch.rand(3, 5, generator=g).double()], dim=2
    )
    rewards[torch.rand(3, 5, 2, generator=g) < missing] = NAN
    return rewards


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {}),
        ({"scale": "batch_std"}, {"scale": "batch"}),
        ({"scale": "none"}, {"scale": "none"}),
        ({"combine": "normalize_then_sum"}, {"combine": "normalize_then_sum"}),
    ],
)
def test_grpo_advantages_equal_trl(
    trl: types.SimpleNamespace, settings: dict[str, str], options: dict[str, str], seed: int, missing: float
) -> None:
    rewards = random_rewards(seed, missing)
    mine = outcome_advantages(rewards, AdvantageSettings(**settings), weights=[1.0, 0.5]).values
    other = their_advantages(trl, "grpo", rewards, [1.0, 0.5], **options)
    torch.testing.assert_close(mine, other, rtol=0, atol=2e-6)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_rloo_advantages_with_kl_in_the_reward_equal_trl(
    trl: types.SimpleNamespace, beta: float, missing: float
) -> None:
    g = torch.Generator().manual_seed(7)
    old = torch.randn(15, 4, generator=g)
    ref = old + 0.2 * torch.randn(15, 4, generator=g)
    mask = torch.arange(4) < torch.randint(1, 5, (15, 1), generator=g)
    rewards = random_rewards(8, missing)[..., :1]
    penalty = token_kl_penalty(old, ref, mask, "k1", beta).sum(1).reshape(3, 5)
    settings = AdvantageSettings(baseline="leave_one_out", scale="none")
    mine = outcome_advantages(rewards[..., 0] - penalty, settings).values
    other = their_advantages(trl, "rloo", rewards, [1.0], beta=beta, old=old, ref=ref, mask=mask)
    torch.testing.assert_close(mine, other, rtol=0, atol=2e-6)


def test_trap_01_where_trl_leaves_a_residue_ours_is_exactly_zero(trl: types.SimpleNamespace) -> None:
    rewards = torch.full((1, 8, 1), 0.7)
    assert outcome_advantages(rewards, AdvantageSettings()).values.count_nonzero() == 0
    residue = their_advantages(trl, "grpo", rewards, [1.0]).abs().max().item()
    assert residue == pytest.approx(5.96e-4, abs=1e-5)
