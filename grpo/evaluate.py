"""Measures a model on held-out problems: greedy accuracy, pass@k, maj@k and best-of-n.

    python -m grpo.evaluate model.path=RUN/model
    python -m grpo.evaluate model.path=Qwen/Qwen2.5-0.5B-Instruct data=gsm8k sampling.samples=16
    python -m grpo.evaluate model.path=RUN/model reward=format+length

Leaves a folder with results.json, samples.parquet and the settings.
"""

from __future__ import annotations

from grpo.evaluate_config import EVALUATE, EvaluateConfig
from rewards.config import hydra_entry


@hydra_entry(EVALUATE)
def main(config: EvaluateConfig) -> None:
    """Hydra's task function."""
    from grpo.measuring import evaluate  # torch, only once the configuration is accepted

    evaluate(config)


if __name__ == "__main__":
    main()
