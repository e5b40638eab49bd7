"""The schema of conf/train.yaml, where every setting is explained, and the checks across settings.

Importable without torch, so that a wrong setting is refused before anything heavy loads. Values come from the
yaml files alone: no default stands here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from grpo.algorithm import BATCH_WIDE, GROUP_BASELINES, VALUE, AlgorithmConfig, check_algorithm
from grpo.credit_config import CreditConfig, check_steps, credit_problems
from grpo.iterate_config import IterateConfig, iterate_problems
from grpo.learned import FITTED, KIND_OF, learned_parts
from grpo.watch_config import WatchConfig, watch_problems
from rewards.build import build, check_reward
from rewards.config import Program, RewardConfig
from rewards.errors import ConfigError
from rewards.options import option

HASH_LEFT_OUT = ("resume", "output_dir", "label", "dry_run", "log")
"""Settings that change nothing about what is computed, only where it goes or whether it starts."""
PENALTIES = ("rewards.verifiers.length.LengthVerifier", "rewards.verifiers.repetition.RepetitionVerifier")
"""The classes that score from below 0 up to 0."""


@dataclass
class ModelConfig:
    """The policy. name belongs to kind=hub; hidden_size, layers and heads to kind=tiny."""

    kind: str = option("tiny", "hub")
    name: str | None = option()
    precision: str = option("fp32", "bf16")
    gradient_checkpointing: bool = option()
    lora_rank: int = option(at_least=0)
    hidden_size: int | None = option(at_least=1)
    layers: int | None = option(at_least=1)
    heads: int | None = option(at_least=1)


@dataclass
class ColdstartConfig:
    """The supervised phase before the reinforcement."""

    steps: int = option(at_least=0)
    batch_size: int = option(at_least=1)
    learning_rate: float = option(above=0)


@dataclass
class DataConfig:
    """The problems. max_operand, terms and slip_rate belong to dataset=arithmetic."""

    dataset: str = option("arithmetic", "gsm8k", "math", "jsonl")
    path: str | None = option()
    eval_path: str | None = option()
    train_size: int | None = option(at_least=1)
    eval_size: int = option(at_least=1)
    max_operand: int | None = option(at_least=1)
    terms: int | None = option(at_least=2, at_most=8)
    slip_rate: float | None = option(at_least=0, at_most=1)
    strict: bool = option()
    max_invalid_share: float = option(at_least=0, at_most=1)
    max_prompt_tokens: int = option(at_least=1)


@dataclass
class RolloutConfig:
    """What is sampled in a step."""

    prompts_per_step: int = option(at_least=1)
    group_size: int = option(at_least=1)
    temperature: float = option(above=0)
    max_completion_tokens: int = option(at_least=1)
    decode_rows: int = option(at_least=1)
    dump: bool = option()
    replay: str | None = option()


@dataclass
class OptimConfig:
    """How the gradient becomes an update."""

    learning_rate: float = option(above=0)
    warmup_steps: int = option(at_least=0)
    schedule: str = option("constant", "linear", "cosine")
    weight_decay: float = option(at_least=0)
    max_grad_norm: float = option(above=0)
    micro_batch_rows: int = option(at_least=1)
    micro_batch_tokens: int | None = option(at_least=1)
    on_nonfinite: str = option("stop", "skip")


@dataclass
class EvalConfig:
    """The measurement on held-out problems."""

    every: int = option(at_least=0)
    samples: int = option(at_least=1)


@dataclass
class LogConfig:
    """What is shown and sent beside metrics.jsonl."""

    completions: int = option(at_least=0)
    trackers: list[str] = field(default_factory=list[str])


@dataclass
class CheckpointConfig:
    """What is kept to resume from."""

    every: int = option(at_least=1)
    keep_last: int = option(at_least=1)
    keep_best: bool = option()


@dataclass
class TrainConfig:
    """The whole."""

    seed: int = option(at_least=0)
    steps: int = option(at_least=1)
    output_dir: str = option()
    label: str = option()
    resume: str = option()
    dry_run: bool = option()
    max_failed_share: float = option(at_least=0, at_most=1)
    device: str = option()
    model: ModelConfig = field(default_factory=ModelConfig)
    coldstart: ColdstartConfig = field(default_factory=ColdstartConfig)
    data: DataConfig = field(default_factory=DataConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    iterate: IterateConfig | None = option()  # noqa: RUF009 a field, as the others


def check(config: TrainConfig) -> None:
    """Refuses settings that contradict each other or would have no effect.

    Raises:
        ConfigError: one line for each, with the remedy.
    """
    problems = [
        *_model_problems(config.model),
        *data_problems(config.data),
        *_run_problems(config),
        *_comparison_problems(config),
        *place_problems(config.device, config.label),
        *iterate_problems(
            config.iterate, config.reward, steps=config.steps, kl=config.algorithm.kl_coefficient
        ),
        *watch_problems(
            config.watch, refits=config.iterate is not None and bool(learned_parts(config.reward))
        ),
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    build(config.format, "format")
    check_reward(config.reward)
    paid = [part for part in config.reward.components.values() if part.weight != 0]
    check_algorithm(config.algorithm, components=len(paid), credit=config.credit.source)
    check_steps(config.credit, config.reward)


def settle_paths(config: DictConfig) -> None:
    """Gives FITTED to reward models without a path, where the run iterates; otherwise a path stays wanted."""
    if config.iterate is None:
        return
    for component in config.reward.components.values():
        place = OmegaConf.select(component, "scorer.model")
        if component.scorer.get("_target_") in KIND_OF and OmegaConf.is_missing(place, "path"):
            place.path = FITTED


TRAIN = Program("train", TrainConfig, check, settle_paths)


def config_hash(config: TrainConfig) -> str:
    """12 hexadecimal digits that name what a run computes: equal for equal settings in any order."""
    facts = {key: value for key, value in asdict(config).items() if key not in HASH_LEFT_OUT}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def cold_start_hash(config: TrainConfig) -> str:
    """The same for what a cold start is made from: equal over rewards, algorithms and lengths of a run."""
    facts = asdict(config)
    own = {key: facts[key] for key in ("seed", "model", "coldstart", "data", "format")}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:12]


def to_yaml(config: TrainConfig) -> str:
    """The resolved configuration as text, for a run's config.yaml."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _model_problems(model: ModelConfig) -> Iterator[str]:
    shape = {"hidden_size": model.hidden_size, "layers": model.layers, "heads": model.heads}
    if model.kind == "hub":
        if model.name is None:
            yield "model.name: model=hub needs a name or a path, e.g. model.name=Qwen/Qwen2.5-0.5B-Instruct"
        for key, value in shape.items():
            if value is not None:
                yield f"model.{key}={value}: a hub model has its own shape; leave it out, or use model=tiny"
        return
    if model.name is not None:
        yield f"model.name={model.name}: the tiny model is made on the spot; use model=hub to load one"
    for key, value in shape.items():
        if value is None:
            yield f"model.{key}=null: expected a number, model=tiny is made from it"
    if model.hidden_size and model.heads and model.hidden_size % (2 * model.heads):
        yield (
            f"model.hidden_size={model.hidden_size}: expected a multiple of twice model.heads={model.heads}, "
            "each head rotates pairs of numbers"
        )


