"""The settings of `python -m rewards.audit`: the schema of conf/audit.yaml. Loads no scorer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rewards.config import Program, RewardConfig
from rewards.options import option


@dataclass
class AuditConfig:
    """The schema of conf/audit.yaml, where each key is explained."""

    problems: int = option(at_least=1)
    max_exploitability: float = option(at_least=0, at_most=1)
    page: str | None = option()
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    reward: RewardConfig = field(default_factory=RewardConfig)
    format: dict[str, Any] = field(default_factory=dict[str, Any])


AUDIT = Program("audit", AuditConfig)
