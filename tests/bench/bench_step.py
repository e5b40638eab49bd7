"""A GRPO step of ours beside one of TRL's GRPOTrainer: seconds by phase, tokens/s, FLOPs, peak memory, ratio.

    python tests/bench/bench_step.py                                   # the whole table, an hour on two cores
    python tests/bench/bench_step.py --tokens 64 --precision bf16 --kl 0.04 --steps 1
    python tests/bench/bench_step.py --device cuda

The same model (SmolLM2-135M), prompts and number of completion tokens on both sides. Each side lives in a
process of its own, so that its peak memory is its own; the two take their steps in turn, so that what else
the machine does falls on both. The first step of each warms up: it counts for memory (the optimiser's state
is there from its end on), not for time. On a shared machine read the processor seconds: they are of one
thread and do not count what others take.

TRL runs with its own defaults (gradient checkpointing, whole rollout in one batch unless --trl-micro-rows).
The roofline is what our step's arithmetic would take at the machine's measured rates: for every phase the
longer of its FLOPs at the matrix rate of the precision and its bytes at the memory rate.

Measured (one thread of an AMD processor with bf16 dot products, processor seconds of one step after another,
tokens/s and peak memory against TRL 1.16):

    8 x 8 x 64   bf16  kl 0.04   21.2 s against  95.7: 4.51 times, 0.42
    8 x 8 x 64   bf16  kl 0      17.9 s against  78.5: 4.39 times, 0.41
    8 x 8 x 64   fp32  kl 0.04   43.2 s against 183.5: 4.25 times, 0.44 (beside other work)
    8 x 8 x 256  bf16  kl 0.04   87.2 s against 248.7: 2.85 times, 0.46 (likewise, with --trl-micro-rows 16)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PHASES = ("rollout", "reference", "forward", "backward", "optimizer", "step")

# SmolLM2-135M, as its configuration says: the matrices of one layer, layers, head, and attention's widths.
LAYERS, HIDDEN, KV_WIDTH, FEED_FORWARD, VOCABULARY = 30, 576, 192, 1536, 49152
BODY = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_WIDTH + 3 * HIDDEN * FEED_FORWARD)
HEAD = HIDDEN * VOCABULARY
KEPT = 1 << 26
"""Logits that our head keeps for its backward pass (grpo.head.KEPT); it makes those beyond again."""

Step = dict[str, Any]


class Side:
    """One process that steps when told to."""

    def __init__(self, name: str, case: dict[str, Any], threads: int) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long; a pipe would fill and block
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "step_sides.py"), name, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def step(self) -> Step:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        self.errors.seek(0)
        raise SystemExit(f"{self.name} ended before its step was done\n{self.errors.read()[-3000:]}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def attention(queries: float, keys: float) -> float:
    """FLOPs of scores and values over all layers for so many pairs of a query and a key."""
    return 4 * LAYERS * HIDDEN * queries * keys


def flops(case: dict[str, Any], prompt_tokens: int, side: str) -> dict[str, float]:
    """FLOPs by phase of one step, from shapes; prompt_tokens: of all prompts together."""
    group, new = case["group"], case["tokens"]
    rows = case["prompts"] * group
    prompt = prompt_tokens / case["prompts"]
    scored = rows * new
    if side == "ours":  # a prompt runs once for each backward pass that holds rows of it
        passes = max(1.0, group / max(1, case["train_tokens"] // new))
        run = passes * prompt_tokens + rows * (new - 1)
        pairs = attention(prompt_tokens, prompt / 2) + attention(scored, prompt + new / 2)
        kept = min(1.0, KEPT / (min(case["train_tokens"], scored) * VOCABULARY))
        heads, again = scored, 2 * HEAD * scored * (1 - kept)
        prefill = prompt_tokens
    else:
        run = group * prompt_tokens + scored
        pairs = group * attention(prompt_tokens, prompt / 2) + attention(scored, prompt + new / 2)
        heads, again = run, 2 * HEAD * run
        prefill = group * prompt_tokens
        if case["checkpointing"]:
            again += 2 * BODY * run + pairs
    forward = 2 * BODY * run + pairs + 2 * HEAD * heads
    return {
        "rollout": 2 * BODY * (prefill + rows * (new - 1)) + pairs + 2 * HEAD * scored,
        "reference": forward if case["kl"] else 0.0,
        "forward": forward,
        "backward": 2 * forward + again,
    }


def ideal(case: dict[str, Any], prompt_tokens: int, rates: dict[str, float]) -> dict[str, float]:
    """Seconds by phase at the machine's rates, for our side."""
    gflops = rates[case["precision"]]
    width = 2 if case["precision"] == "bf16" else 4
    weights = (BODY + HEAD) * width
    rows = case["prompts"] * case["group"]
    cache = 2 * LAYERS * KV_WIDTH * width * (prompt_tokens + rows * case["tokens"] / 2)
    batches = max(1, rows // case["decode_rows"])
    passes = rows * case["tokens"] / case["train_tokens"]
    moved = {
        "rollout": case["tokens"] * (weights * batches + cache),
        "reference": weights * passes if case["kl"] else 0.0,
        "forward": weights * passes,
        "backward": 3 * weights * passes,
        "optimizer": 28 * (BODY + HEAD),  # reads weight, gradient, two moments; writes weight, two moments
    }
    work = flops(case, prompt_tokens, "ours") | {"optimizer": 0.0}
    return {
        phase: max(work[phase] / gflops, bytes_ / rates["memory"]) / 1e9 for phase, bytes_ in moved.items()
    }


def measure_rates(device: str, threads: int) -> dict[str, float]:
    """GFLOP/s of matrix products in fp32 and bf16, GB/s of memory; in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "machine_rates.py"), device],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
    )
    return json.loads(done.stdout)


def summary(steps: list[Step], clock: str) -> dict[str, float]:
    """Median seconds by phase of the steps after the first; the first where it is the only one."""
    counted = steps[1:] or steps
    return {phase: statistics.median(s[clock].get(phase, 0.0) for s in counted) for phase in PHASES}


def show(case: dict[str, Any], results: dict[str, list[Step]], rates: dict[str, float], clock: str) -> None:
    prompt_tokens = results["ours"][0]["prompt_tokens"]
    tokens = case["prompts"] * case["group"] * case["tokens"]
    print(
        f"\n{case['precision']}  {case['prompts']} x {case['group']} x {case['tokens']} tokens  "
        f"prompts of {prompt_tokens / case['prompts']:.0f}  kl={case['kl']}  "
        f"({'processor seconds' if clock == 'cpu' else 'seconds'}, median of {len(results['ours']) - 1})"
    )
    print(
        f"{'':10}"
        + "".join(f"{phase:>11}" for phase in PHASES)
        + f"{'tokens/s':>11}{'TFLOP':>8}{'peak GB':>9}"
    )
    lines: dict[str, tuple[float, float]] = {}
    for side, steps in results.items():
        seconds = summary(steps, clock)
        peak = max(s["peak_bytes"] for s in steps) / 1e9
        work = sum(flops(case, prompt_tokens, side).values()) / 1e12
        lines[side] = (tokens / seconds["step"], peak)
        print(
            f"{side:10}"
            + "".join(f"{seconds[phase]:11.2f}" for phase in PHASES)
            + f"{tokens / seconds['step']:11.1f}{work:8.2f}{peak:9.2f}"
        )
    best = ideal(case, prompt_tokens, rates)
    total = sum(best.values())
    print(
        f"{'roofline':10}"
        + "".join(f"{best.get(p, total):11.2f}" for p in PHASES)
        + f"{tokens / total:11.1f}"
    )
    ours = summary(results["ours"], clock)
    share = "".join(f"{best.get(p, total) / max(ours[p], 1e-9):11.0%}" for p in PHASES)
    print(f"{'of it':10}{share}")
    if "trl" in lines:
        speed, memory = (lines["ours"][i] / lines["trl"][i] for i in (0, 1))
        print(f"ours / TRL: {speed:.2f} times its tokens/s, {memory:.2f} of its peak memory")


def run(case: dict[str, Any], options: argparse.Namespace, rates: dict[str, float]) -> None:
    names = ("ours",) if options.ours_only else ("ours", "trl")
    sides = {name: Side(name, case, options.threads) for name in names}
    results: dict[str, list[Step]] = {name: [] for name in names}
    try:
        for _ in range(options.steps + 1):
            for name, side in sides.items():
                results[name].append(side.step())
    finally:
        for side in sides.values():
            side.end()
    show(case, results, rates, "cpu" if options.cpu_seconds else "seconds")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--kl", type=float, nargs="+", default=[0.0, 0.04], help="KL coefficients, 0 is off")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="timed steps, after one to warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cpu-seconds", action="store_true", help="processor seconds instead of wall time")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--trl-micro-rows", type=int, default=64, help="TRL's per_device_train_batch_size")
    parser.add_argument("--trl-no-checkpointing", action="store_true")
    parser.add_argument("--decode-rows", type=int, default=64)
    parser.add_argument("--train-tokens", type=int, default=1024, help="completion tokens of a backward pass")
    return parser.parse_args()


def main() -> None:
    options = parse()
    rates = measure_rates(options.device, options.threads)
    print(
        f"this machine, {options.threads} thread(s): fp32 {rates['fp32']:.0f} GFLOP/s, "
        f"bf16 {rates['bf16']:.0f} GFLOP/s, memory {rates['memory']:.0f} GB/s"
    )
    for tokens, precision, kl in product(options.tokens, options.precision, options.kl):
        case = {
            "tokens": tokens,
            "precision": precision,
            "kl": kl,
            "prompts": options.prompts,
            "group": options.group,
            "device": options.device,
            "checkpointing": not options.trl_no_checkpointing,
            "micro_rows": options.trl_micro_rows,
            "decode_rows": options.decode_rows,
            "train_tokens": options.train_tokens,
        }
        run(case, options, rates)


if __name__ == "__main__":
    main()
