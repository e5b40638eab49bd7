"""Our accuracy verifier beside math-verify and TRL's accuracy_reward, on recorded outputs, in one run.

    python tests/bench/bench_verifier.py [--limit N] [--systems plumbline,math-verify,trl]

Each figure comes from a fresh process, imports and a warm-up on another output left out: throughput of one
batch in one process, the same split over two, and latency one output at a time. Wall time suffers from
whatever else the machine does, CPU time hardly, so both are printed; CPU time and peak memory are sums over
the process and all its children, read from /proc. "own" latency is CPU time of the calling process alone,
which leaves out what happens in workers. Verdicts are compared pairwise and with the recorded ones.

Where our time goes (cProfile, all 1922 outputs): a third is extraction, half of that the search for boxes, of
which some outputs hold hundreds; a third is reading and comparing, a fifth preparing golds. 8 outputs need a
worker, for 1 to 4 ms each; starting the workers costs more than all they do. The slowest are 13,000
characters of repeated boxes (2 ms) and answers of 60,000 characters (5 ms).
"""

import argparse
import contextlib
import logging
import multiprocessing as mp
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from real_outputs import Output, read_outputs
from rich.console import Console
from rich.table import Table

Judge = Callable[[Sequence[Output]], list[bool | None]]
"""Judges outputs together; None: not scored."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One timed pass over some outputs: seconds of wall and CPU time (children included), MiB, verdicts.

    latencies: (wall, CPU of this process) of each output, in seconds; empty when they were judged together.
    """

    wall: float
    cpu: float
    peak: float
    latencies: list[tuple[float, float]]
    verdicts: list[bool | None]


def plumbline() -> Judge:
    """rewards.verifiers.accuracy with its default settings, free-form answers."""
    from rewards.format import FormatSpec
    from rewards.types import Problem, Sample, Verdict
    from rewards.verifiers.accuracy import AccuracyVerifier

    verifier = AccuracyVerifier(FormatSpec(mode="optional", answer_style="free"))

    def judge(outputs: Sequence[Output]) -> list[bool | None]:
        problems = [Problem(output.key, output.problem, (output.gold,)) for output in outputs]
        scores = verifier.score(
            [Sample(problem, output.completion) for problem, output in zip(problems, outputs, strict=True)]
        )
        return [score.value == 1.0 if score.verdict is Verdict.SCORED else None for score in scores]

    return judge


def math_verify() -> Judge:
    """math-verify as its README uses it, one after the other, the gold between dollars."""
    from math_verify import parse, verify

    def judge(outputs: Sequence[Output]) -> list[bool | None]:
        return [bool(verify(parse(f"${output.gold}$"), parse(output.completion))) for output in outputs]

    return judge


def trl() -> Judge:
    """TRL's accuracy_reward, the gold between dollars."""
    from trl.rewards.accuracy_rewards import accuracy_reward

    def judge(outputs: Sequence[Output]) -> list[bool | None]:
        completions = [[{"role": "assistant", "content": output.completion}] for output in outputs]
        rewards = accuracy_reward(completions, [f"${output.gold}$" for output in outputs])
        return [None if reward is None else reward == 1.0 for reward in rewards]

    return judge


SYSTEMS: dict[str, Callable[[], Judge]] = {"plumbline": plumbline, "math-verify": math_verify, "trl": trl}
WARM_UP = [
    Output("warm-up", row, "", rf"\sin(2x)+{row}y", rf"\boxed{{2\sin x\cos x+{row}y}}", True)
    for row in range(2, 10)
]
"""They need algebra, so that all workers have started and done their imports."""


def timed_pass(system: str, outputs: Sequence[Output], singly: bool, ready: Barrier) -> Pass:
    """In a child process: warms up, waits for its siblings, judges."""
    logging.disable()  # math-verify logs the whole text of every output it gives up on
    judge = SYSTEMS[system]()
    judge(WARM_UP)
    ready.wait()
    cpu_before, start = _cpu_seconds(), time.perf_counter()
    latencies: list[tuple[float, float]] = []
    if singly:
        verdicts: list[bool | None] = []
        for output in outputs:
            before, own_before = time.perf_counter(), time.process_time()
            verdicts += judge([output])
            latencies.append((time.perf_counter() - before, time.process_time() - own_before))
    else:
        verdicts = judge(outputs)
    wall = time.perf_counter() - start
    return Pass(wall, _cpu_seconds() - cpu_before, _peak_mebibytes(), latencies, verdicts)


