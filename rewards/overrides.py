"""Composes a configuration from a command line, and says in plain words what is wrong with it.

Hydra and OmegaConf refuse unknown keys and wrong types; here their refusals become one line for each fault,
with what was expected and the nearest valid name. Knows nothing of what the settings mean.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args, get_origin, get_type_hints

from hydra import compose, initialize_config_module
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rewards.config_source import GROUP, mix_names
from rewards.errors import ConfigError
from rewards.options import in_words, suggest

CONF = "conf"
VERSION_BASE = "1.3"
SEARCH_PATH = "hydra.searchpath"
SCORER_CONFIG = "scorer"
"""The smallest configuration with a reward: quick to compose for one reward alone."""
REFUSALS = (HydraException, OmegaConfBaseException, AssertionError)
"""A value below a setting that is null fails an assertion of OmegaConf."""
_one_at_a_time = threading.RLock()
"""Hydra composes through process-wide singletons."""


@contextmanager
def composing(folder: str = CONF) -> Generator[ConfigLoader]:
    """Hydra's composition over a package of yaml; what was set up around it is restored on leaving."""
    with _one_at_a_time, initialize_config_module(folder, version_base=VERSION_BASE):
        yield GlobalHydra.instance().config_loader()


def compose_checked(
    config_name: str, schema: type, overrides: Sequence[str], folder: str = CONF
) -> DictConfig:
    """The composed configuration of one job, interpolations not yet resolved.

    Raises:
        ConfigError: one line for each override at fault.
    """
    with composing(folder) as loader:
        nameless = list(_nameless(_parse(overrides, loader), loader))
        if nameless:
            raise ConfigError("\n".join(nameless))
        try:
            config = compose(config_name, list(overrides))
            clashes = list(_clashes(overrides, loader))
        except REFUSALS as error:
            raise ConfigError("\n".join(_diagnose(config_name, schema, overrides, error))) from error
    if clashes:
        raise ConfigError("\n".join(clashes))
    return config


def alternatives(overrides: Sequence[str], folder: str = CONF) -> list[list[str]]:
    """The jobs that between them hold every value of a sweep: the first values, then each other in turn.

    A sweep is the product of its values, but a value that is wrong is wrong in every job, so that their sum
    is enough to find it. Of an interval its start stands for the whole.

    >>> alternatives(["seed=0,1", "steps=5"])
    [['seed=0', 'steps=5'], ['seed=1', 'steps=5']]
    """
    with composing(folder) as loader:
        choices = [
            _values(override, text)
            for override, text in zip(_parse(overrides, loader), overrides, strict=True)
        ]
    first = [values[0] for values in choices]
    others = [
        [*first[:place], value, *first[place + 1 :]]
        for place, values in enumerate(choices)
        for value in values[1:]
    ]
    return [first, *others]


def _values(override: Override, text: str) -> list[str]:
    if not override.is_sweep_override():
        return [text]
    key = override.get_key_element()
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    interval: Any = override.value()
    return [f"{key}={interval.start}"]


def _parse(overrides: Sequence[str], loader: ConfigLoader) -> list[Override]:
    try:
        return OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
    except OverrideParseException as error:
        key, equals, value = error.override.partition("=")
        quoted = f"; a value with special characters is quoted: {key}='\"{value}\"'" if equals else ""
        raise ConfigError(f"{error.override}: expected key=value{quoted}") from error


def _diagnose(config_name: str, schema: type, overrides: Sequence[str], error: Exception) -> Iterator[str]:
    loader = GlobalHydra.instance().config_loader()
    parsed = _parse(overrides, loader)
    choices = [override for override in parsed if _options(override.key_or_group, parsed, loader)]
    faults = [
        fault
        for override in choices
        for fault in _choice_faults(override, _options(override.key_or_group, parsed, loader))
    ]
    if faults:
        yield from faults
        return
    chosen = [*_search_path(parsed), *(str(override.input_line) for override in choices)]
    try:
        base = compose(config_name, chosen)
    except REFUSALS as refusal:
        yield _first_line(refusal)
        return
    found = False
    for override in parsed:
        if override in choices or override.key_or_group == SEARCH_PATH:
            continue
        try:
            compose(config_name, [*chosen, str(override.input_line)])
        except REFUSALS as refusal:
            found = True
            yield _value_fault(override, base, schema, loader, refusal)
    if not found:
        yield _first_line(error)


def _options(group: str, overrides: Sequence[Override], loader: ConfigLoader) -> list[str]:
    """The names of a group's files, also in folders that the command line adds; empty for no group."""
    return loader.get_group_options(group, config_name=None, overrides=_search_path(overrides))


