"""Every yaml under conf is loaded, every key explained, every reward mixed with every other."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose
from omegaconf import DictConfig, OmegaConf
from reward_needs import REWARD_NEEDS

import conf
from data_prep.run import PROGRAM as DATA_PREP
from grpo.algorithm import AlgorithmConfig
from grpo.config import TRAIN, config_hash, to_yaml
from grpo.evaluate_config import EVALUATE
from rewards.audit_config import AUDIT
from rewards.build import build, build_scorer
from rewards.config import SCORER, Program
from rewards.evaluate_config import EVALUATION
from rewards.fit_config import FIT
from rewards.overrides import composing
from rewards.score_config import SCORE

CONF = Path(conf.__file__).parent
FILES = sorted(CONF.rglob("*.yaml"))
PROGRAMS: dict[str, Program[Any]] = {
    program.config_name: program
    for program in (TRAIN, SCORE, SCORER, DATA_PREP, AUDIT, EVALUATE, EVALUATION, FIT)
}
NEEDED = {
    "audit": ["data=jsonl", "data.path=problems.jsonl"],
    "score": ["input=in.jsonl", "output=out.jsonl"],
    "evaluate": ["model.path=some/model"],
    "measure": ["protocol=auc", "input=in.jsonl"],
    "fit": ["data=labelled.jsonl", "base=some/model", "output=folder"],
    "data_prep": ["dataset=arithmetic", "output=sums"],
}
"""What a program cannot do without."""
TRAIN_NEEDS = {
    ("model", "hub"): ["model.name=some/model"],
    ("data", "gsm8k"): ["coldstart.steps=0"],
    ("data", "math"): ["coldstart.steps=0"],
    ("data", "jsonl"): ["coldstart.steps=0", "data.path=problems.jsonl"],
    ("credit", "process"): ["reward=arithmetic_steps"],
    ("credit", "both"): ["reward=verifiable+arithmetic_steps"],
    ("iterate", "deepseekmath"): ["reward=orm"],
    **{("reward", name): needs for name, needs in REWARD_NEEDS.items()},
}
"""What a choice of the training program cannot do without."""
SIZES = CONF / "iterate" / "sizes"
"""Chosen by the names of another choice and of the model, never by hand."""
NO_GROUPS = (CONF, CONF / "hydra", CONF / "fit", SIZES)
CHOICES = [(path.parent.name, path.stem) for path in FILES if path.parent not in NO_GROUPS]
REWARDS = [name for group, name in CHOICES if group == "reward"]


def needs_of(*rewards: str) -> list[str]:
    return [override for name in rewards for override in REWARD_NEEDS.get(name, [])]


def names(files: list[Path]) -> list[str]:
    return [str(path.relative_to(CONF)) for path in files]


def composed(name: str, *overrides: str) -> DictConfig:
    """A program's configuration with Hydra's own part, nothing resolved."""
    PROGRAMS[name].register()
    with composing(PROGRAMS[name].folder):
        return compose(name, list(overrides), return_hydra_config=True)


def leaves(node: Any) -> int:
    """Values of a container that hold no others; a list is one, and so is a reference to another node."""
    return sum(map(leaves, node.values())) if isinstance(node, dict) else 1


def keys_with_lines(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """Every key, and every entry of a defaults list, with the number of its line counted from 0."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, key.start_mark.line
            yield from keys_with_lines(value)
    elif isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            # `_self_` says nothing of its own; a mapping yields its key above.
            if isinstance(entry, yaml.MappingNode):
                yield from keys_with_lines(entry)


