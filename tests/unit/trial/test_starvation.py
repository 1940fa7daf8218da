"""Who waits for the CPU: real processes on a core of their own, and the rule by numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.launches import eventually

from tuner.trial import starvation
from tuner.trial.proctree import ProcessId, identify, read_stat
from tuner.trial.starvation import CpuTime, StarvationWatch, taken_by_others

SPIN = "while True: pass"
SLEEP = "import time; time.sleep(600)"
LOWEST = 19


@contextmanager
def running(code: str, *, core: int, nice: int = 0) -> Iterator[ProcessId]:
    """A process on one core."""

    def settle() -> None:
        os.sched_setaffinity(0, {core})
        os.nice(nice)

    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], preexec_fn=settle) as process:
        try:
            found = identify(process.pid)
            assert found is not None
            yield found
        finally:
            process.kill()


@pytest.fixture
def core() -> int:
    return min(os.sched_getaffinity(0))


def test_a_process_that_is_ready_while_others_run_is_starved(core: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starvation, "LOOK_EVERY_S", 0.1)
    with running(SPIN, core=core), running(SPIN, core=core, nice=LOWEST) as victim:
        watch = StarvationWatch(lambda: [victim])
        assert eventually(lambda: watch.look() > 0.3)


def test_a_process_that_sleeps_is_not_starved_however_busy_its_core(core: int) -> None:
    with running(SPIN, core=core, nice=LOWEST), running(SLEEP, core=core) as sleeper:
        assert eventually(lambda: _state(sleeper) == "S")
        now = iter([0.0, 100.0, 100.0])
        watch = StarvationWatch(lambda: [sleeper], clock=lambda: next(now))
        assert watch.look() == pytest.approx(0.0, abs=1.0)


def _state(process: ProcessId) -> str:
    stat = read_stat(process.pid)
    return "" if stat is None else stat.state


def test_a_process_that_is_gone_is_not_starved() -> None:
    watch = StarvationWatch(lambda: [ProcessId(os.getpid(), 1)])
    assert watch.look() == 0.0


def test_a_server_alone_with_more_threads_than_cores_is_not_starved() -> None:
    own_queue = CpuTime(ran=20.0, waited=60.0)
    assert taken_by_others(own_queue, busy=20.0, cores=2, elapsed=10.0) == 0.0


def test_one_thread_that_gets_a_tenth_of_a_full_core_is_starved_for_the_rest() -> None:
    assert taken_by_others(CpuTime(1.0, 9.0), busy=10.0, cores=1, elapsed=10.0) == pytest.approx(9.0)


def test_no_more_is_taken_than_others_used() -> None:
    assert taken_by_others(CpuTime(1.0, 9.0), busy=4.0, cores=1, elapsed=10.0) == pytest.approx(3.0)


def test_a_server_that_does_nothing_is_not_starved() -> None:
    assert taken_by_others(CpuTime(0.0, 0.0), busy=20.0, cores=2, elapsed=10.0) == 0.0