def _nameless(overrides: Sequence[Override], loader: ConfigLoader) -> Iterator[str]:
    """Choices of files by what is no name, such as `reward=null` and `data=5`: Hydra fails at them."""
    for override in overrides:
        if override.is_delete() or override.is_sweep_override() or isinstance(override.value(), (str, list)):
            continue
        valid = _options(override.key_or_group, overrides, loader)
        if valid:
            yield f"{override.input_line}: expected a name, one of {', '.join(valid)}"


def _search_path(overrides: Sequence[Override]) -> list[str]:
    return [str(override.input_line) for override in overrides if override.key_or_group == SEARCH_PATH]


def _choice_faults(override: Override, valid: Sequence[str]) -> Iterator[str]:
    """What is wrong with a choice of files, such as `data=gsm9k` or `reward=a+b`."""
    group = override.key_or_group
    if override.is_sweep_override():
        yield _needs_multirun(override)
        return
    for name in _chosen(override):
        several = f" (several are joined by +: {group}=a+b)" if group == GROUP else ""
        expected = f"expected one of {', '.join(valid)}{several}"
        if not name:
            yield f"{override.input_line}: a name is missing; {expected}"
        elif name not in valid:
            yield f"{group}={name}: no such {group}; {expected}{suggest(name, valid)}"


def _chosen(override: Override) -> list[str]:
    """The names of files that a choice names, those of a mix apart."""
    value: Any = override.value()
    names = list(map(str, cast(list[Any], value))) if isinstance(value, list) else [str(value)]
    return [part for name in names for part in mix_names(name)] if override.key_or_group == GROUP else names


def _needs_multirun(override: Override) -> str:
    key = override.key_or_group
    return f"{override.input_line}: several values are a multirun (add -m); a list is written {key}=[a,b]"


def _clashes(overrides: Sequence[str], loader: ConfigLoader) -> Iterator[str]:
    """Two rewards of a mix that name a component alike: the later would silently replace the earlier."""
    parsed = _parse(overrides, loader)
    search_path = _search_path(parsed)
    for override in parsed:
        if override.key_or_group != GROUP or override.is_delete():
            continue
        parts = _chosen(override)
        if len(set(parts)) < len(parts):
            yield f"{override.input_line}: a reward is named twice; name each once"
            return
        owner: dict[str, str] = {}
        for part in parts if len(parts) > 1 else ():
            for component in compose(SCORER_CONFIG, [*search_path, f"{GROUP}={part}"]).reward.components:
                if component in owner:
                    both = f"{owner[component]} and {part} both have a component '{component}'"
                    yield f"{override.input_line}: {both}; choose one of them"
                owner[component] = part


def _value_fault(
    override: Override, base: DictConfig, schema: type, loader: ConfigLoader, refusal: Exception
) -> str:
    """What is wrong with one value, such as `stepz=5` or `steps=many`."""
    key, text = override.key_or_group, str(override.input_line)
    if override.is_sweep_override():
        return _needs_multirun(override)
    if override.is_add() or override.is_delete() or key.startswith("hydra."):
        return f"{text}: {_first_line(refusal)}"
    known = list(_keys(OmegaConf.to_container(base)))
    if key not in known:
        if (parent := key.rpartition(".")[0]) in known and OmegaConf.select(base, parent) is None:
            return f"{text}: {parent} is null here and has no settings; choose the parts that give it some"
        groups = [group for group in loader.list_groups("") if group != "hydra"]
        near = suggest(key, [*known, *groups]) or _siblings(key, base)
        return f"{text}: unknown option '{key}'{near}"
    hint = _hint(schema, key.split("."))
    expected = f"expected {in_words(hint)}" if hint is not Any else _first_line(refusal)
    return f"{text}: {expected}"


def _keys(node: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in cast(dict[str, Any], node).items():
            yield prefix + key
            yield from _keys(value, f"{prefix}{key}.")


def _siblings(key: str, base: DictConfig) -> str:
    parent = key.rpartition(".")[0]
    node = OmegaConf.select(base, parent) if parent else base
    if not isinstance(node, DictConfig):
        return _siblings(parent, base)
    return f"; {parent or 'the top level'} has {', '.join(map(str, node))}"


def _hint(schema: Any, path: Sequence[str]) -> Any:
    """The annotation of the field at a path of a schema, Any where it is free."""
    for name in path:
        if dataclasses.is_dataclass(schema):
            schema = get_type_hints(schema).get(name, Any)
        elif get_origin(schema) in (dict, Mapping):
            schema = get_args(schema)[1]
        else:
            return Any
    return schema


def _first_line(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    return str(cause).strip().splitlines()[0]
