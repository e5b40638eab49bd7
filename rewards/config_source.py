"""Answers for `reward=a+b+c`: any names under conf/reward, in any order, without a file per mix.

A Hydra config source that holds one kind of config: a name with plus signs in the group `reward`, whose
whole content is the defaults list [a, b, c]. Hydra itself then loads the parts from wherever they lie (also
from the user's own `hydra.searchpath`), so that a mix equals `reward=[a,b,c]` and works in multirun.
"""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

GROUP = "reward"


class RewardMixSource(ConfigSource):
    """The source of the mixes; `mix://` has no files behind it."""

    @staticmethod
    def scheme() -> str:
        """The name of this source in Hydra's search path."""
        return "mix"

    def available(self) -> bool:
        """Always: a mix is made from its name."""
        return True

    def is_group(self, config_path: str) -> bool:
        """No group of its own: the group `reward` is that of the files."""
        return False

    def is_config(self, config_path: str) -> bool:
        """Whether the path names a mix."""
        return config_path.startswith(GROUP + "/") and "+" in config_path

    def load_config(self, config_path: str) -> ConfigResult:
        """The defaults list that a mix stands for."""
        names = mix_names(config_path.removeprefix(GROUP + "/").removesuffix(".yaml"))
        return ConfigResult(
            provider=self.provider,
            path=f"{self.scheme()}://",
            config=OmegaConf.create({"defaults": names}),
            header={"package": None},
        )

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Nothing to list: the mixes are endless, the names lie in the files."""
        return []


class RewardMixSearchPath(SearchPathPlugin):
    """Puts the mixes on the search path of every Hydra program that registered them."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Appends the source behind the files."""
        search_path.append("plumbline", "mix://")


def register_mixes() -> None:
    """Makes `reward=a+b` known to Hydra in this process; calling it again changes nothing."""
    plugins = Plugins.instance()
    plugins.register(RewardMixSource)
    plugins.register(RewardMixSearchPath)


def mix_names(mix: str) -> list[str]:
    """The names in a mix, in order.

    >>> mix_names("verifiable + format")
    ['verifiable', 'format']
    """
    return [name.strip() for name in mix.split("+")]
