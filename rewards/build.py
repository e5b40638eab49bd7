"""Configuration -> scorers: the only place where a `_target_` of conf/reward becomes an object.

Every scorer's settings are bound to its signature before anything is constructed, and all faults are told at
once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, cast, get_type_hints

from rewards.composite import Component, Composite, mix_problems
from rewards.config import RewardConfig
from rewards.errors import ConfigError
from rewards.options import fits, in_words, suggest


def build_scorer(reward: RewardConfig) -> Composite:
    """The scorer that a resolved `reward` node describes.

    Raises:
        ConfigError: for unknown classes, keys, types or gates, one line each; or from a scorer's constructor.
    """
    check_reward(reward)
    return Composite(
        {
            name: Component(component.weight, build(component.scorer), component.gate)
            for name, component in reward.components.items()
        }
    )


def build(node: Mapping[str, Any], where: str = "node") -> Any:
    """The object that a resolved node with a `_target_` describes, nested nodes first.

    Args:
        node: plain values.
        where: the node's place in the configuration, for messages.

    Raises:
        ConfigError: as `build_scorer`.
    """
    problems = list(node_problems(node, where))
    if problems:
        raise ConfigError("\n".join(problems))
    settings = {key: value for key, value in node.items() if key != "_target_"}
    nested = {
        key: build(inner, f"{where}.{key}")
        for key, value in settings.items()
        if (inner := _as_node(value)) is not None
    }
    return locate(node["_target_"])(**settings | nested)


def check_reward(reward: RewardConfig) -> None:
    """Raises ConfigError with one line for everything that is wrong with a resolved `reward` node."""
    components = reward.components
    problems = mix_problems(
        {name: component.weight for name, component in components.items()},
        {name: component.gate for name, component in components.items()},
    )
    for name, component in components.items():
        problems += node_problems(component.scorer, f"reward.components.{name}.scorer")
    if problems:
        raise ConfigError("\n".join(problems))


def node_problems(node: Mapping[str, Any], where: str) -> Iterator[str]:
    """What keeps a node from being built: its class; unknown, missing or mistyped settings, also nested."""
    path = node.get("_target_")
    if not isinstance(path, str):
        yield f"{where}._target_: expected the path of a class, such as package.module.Class"
        return
    try:
        target = locate(path)
    except ConfigError as error:
        yield f"{where}._target_={path}: {error}"
        return
    parameters = inspect.signature(target).parameters
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    settings = {key: value for key, value in node.items() if key != "_target_"}
    for key, value in settings.items():
        if key not in parameters:
            known = ", ".join(parameters) or "none"
            yield f"{where}.{key}: {path} has no such setting; it has {known}{suggest(key, parameters)}"
        elif (nested := _as_node(value)) is not None:
            yield from node_problems(nested, f"{where}.{key}")
        elif not fits(value, hints.get(key, Any)):
            yield f"{where}.{key}={value}: expected {in_words(hints[key])}"
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in settings:
            yield f"{where}.{key}: {path} needs this setting"


def _as_node(value: object) -> Mapping[str, Any] | None:
    if not isinstance(value, dict):
        return None
    node = cast(dict[str, Any], value)
    return node if "_target_" in node else None


def locate(path: str) -> Callable[..., Any]:
    """The class or function at a dotted path.

    Raises:
        ConfigError: naming the part that does not exist and the nearest that does.
    """
    module_name, _, name = path.rpartition(".")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"cannot import '{module_name}': {error}") from error
    except ValueError as error:
        raise ConfigError("expected package.module.Class") from error
    if name not in vars(module):
        raise ConfigError(f"no '{name}' in {module_name}{suggest(name, vars(module))}")
    return vars(module)[name]