def in_processes(system: str, outputs: Sequence[Output], processes: int, singly: bool = False) -> list[Pass]:
    """One pass in each of the processes, over interleaved shares of the outputs."""
    context = mp.get_context("spawn")
    queue = context.Queue()
    ready = context.Barrier(processes)
    shares = [outputs[share::processes] for share in range(processes)]
    children = [
        context.Process(target=_report_pass, args=(queue, number, system, share, singly, ready))
        for number, share in enumerate(shares)
    ]
    for child in children:
        child.start()
    passes = dict(queue.get() for _ in children)
    for child in children:
        child.join()
    return [passes[share] for share in range(processes)]


def main() -> None:
    parser = argparse.ArgumentParser(description="compares our accuracy verifier with math-verify and TRL")
    parser.add_argument("--limit", type=int, default=None, help="judge only the first N outputs of each file")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    arguments = parser.parse_args()
    outputs = [one for one in read_outputs() if arguments.limit is None or one.row <= arguments.limit]
    console = Console(width=140)
    speed = Table(
        *(
            "",
            "outputs/s",
            "per CPU s",
            "2 processes",
            "p50 ms",
            "p99 ms",
            "max ms",
            "own p99",
            "MiB",
            "not scored",
        ),
        title=f"{len(outputs)} outputs",
    )
    verdicts: dict[str, list[bool | None]] = {"recorded": [output.recorded for output in outputs]}
    for system in arguments.systems.split(","):
        (one,) = in_processes(system, outputs, 1)
        two = in_processes(system, outputs, 2)
        (single,) = in_processes(system, outputs, 1, singly=True)
        verdicts[system] = one.verdicts
        speed.add_row(system, *_speed_cells(len(outputs), one, two, single))
        if single.verdicts != one.verdicts:
            console.print(f"[red]{system}: a batch and its outputs one by one disagree")
    console.print(speed)
    console.print(_agreement(verdicts))


def _speed_cells(count: int, one: Pass, two: list[Pass], single: Pass) -> list[str]:
    milliseconds = [1000 * wall for wall, _ in single.latencies]
    percentiles = statistics.quantiles(milliseconds, n=100, method="inclusive")
    own = statistics.quantiles([1000 * cpu for _, cpu in single.latencies], n=100, method="inclusive")
    return [
        f"{count / one.wall:.0f}",
        f"{count / one.cpu:.0f}",
        f"{count / max(half.wall for half in two):.0f}",
        f"{percentiles[49]:.2f}",
        f"{percentiles[98]:.2f}",
        f"{max(milliseconds):.0f}",
        f"{own[98]:.2f}",
        f"{one.peak:.0f}",
        str(sum(verdict is None for verdict in one.verdicts)),
    ]


def _agreement(verdicts: dict[str, list[bool | None]]) -> Table:
    table = Table("same verdict, %", *verdicts, title="agreement")
    for name, own in verdicts.items():
        same = [[a == b for a, b in zip(own, other, strict=True)] for other in verdicts.values()]
        table.add_row(name, *(f"{100 * statistics.mean(pairs):.1f}" for pairs in same))
    return table


def _report_pass(
    queue: "mp.Queue[tuple[int, Pass]]",
    number: int,
    system: str,
    outputs: Sequence[Output],
    singly: bool,
    ready: Barrier,
) -> None:
    queue.put((number, timed_pass(system, outputs, singly, ready)))


def _cpu_seconds() -> float:
    """Of this process, the children it has waited for, and those that run."""
    ticks = sum(sum(map(int, _stat(process)[11:15])) for process in _family(os.getpid()))
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_mebibytes() -> float:
    """The peak resident sizes of this process and of the children that run, added up."""
    status = [Path(f"/proc/{process}/status").read_text() for process in _family(os.getpid())]
    return sum(int(match[1]) for text in status if (match := re.search(r"VmHWM:\s+(\d+) kB", text))) / 1024


def _family(process: int) -> list[int]:
    """A process and its children, their children, ..."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended since
            if entry.name.isdigit():
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    family = [process]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _stat(process: int) -> list[str]:
    """The fields of /proc/<process>/stat after the name in brackets, the first being the state."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