def data_problems(data: DataConfig) -> Iterator[str]:
    """One line for every setting under `data` that its dataset lacks or cannot use."""
    own = {"max_operand": data.max_operand, "terms": data.terms, "slip_rate": data.slip_rate}
    if data.dataset == "arithmetic":
        for key, value in {"path": data.path, "eval_path": data.eval_path}.items():
            if value is not None:
                yield f"data.{key}={value}: sums are made on the spot; use data=jsonl to read a file"
        for key, value in own.items():
            if value is None:
                yield f"data.{key}=null: expected a number, data=arithmetic is made from it"
        if data.train_size is None:
            yield "data.train_size=null: expected a number, data=arithmetic is made from it"
    else:
        for key, value in own.items():
            if value is not None:
                yield f"data.{key}={value}: only data=arithmetic has it; leave it null"
    if data.dataset == "jsonl" and data.path is None:
        yield "data.path: data=jsonl needs a file of problems, e.g. data.path=problems.jsonl"


def _run_problems(config: TrainConfig) -> Iterator[str]:
    rollout = config.rollout
    if config.data.dataset != "arithmetic" and config.coldstart.steps > 0:
        yield (
            f"coldstart.steps={config.coldstart.steps}: data={config.data.dataset} has no worked thoughts to "
            "learn the layout from; use model=hub, or set coldstart.steps=0"
        )
    yield from credit_problems(config.credit)
    if config.algorithm.baseline == VALUE and config.credit.source != "outcome":
        yield (
            f"credit.source={config.credit.source}: with algorithm.baseline={VALUE} the value model decides "
            "what each token is worth; set credit=outcome"
        )
    if config.optim.warmup_steps >= config.steps:
        yield (
            f"optim.warmup_steps={config.optim.warmup_steps}: expected fewer than steps={config.steps}, "
            "or the learning rate never reaches its peak"
        )
    train_size = config.data.train_size
    if train_size is not None and rollout.prompts_per_step > train_size:
        yield (
            f"rollout.prompts_per_step={rollout.prompts_per_step}: expected at most "
            f"data.train_size={train_size}, a step holds no problem twice"
        )


