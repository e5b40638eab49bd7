"""The replay buffer at size: time and memory to fill it, to open it, and to draw from it.

    python tests/bench/bench_replay.py [--groups 1000000] [--group-size 8] [--rounds 200] [--folder F]

A record is a group. Filling and reading are two processes, so that each peak of memory is its own. What must
hold of 1,000,000 groups: a draw of 10,000 in under 5 s, both processes within 500 MB whatever the number of
rounds. A folder that is already filled is read only.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rewards.replay import ReplayBuffer, ReplayGroup, ReplaySettings
from rewards.types import Part, Problem, Reason, Sample, Score

WORDS = np.array([f"word{i}" for i in range(997)])
TOGETHER = 500
"""Groups given to the buffer at once, as a step of training would."""
DRAW = 10_000


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def group(number: int, place: int, size: int, noise: np.random.Generator) -> ReplayGroup:
    """Texts of 40 words, some 270 characters; one question in ten comes again in later rounds."""
    question = f"question {place}" if place % 10 == 0 else f"question {number}-{place}"
    problem = Problem(f"{number}-{place}", question, ("42",))
    texts = [" ".join(row) for row in WORDS[noise.integers(0, len(WORDS), (size, 40))]]
    samples = tuple(Sample(problem, text, index=i, policy_version=number) for i, text in enumerate(texts))
    right = noise.random(size) < 0.6
    scores = tuple(
        Score(
            Score.scored(value, Reason.COMBINED).verdict,
            value,
            Reason.COMBINED,
            parts=(Part("orm", 1.0, Score.scored(value, Reason.MODEL, version="orm-1")),),
        )
        for value in noise.random(size).tolist()
    )
    return ReplayGroup(samples, scores, tuple(right.tolist()), "orm-1", number)


def fill(folder: Path, groups: int, size: int, rounds: int) -> None:
    buffer = ReplayBuffer(folder, ReplaySettings())
    noise = np.random.default_rng(0)
    each = groups // rounds
    start = time.perf_counter()
    adding = 0.0
    for number in range(rounds):
        for first in range(0, each, TOGETHER):
            batch = [group(number, p, size, noise) for p in range(first, min(each, first + TOGETHER))]
            began = time.perf_counter()
            buffer.add(batch)
            adding += time.perf_counter() - began
        began = time.perf_counter()
        buffer.finish_round()
        adding += time.perf_counter() - began
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(
        f"filled: {each * rounds:,} groups of {size} in {rounds} shards, {megabytes:,.0f} MB on disk; "
        f"the buffer's part {adding:.1f} of {time.perf_counter() - start:.1f} s, "
        f"{1e6 * adding / (each * rounds * size):.0f} us a completion; peak {peak_megabytes():.0f} MB",
        flush=True,
    )


def read(folder: Path) -> None:
    print(f"started: peak {peak_megabytes():.0f} MB")
    start = time.perf_counter()
    buffer = ReplayBuffer(folder, ReplaySettings())
    seconds = time.perf_counter() - start
    print(f"opened: {len(buffer):,} groups in {seconds:.2f} s; peak {peak_megabytes():.0f} MB")
    for settings in (ReplaySettings(), ReplaySettings(spread="samples")):
        buffer.settings = settings
        for share in (0.1, 0.5):
            start, work = time.perf_counter(), time.process_time()
            drawn = buffer.draw(DRAW, share)
            seconds, work = time.perf_counter() - start, time.process_time() - work
            print(
                f"drawn: {len(drawn.new):,} new and {len(drawn.old):,} old (share {share}, spread over "
                f"{settings.spread}) in {seconds:.2f} s, {work:.2f} s of it at "
                f"work; peak {peak_megabytes():.0f} MB"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=["fill", "read"])
    given = parser.parse_args()
    if given.only == "fill":
        fill(given.folder, given.groups, given.group_size, given.rounds)
    elif given.only == "read":
        read(given.folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = given.folder or Path(temporary) / "replay"
            for only in ("fill", "read"):
                if only == "fill" and folder.exists() and any(folder.iterdir()):
                    continue
                own = [sys.executable, __file__, "--only", only, "--folder", str(folder)]
                sizes = ["--groups", given.groups, "--group-size", given.group_size, "--rounds", given.rounds]
                subprocess.run([*own, *map(str, sizes)], check=True)


if __name__ == "__main__":
    main()
