"""How a step of ours grows with completion length, group size and prompt length.

    python tests/bench/bench_scale.py                  # SmolLM2-135M, a quarter of an hour
    python tests/bench/bench_scale.py --only tokens --values 16 32 64

Prints processor seconds of rollout and update, the exponent fitted over them (the slope of log seconds over
log size), and beside it the exponent of the FLOPs, attention's quadratic term included: a phase that grows
faster than its FLOPs does something it should not. Below one is a fixed part; above it, attention.
"""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from bench_step import Side, flops

SWEEPS = {"tokens": [32, 64, 128, 256], "group": [2, 4, 8, 16], "prompt_tokens": [64, 128, 256, 512]}
BASE = {
    "tokens": 32,
    "group": 4,
    "prompt_tokens": 64,
    "prompts": 2,
    "precision": "fp32",
    "kl": 0.0,
    "device": "cpu",
    "checkpointing": False,
    "train_tokens": 512,
}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line through (log size, log value)."""
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def measure(case: dict[str, Any], clock: str, steps: int) -> tuple[float, float, float]:
    """Seconds of rollout and of update, the least of some steps after one to warm up, and TFLOPs of both."""
    side = Side("ours", case, threads=1)
    try:
        taken = [side.step() for _ in range(steps + 1)][1:]
    finally:
        side.end()
    rollout = min(step[clock]["rollout"] for step in taken)
    update = min(step[clock]["step"] - step[clock]["rollout"] for step in taken)
    return rollout, update, sum(flops(case, taken[0]["prompt_tokens"], "ours").values()) / 1e12


def sweep(name: str, sizes: Sequence[int], case: dict[str, Any], clock: str, steps: int) -> None:
    rows = [measure(case | {name: size}, clock, steps) for size in sizes]
    print(f"\n{name:>14}{'rollout s':>11}{'update s':>11}{'TFLOP':>9}")
    for size, (rollout, update, work) in zip(sizes, rows, strict=True):
        print(f"{size:14}{rollout:11.2f}{update:11.2f}{work:9.3f}", flush=True)
    slopes = [exponent(sizes, column) for column in zip(*rows, strict=True)]
    print(f"{'exponent':>14}{slopes[0]:11.2f}{slopes[1]:11.2f}{slopes[2]:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=list(SWEEPS), help="one sweep instead of all")
    parser.add_argument("--values", type=int, nargs="+", help="its sizes")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    case = BASE | {"precision": options.precision, "device": options.device}
    clock = "cpu" if options.device == "cpu" else "seconds"
    for name in [options.only] if options.only else list(SWEEPS):
        sweep(name, options.values or SWEEPS[name], case, clock, options.steps)


if __name__ == "__main__":
    main()
