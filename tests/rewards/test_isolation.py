"""Killable workers: limits, blame, replacement, and every place they must work from."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from rewards import verify
from rewards.errors import ConfigError
from rewards.isolation import Limits, Outcome, close_workers, run_isolated
from rewards.types import Reason

ROOT = Path(__file__).resolve().parents[2]
QUICK = Limits(cpu_seconds=0.3, wall_seconds=20.0, memory_mb=512)


DOUBLE = "misbehaving:double"
MISBEHAVE = "misbehaving:misbehave"


def reasons(items: list[str], limits: Limits = QUICK) -> list[Reason | None]:
    return [outcome.reason for outcome in run_isolated(MISBEHAVE, items, limits=limits)]


def test_results_keep_the_order_of_the_items() -> None:
    assert [outcome.value for outcome in run_isolated(DOUBLE, list(range(20)))] == list(range(0, 40, 2))


def test_no_items_start_no_worker() -> None:
    assert run_isolated("no.such.module:function", []) == []


def test_cpu_time_spent_is_the_items_fault_also_in_c_code() -> None:
    assert reasons(["spin", "spin in C", "swallow", "fine"]) == [Reason.TIMEOUT] * 3 + [None]


def test_trap_37_what_overruns_in_a_thread_is_killed_and_its_process_gone() -> None:
    close_workers()
    others, begun = set(_children()), time.monotonic()
    workers: list[str] = []
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(reasons, ["spin in C"])
        while not future.done():
            workers += [pid for pid in _children() if pid not in others and pid not in workers]
            time.sleep(0.005)
    assert future.result() == [Reason.TIMEOUT]
    assert time.monotonic() - begun < QUICK.wall_seconds  # ended by its time, not by the backstop
    assert workers
    assert not Path(f"/proc/{workers[0]}").exists()  # not even a zombie


def test_waiting_is_not_cpu_time() -> None:
    """What a loaded machine does to a right answer: long by the clock, short by the CPU."""
    assert QUICK.cpu_seconds < 1.0
    assert [outcome.value for outcome in run_isolated(MISBEHAVE, ["nap"], limits=QUICK)] == ["nap"]


def test_a_script_from_standard_input_has_workers_too() -> None:
    """As in a notebook, `__main__` has no file there."""
    script = "from rewards.isolation import run_isolated; print(run_isolated('math:sqrt', [4.0])[0].value)"
    done = subprocess.run(
        [sys.executable, "-"], input=script, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "2.0"


def test_memory_spent_is_the_items_fault() -> None:
    assert reasons(["fine", "allocate", "fine"]) == [None, Reason.MEMORY, None]


def test_deep_recursion_is_the_items_fault() -> None:
    assert reasons(["recurse", "fine"]) == [Reason.TOO_LARGE, None]


def test_the_wall_clock_backstop_is_ours() -> None:
    limits = Limits(cpu_seconds=2.0, wall_seconds=1.0)
    assert reasons(["sleep", "fine"], limits) == [Reason.WALL_CLOCK, None]


def test_a_worker_that_dies_twice_on_an_item_is_ours() -> None:
    assert reasons(["die", "kill", "fine"]) == [Reason.WORKER_DIED, Reason.WORKER_DIED, None]


def test_what_the_function_raises_is_ours_and_named() -> None:
    outcomes = run_isolated(MISBEHAVE, ["raise", "unpicklable", "fine"], limits=QUICK)
    assert [outcome.reason for outcome in outcomes] == [Reason.INTERNAL, Reason.INTERNAL, None]
    assert outcomes[0].note == "ValueError: broken on purpose"


def test_a_target_that_cannot_be_imported_is_ours_and_named() -> None:
    (outcome,) = run_isolated("no_such_module:f", [1], limits=QUICK)
    assert outcome.reason is Reason.INTERNAL
    assert "no_such_module" in outcome.note


def test_prints_and_reads_of_the_function_disturb_nothing() -> None:
    assert [outcome.value for outcome in run_isolated(MISBEHAVE, ["print", "a", "b"])] == ["print", "a", "b"]


def test_a_worker_killed_while_idle_is_replaced_and_no_item_is_lost() -> None:
    limits = Limits(cpu_seconds=1.0, wall_seconds=20.0)
    (pid,) = [outcome.value for outcome in run_isolated(MISBEHAVE, ["pid"], limits=limits)]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    assert [outcome.value for outcome in run_isolated(MISBEHAVE, ["a", "b"], limits=limits)] == ["a", "b"]


def test_the_next_item_gets_its_own_reply_after_an_interrupt() -> None:
    limits = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_mb=500)
    run_isolated(MISBEHAVE, ["warm"], limits=limits)
    timer = threading.Timer(
        0.5, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_isolated(MISBEHAVE, ["sleep"], limits=limits)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [outcome.value for outcome in run_isolated(MISBEHAVE, ["mine"], limits=limits)] == ["mine"]


def test_hashes_of_strings_are_the_same_in_every_worker() -> None:
    values = {outcome.value for outcome in run_isolated(MISBEHAVE, ["hash"] * 4)}
    close_workers()
    assert len(values | {outcome.value for outcome in run_isolated(MISBEHAVE, ["hash"])}) == 1


def test_a_worker_has_nothing_of_the_callers_main_module() -> None:
    (outcome,) = run_isolated("builtins:eval", ["'torch' in __import__('sys').modules"])
    assert outcome.value is False


@pytest.mark.parametrize("field", ["cpu_seconds", "wall_seconds", "memory_mb"])
def test_limits_that_limit_nothing_are_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Limits(**{field: 0})
    with pytest.raises(ConfigError, match="workers"):
        run_isolated(DOUBLE, [1], workers=0)


# --- from everywhere ---


def test_many_threads_share_the_workers() -> None:
    found: dict[int, list[object]] = {}

    def ask(thread: int) -> None:
        found[thread] = [outcome.value for outcome in run_isolated(DOUBLE, [thread, thread + 1])]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [2 * number, 2 * number + 2] for number in range(8)}


def test_under_asyncio_in_the_loop_and_beside_it() -> None:
    async def both() -> tuple[list[Outcome], list[Outcome]]:
        return run_isolated(DOUBLE, [1]), await asyncio.to_thread(run_isolated, DOUBLE, [2])

    here, beside = asyncio.run(both())
    assert (here[0].value, beside[0].value) == (2, 4)


def _in_child(queue: "multiprocessing.Queue[object]") -> None:
    queue.put([outcome.value for outcome in run_isolated(DOUBLE, [3, 4])])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_from_a_daemonic_child_process_also_after_a_fork(method: str) -> None:
    run_isolated(DOUBLE, [1])  # so that a fork inherits workers in use
    context = multiprocessing.get_context(method)
    queue: multiprocessing.Queue[object] = context.Queue()
    child = context.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == [6, 8]
    child.join(timeout=60)
    assert child.exitcode == 0
    assert run_isolated(DOUBLE, [5])[0].value == 10  # the parent's workers are still the parent's


class Doubled:
    """A data set that scores while loading."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(str(run_isolated(DOUBLE, [index])[0].value))


