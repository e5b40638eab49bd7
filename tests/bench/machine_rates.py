"""The rates of this machine: matrix products in fp32 and bf16 (GFLOP/s) and memory (GB/s), as JSON."""

import json
import sys
import time
from collections.abc import Callable

import torch

from rewards.models.products import linear

SHAPES = ((512, 576, 1536), (512, 1536, 576), (64, 576, 1536))
"""Rows, width in and width out: a layer of the bench's model in training and in decoding."""


def best(call: Callable[[], object], device: str, repeats: int = 30) -> float:
    """The least seconds of a call."""
    least = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        least = min(least, time.perf_counter() - start)
    return least


def matrix_rate(dtype: torch.dtype, device: str) -> float:
    """GFLOP/s over the shapes together, on buffers that are in cache as a layer's are."""
    work = seconds = 0.0
    for rows, width, out in SHAPES:
        a = torch.randn(rows, width, device=device, dtype=dtype)
        w = torch.randn(out, width, device=device, dtype=dtype)
        seconds += best(lambda a=a, w=w: linear(a, w), device)
        work += 2.0 * rows * width * out
    return work / seconds / 1e9


def memory_rate(device: str) -> float:
    """GB/s of a copy of 256 MB, bytes read and written counted."""
    source = torch.randn(64 << 20, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / best(lambda: target.copy_(source), device, 8) / 1e9


if __name__ == "__main__":
    device = sys.argv[1]
    rates = {
        "fp32": matrix_rate(torch.float32, device),
        "bf16": matrix_rate(torch.bfloat16, device),
        "memory": memory_rate(device),
    }
    print(json.dumps(rates))
