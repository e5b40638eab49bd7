"""Our accuracy verifier beside math-verify and TRL's accuracy_reward, on recorded outputs, in one run.

    python tests/bench/bench_verifier.py [--limit N] [--systems plumbline,math-verify,trl]

Each figure comes from a fresh process, imports and a warm-up on another output left out: throughput of one
batch in one process, the same split over two, and latency one output at a time. Wall time suffers from
whatever else the machine does, CPU time hardly, so both are printed. Peak memory is that of the process plus
its largest child. Verdicts are compared pairwise and with the recording harness.
"""

import argparse
import logging
import multiprocessing as mp
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from real_outputs import Output, read_outputs
from rich.console import Console
from rich.table import Table

Judge = Callable[[Sequence[Output]], list[bool | None]]
"""Judges outputs together; None: not scored."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One timed pass over some outputs: seconds of wall and CPU time (children included), MiB, verdicts."""

    wall: float
    cpu: float
    peak: float
    latencies: list[float]
    verdicts: list[bool | None]


def plumbline() -> Judge:
    """rewards.verifiers.accuracy with its default settings, free-form answers."""
    from rewards.verifiers.accuracy import AccuracyVerifier

    from rewards.format import FormatSpec
    from rewards.types import Problem, Sample, Verdict

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
WARM_UP = Output("warm-up", 1, "", "1", r"\boxed{2}", False)


def timed_pass(system: str, outputs: Sequence[Output], singly: bool, ready: Barrier) -> Pass:
    """In a child process: warms up, waits for its siblings, judges."""
    logging.disable()  # math-verify logs the whole text of every output it gives up on
    judge = SYSTEMS[system]()
    judge([WARM_UP])
    ready.wait()
    cpu_before, start = _cpu_seconds(), time.perf_counter()
    latencies: list[float] = []
    if singly:
        verdicts: list[bool | None] = []
        for output in outputs:
            before = time.perf_counter()
            verdicts += judge([output])
            latencies.append(time.perf_counter() - before)
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
        *("", "outputs/s", "per CPU s", "2 processes", "p50 ms", "p99 ms", "max ms", "MiB", "not scored"),
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
    milliseconds = sorted(1000 * latency for latency in single.latencies)
    percentiles = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return [
        f"{count / one.wall:.0f}",
        f"{count / one.cpu:.0f}",
        f"{count / max(half.wall for half in two):.0f}",
        f"{percentiles[49]:.2f}",
        f"{percentiles[98]:.2f}",
        f"{milliseconds[-1]:.0f}",
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
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def _peak_mebibytes() -> float:
    peaks = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(peaks) / 1024


if __name__ == "__main__":
    main()
