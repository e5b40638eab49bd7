"""Post-trains a policy with GRPO, paid only by the reward.

    python -m grpo.train reward=verifiable+format
    python -m grpo.train model=hub model.name=Qwen/Qwen2.5-0.5B-Instruct data=gsm8k
    python -m grpo.train -m reward=verifiable,verifiable+format seed=0,1

With no other argument it runs on the embedded default: a tiny model and synthetic sums, made on the spot.
"""

from __future__ import annotations

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from grpo.config import TRAIN, TrainConfig
from rewards.config import hydra_entry


@hydra_entry(TRAIN)
def main(config: TrainConfig) -> None:
    """Hydra's task function."""
    from grpo.training import train  # torch, only once the configuration is accepted

    train(config, job=HydraConfig.get().mode is RunMode.MULTIRUN)


if __name__ == "__main__":
    main()
