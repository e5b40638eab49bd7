"""Hydra for every entry: the schema of a reward, typed composition, and the decorator that starts a program.

A program is refused before anything heavy loads: its command line is composed, typed and checked first, and
what is wrong with it is told in one line for each fault. Knows nothing of any program's own settings.
"""

from __future__ import annotations

import functools
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rewards.config_source import register_mixes
from rewards.errors import ConfigError, RewardError
from rewards.options import option, problems_of
from rewards.overrides import CONF, SCORER_CONFIG, SEARCH_PATH, VERSION_BASE, alternatives, compose_checked

S = TypeVar("S")
REFUSED = 2
"""Exit status of a program whose configuration or input was refused."""


@dataclass
class ComponentConfig:
    """One named part of a reward. What may stand in `scorer` is told by the signature of its `_target_`."""

    weight: float = option()
    gate: str | None = option()
    scorer: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class RewardConfig:
    """The node `reward`: what conf/reward/*.yaml hold, merged over the names of a mix."""

    components: dict[str, ComponentConfig] = field(default_factory=dict[str, ComponentConfig])


@dataclass
class ScorerConfig:
    """The schema of conf/scorer.yaml."""

    reward: RewardConfig = field(default_factory=RewardConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Program(Generic[S]):
    """What an entry declares of itself.

    config_name: its yaml in conf, which has `<config_name>_schema` first in its defaults list. schema: the
    dataclass that types it. check: refuses, with ConfigError, what types cannot tell; it must not load
    anything heavy. settle: gives values, in place, to settings left open that others decide. folder: the
    package that its yaml and the groups it chooses from are in; one of its own where a value has the name of
    a group of conf, as `model=orm` has.
    """

    config_name: str
    schema: type[S]
    check: Callable[[S], None] = lambda _: None
    settle: Callable[[DictConfig], None] = lambda _: None
    folder: str = CONF

    def typed(self, config: DictConfig) -> S:
        """The resolved configuration as an object of the schema, checked.

        Raises:
            ConfigError: one line for every value that is missing, out of bounds or refused by `check`.
        """
        self.settle(config)
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise ConfigError("\n".join(f"{key}: a value is needed, give {key}=..." for key in missing))
        try:
            settings: Any = OmegaConf.to_object(config)
        except OmegaConfBaseException as error:
            raise ConfigError(str(error).splitlines()[0]) from error
        problems = problems_of(settings)
        if problems:
            raise ConfigError("\n".join(problems))
        self.check(settings)
        return settings

    def load(self, overrides: Sequence[str] = ()) -> S:
        """Composes and checks, outside of any command line: `TRAIN.load(["reward=verifiable", "seed=1"])`."""
        self.register()
        return self.typed(compose_checked(self.config_name, self.schema, overrides, self.folder))

    def register(self) -> None:
        """Tells Hydra of the schemas and of `reward=a+b`; calling it again changes nothing."""
        store = ConfigStore.instance()
        store.store(name=f"{SCORER_CONFIG}_schema", node=ScorerConfig)
        store.store(name=f"{self.config_name}_schema", node=self.schema)
        register_mixes()


def lend_model(config: DictConfig) -> None:
    """Gives a program's node `model` to the rewards that still lack theirs: `reward=prm model.path=...`.

    For `Program.settle`. Only where it has a path and is of the class that the reward asks for.
    """
    model = config.model
    if model.path is None:
        return
    for component in config.reward.components.values():
        own = component.scorer.get("model")
        if own is not None and own.get("_target_") == model._target_ and OmegaConf.is_missing(own, "path"):
            component.scorer.model = model


SCORER = Program(SCORER_CONFIG, ScorerConfig)


def hydra_entry(program: Program[S]) -> Callable[[Callable[[S], None]], Callable[[], None]]:
    """Makes `main(settings)` a program: `python -m package.entry key=value ...`, with Hydra's own flags.

    A refused configuration or input (any RewardError, also one raised while running) is printed without a
    traceback, one line for each fault, and the exit status is 2. In a multirun the other jobs go on.
    """

    def decorate(task: Callable[[S], None]) -> Callable[[], None]:
        def main() -> None:
            program.register()
            arguments = get_args_parser().parse_args()
            refused: list[RewardError] = []

            @functools.wraps(task)
            def job(config: DictConfig) -> None:
                try:
                    task(program.typed(config))
                except RewardError as error:
                    if HydraConfig.get().mode is not RunMode.MULTIRUN:
                        _report(error)
                        raise SystemExit(REFUSED) from error
                    refused.append(error)
                    _report(error, f"job {HydraConfig.get().job.num}: ")

            if not _shows_only(arguments):
                _check_command_line(program, arguments)
            hydra.main(
                version_base=VERSION_BASE,
                config_path=f"pkg://{program.folder}",
                config_name=program.config_name,
            )(job)()
            if refused:
                raise SystemExit(REFUSED)

        return main

    return decorate


def _shows_only(arguments: Namespace) -> bool:
    return bool(arguments.help or arguments.hydra_help or arguments.info or arguments.shell_completion)


def _check_command_line(program: Program[Any], arguments: Namespace) -> None:
    """Refuses what can be known to be wrong before the program, or the first job of a sweep, starts."""
    overrides = list(arguments.overrides)
    if arguments.config_dir:
        overrides.append(f"{SEARCH_PATH}=[file://{Path(arguments.config_dir).absolute()}]")
    name = arguments.config_name or program.config_name
    try:
        for job in alternatives(overrides, program.folder) if arguments.multirun else [overrides]:
            config = compose_checked(name, program.schema, job, program.folder)
            if not arguments.cfg:
                program.typed(config)
    except ConfigError as error:
        _report(error)
        raise SystemExit(REFUSED) from error


def _report(error: RewardError, job: str = "") -> None:
    for line in str(error).splitlines():
        print(f"error: {job}{line}", file=sys.stderr)