def _comparison_problems(config: TrainConfig) -> Iterator[str]:
    """What is compared with too few others, or with others of the wrong sign."""
    rollout, algorithm, source = config.rollout, config.algorithm, config.credit.source
    few = f"rollout.group_size={rollout.group_size}: expected >= 2, because"
    if rollout.group_size < 2 and algorithm.baseline in GROUP_BASELINES:
        yield f"{few} a completion is compared with the others of its prompt"
    elif rollout.group_size < 2 and source != "outcome" and algorithm.baseline != VALUE:
        yield f"{few} with credit={source} a step is compared with those of the prompt's other completions"
    if rollout.group_size == 2 and algorithm.scale == "leave_one_out_std":
        yield (
            "algorithm.scale=leave_one_out_std: with rollout.group_size=2 there is one other completion, "
            "whose spread is always 0; set rollout.group_size above 2, or algorithm.scale=none"
        )
    if rollout.prompts_per_step * rollout.group_size < 2:
        for key, value in {"baseline": algorithm.baseline, "scale": algorithm.scale}.items():
            if value in BATCH_WIDE:
                yield (
                    f"algorithm.{key}={value}: with rollout.prompts_per_step=1 and rollout.group_size=1 "
                    f"there is nothing to compare with; raise one of them, or set algorithm.{key}=none"
                )
    if algorithm.scale == "group_mean":
        for name, part in config.reward.components.items():
            penalises = (part.scorer.get("_target_") in PENALTIES) != (part.weight < 0)
            shielded = part.gate is not None and algorithm.combine == "sum_then_normalize"
            if penalises and part.weight != 0 and not shielded:
                yield (
                    f"algorithm.scale=group_mean: reward component '{name}' makes rewards negative, and they "
                    "cannot be divided by their mean; use algorithm.scale=group_std, or not this reward"
                )


def place_problems(device: str, label: str) -> Iterator[str]:
    """What is wrong with the device of a program, or with the label of its folder."""
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdigit())):
        yield f"device={device}: expected auto, cpu, cuda or cuda:N"
    if not label or not all(letter.isalnum() or letter in "._-" for letter in label):
        yield f"label={label!r}: expected letters, digits, '.', '_' or '-', it names a folder"