def test_from_a_torch_dataloader_worker() -> None:
    loader = DataLoader(Doubled(), batch_size=None, num_workers=1)  # pyright: ignore[reportArgumentType]
    assert [int(value) for value in loader] == [0, 2, 4, 6]


@pytest.mark.parametrize("processes", [None, 2])
def test_from_a_map_over_a_dataset(
    processes: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    from datasets import Dataset  # reads its cache's place when it is loaded

    rows = Dataset.from_dict({"gold": ["42", "x^2+2x+1"], "completion": ["It is 42.", "$(x+1)^2$"]})
    judged = rows.map(
        lambda row: {"value": verify(gold=row["gold"], prediction=row["completion"]).value},
        num_proc=processes,
    )
    assert judged["value"] == [1.0, 1.0]


def test_an_unguarded_script_ends_by_itself_with_idle_workers() -> None:
    script = "from rewards.isolation import run_isolated; print(run_isolated('math:sqrt', [4.0])[0].value)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "2.0"
    assert done.stderr == ""


def test_records_survive_pickle() -> None:
    assert pickle.loads(pickle.dumps((QUICK, Outcome(3)))) == (QUICK, Outcome(3))


# --- nothing leaks ---


def _descriptors() -> int:
    return len(os.listdir(f"/proc/{os.getpid()}/fd"))


def _children() -> list[str]:
    """The pids of this process's children, whichever thread started them."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [pid for task in tasks for pid in task.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to count descriptors")
def test_no_zombie_and_no_descriptor_is_left_after_10000_items_and_100_deaths() -> None:
    close_workers()
    gc.collect()  # what other tests have left open is closed now, not while we count
    descriptors, children = _descriptors(), len(_children())
    for _ in range(25):  # 25 * 400 items, 25 * 2 * 2 deaths (an item is tried twice)
        outcomes = run_isolated(MISBEHAVE, ["kill", *["fine"] * 400, "die"], limits=QUICK)
        assert [o.reason for o in outcomes].count(Reason.WORKER_DIED) == 2
        assert [o.value for o in outcomes].count("fine") == 400
    close_workers()
    assert _descriptors() <= descriptors
    assert len(_children()) <= children


def test_no_item_is_lost_when_workers_are_killed_at_work() -> None:
    """Ten kills among two thousand items, from outside, at any moment."""
    limits = Limits(cpu_seconds=2.0, wall_seconds=30.0, memory_mb=300)
    stop = threading.Event()
    killed = 0

    def killer() -> None:
        nonlocal killed
        while not stop.wait(0.05) and killed < 10:
            for pid in _children()[-1:]:
                os.kill(int(pid), signal.SIGKILL)
                killed += 1

    thread = threading.Thread(target=killer)
    thread.start()
    outcomes = run_isolated(DOUBLE, list(range(2000)), limits=limits)
    stop.set()
    thread.join()
    assert len(outcomes) == 2000
    right = sum(outcome.value == 2 * number for number, outcome in enumerate(outcomes))
    assert right >= 2000 - killed
    assert all(o.reason in (None, Reason.WORKER_DIED) for o in outcomes)