def test_every_top_level_yaml_belongs_to_a_program() -> None:
    assert {path.stem for path in (*CONF.glob("*.yaml"), *CONF.glob("fit/*.yaml"))} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_loads_and_is_typed(name: str) -> None:
    loaded = PROGRAMS[name].load(NEEDED.get(name, []))
    assert type(loaded) is PROGRAMS[name].schema


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_loads_in_training(group: str, name: str) -> None:
    loaded = TRAIN.load([f"{group}={name}", *TRAIN_NEEDS.get((group, name), [])])
    if group in ("model", "data"):
        assert vars(getattr(loaded, group))[{"model": "kind", "data": "dataset"}[group]] == name
    build(loaded.format)
    build_scorer(loaded.reward)


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_every_key_has_a_comment_above(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    root = yaml.compose("\n".join(lines))
    assert root is not None
    bare = [
        f"{path.name}:{line + 1}: {key}"
        for key, line in keys_with_lines(root)
        if line == 0 or not lines[line - 1].lstrip().startswith("# ") or "@package" in lines[line - 1]
    ]
    assert bare == []


@pytest.mark.parametrize("path", sorted(SIZES.glob("*.yaml")), ids=lambda path: path.stem)
def test_sizes_are_of_a_loop_and_a_model_that_there_are(path: Path) -> None:
    loop, _, model = path.stem.rpartition("_")
    assert (CONF / "iterate" / f"{loop}.yaml").exists()
    assert (CONF / "model" / f"{model}.yaml").exists()
    chosen = TRAIN.load([f"iterate={loop}", f"model={model}", *TRAIN_NEEDS["iterate", loop]])
    assert (
        OmegaConf.create(to_yaml(chosen)).iterate
        == OmegaConf.merge(OmegaConf.create(to_yaml(chosen)), OmegaConf.load(path)).iterate
    )


def test_no_setting_of_training_is_left_without_a_value() -> None:
    assert {key for key in OmegaConf.missing_keys(composed("train")) if not key.startswith("hydra.")} == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_settings_are_few(name: str) -> None:
    container = OmegaConf.to_container(composed(name, *NEEDED.get(name, [])))
    assert isinstance(container, dict)
    del container["hydra"]
    assert leaves(container) < 100


def test_leaves_are_counted() -> None:
    assert leaves({"a": 1, "b": {"c": [1, 2], "d": "${a}"}}) == 3


@pytest.mark.parametrize("path", sorted(CONF.glob("algorithm/*.yaml")), ids=lambda path: path.stem)
def test_every_algorithm_gives_every_setting(path: Path) -> None:
    assert set(yaml.safe_load(path.read_text())) == {
        field.name for field in dataclasses.fields(AlgorithmConfig)
    }


@pytest.mark.parametrize("pair", itertools.combinations(REWARDS, 2), ids="+".join)
def test_any_two_rewards_mix_in_any_order(pair: tuple[str, str]) -> None:
    first, second = pair
    needs = needs_of(*pair)
    mixed = SCORER.load([f"reward={first}+{second}", *needs])
    for written in (f"{second}+{first}", f"[{first},{second}]"):
        assert SCORER.load([f"reward={written}", *needs]) == mixed
    parts = [SCORER.load([f"reward={name}", *needs_of(name)]).reward.components for name in pair]
    assert mixed.reward.components == parts[0] | parts[1]


def test_all_rewards_mix_at_once() -> None:
    mixed = SCORER.load(["reward=" + "+".join(REWARDS), *needs_of(*REWARDS)])
    assert len(mixed.reward.components) >= len(REWARDS)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "scorer"])
def test_hydra_makes_no_folder_and_no_log(name: str) -> None:
    hydra = composed(name, *NEEDED.get(name, [])).hydra
    assert (hydra.run.dir, hydra.sweep.subdir, hydra.output_subdir) == (".", ".", None)
    for logging in (hydra.job_logging, hydra.hydra_logging):
        assert (logging.root, logging.disable_existing_loggers) == (None, False)
    assert not hydra.job.chdir


def test_a_right_answer_out_of_layout_beats_a_wrong_one_in_layout() -> None:
    loaded = TRAIN.load()
    weights = {name: component.weight for name, component in loaded.reward.components.items()}
    assert weights["accuracy"] > sum(weight for name, weight in weights.items() if name != "accuracy")


def test_the_config_written_to_a_run_names_the_same_run() -> None:
    loaded = TRAIN.load(["seed=3", "reward=verifiable"])
    again = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(TRAIN.schema), OmegaConf.create(to_yaml(loaded)))
    )
    assert again == loaded
    assert config_hash(again) == config_hash(loaded)
