"""The schema of the node `watch`, explained in conf/train.yaml. Importable without torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewards.options import option


@dataclass
class WatchConfig:
    """How a run watches what it is paid for."""

    window: int = option(at_least=2)
    length_ratio: float = option(above=1)
    silent_share: float = option(at_least=0, at_most=1)
    kl_rows: int = option(at_least=0)
    probe_problems: int = option(at_least=0)
    on_alarm: str = option("warn", "refit", "stop")


def watch_problems(watch: WatchConfig, *, refits: bool) -> Iterator[str]:
    """What is wrong with the node; refits: whether this run trains its reward model on."""
    if watch.on_alarm == "refit" and not refits:
        yield (
            "watch.on_alarm=refit: this run has no reward model that it trains on; use iterate=deepseekmath "
            "with reward=orm or reward=prm, or watch.on_alarm=warn or stop"
        )
