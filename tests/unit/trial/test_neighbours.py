"""Others on the GPUs of a launch: memory that they hold before it, and processes that come while it is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from support import trials
from support.gpus import Driver, FakeTime
from support.launches import born, eventually, rogue_plan

from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.trial import neighbours, runner
from tuner.trial.gpu import GpuState
from tuner.trial.machine import machine_facts
from tuner.trial.neighbours import ROOM_MIB, Strangers, wait_until_free
from tuner.trial.process import launch
from tuner.trial.record import FILE as record_file
from tuner.trial.record import LaunchRecord
from tuner.trial.serving import ServingWatch
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble

NOWHERE = 4_194_304
"""No process has this id: the kernel's highest is one less."""


@pytest.fixture
def somebody() -> Iterator[int]:
    """A living process that belongs to no launch."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def wait(driver: Driver, *, cancelled_after_s: float = 1e9) -> tuple[tuple[str, ...], float, list[str]]:
    time, told = FakeTime(), list[str]()
    taken = wait_until_free(
        driver,
        {0: 615},
        timeout_s=1800.0,
        tell=told.append,
        is_cancelled=lambda: time.now >= cancelled_after_s,
        clock=time.clock,
        sleep=time.sleep,
    )
    return tuple(map(str, taken)), time.now, told


def test_gpus_about_as_free_as_before_are_not_waited_for() -> None:
    assert wait(Driver(615 + ROOM_MIB)) == ((), 0.0, [])


def test_a_launch_waits_until_somebody_has_left_its_gpus_and_says_for_whom() -> None:
    taken, waited, told = wait(Driver(15_248, 15_248, 15_248, 620, holders=[4711]))
    assert (taken, waited) == ((), 3.0)
    assert told == ["waiting for memory: GPU 0 holds 15248 MiB instead of 615 MiB: pid 4711"]


def test_who_stays_on_a_gpu_is_named_in_the_end() -> None:
    taken, waited, told = wait(Driver(15_248))
    assert taken == ("GPU 0 holds 15248 MiB instead of 615 MiB: a process the driver does not name",)
    assert waited == 1800.0
    assert len(told) == 60, "said again now and then, so that it is no silence"


def test_the_wait_ends_when_it_is_no_longer_wanted() -> None:
    assert wait(Driver(15_248), cancelled_after_s=5.0)[1] == 5.0


def strangers(driver: Driver, time: FakeTime) -> Strangers:
    return Strangers(driver, [0, 1], clock=time.clock)


def test_a_process_that_came_to_the_gpus_is_told_from_the_launchs_own(somebody: int) -> None:
    time, driver = FakeTime(), Driver()
    watch = strangers(driver, time)
    driver.holders = [os.getpid()]
    assert watch.seen(lambda: {os.getpid()}) is None
    driver.holders = [os.getpid(), somebody]
    assert watch.seen(lambda: {os.getpid()}) is None, "asked twice within a second, the driver is asked once"
    time.now += 1.0
    words = watch.seen(lambda: {os.getpid()})
    assert words is not None
    assert words.startswith(f"pid {somebody} (python")
    assert words.endswith("), no process of this launch, came to GPU 0")


def test_who_was_there_before_the_launch_is_no_stranger(somebody: int) -> None:
    driver = Driver(holders=[somebody])
    watch = strangers(driver, FakeTime())
    driver.holders = [somebody, os.getpid()]
    assert watch.seen(lambda: {os.getpid()}) is None


def test_process_ids_of_another_namespace_accuse_nobody(somebody: int) -> None:
    driver = Driver()
    watch = strangers(driver, FakeTime())
    driver.holders = [somebody]
    assert watch.seen(lambda: {os.getpid()}) is None, "none of the launch's own is among them"
    driver = Driver()
    watch = strangers(driver, FakeTime())
    driver.holders = [os.getpid(), NOWHERE]
    assert watch.seen(lambda: {os.getpid()}) is None, "and this one is not to be seen here"


def test_a_machine_without_gpus_has_no_strangers() -> None:
    assert Strangers(None, [0]).seen(lambda: {1}) is None
    assert Strangers(Driver(holders=[1]), []).seen(lambda: {2}) is None


def test_a_measurement_beside_a_stranger_is_a_shared_gpu_and_no_fault_of_the_candidate(
    tmp_path: Path, somebody: int
) -> None:
    driver, time = Driver(), FakeTime()
    watch = strangers(driver, time)
    with launch(rogue_plan("quiet"), tmp_path) as server:
        assert eventually(lambda: bool(born(tmp_path)))
        driver.holders = [server.pid]
        serving = ServingWatch(server, timeout_s=60, strangers=watch)
        assert not serving.is_over()
        driver.holders = [server.pid, somebody]
        time.now += 1.0
        assert serving.is_over()
        with pytest.raises(LaunchFailed) as failed:
            serving.check()
    assert (failed.value.kind, failed.value.phase) == (LaunchTrouble.GPU_SHARED, Phase.SERVING)


class Machine(Driver):
    """A driver for whole launches: once the server is ready, it names the server, and a stranger beside it."""

    def __init__(self, *used: int, run_dir: Path, stranger: int | None = None) -> None:
        super().__init__(*used)
        self._run_dir = run_dir
        self._stranger = stranger

    def states(self, indices: Sequence[int]) -> tuple[GpuState, ...]:
        if (self._run_dir / runner.SERVER_INFO).exists():
            record = LaunchRecord.read(self._run_dir / record_file)
            assert record is not None
            assert record.server is not None
            self.holders = [record.server.pid, *([] if self._stranger is None else [self._stranger])]
        return super().states(indices)

    def sensors(self) -> None:
        return None

    def energy_of(self, gpus: Sequence[int]) -> AbstractContextManager[None]:
        return nullcontext()

    def counts_energy(self, gpus: Sequence[int]) -> bool:
        return False


def launched(
    machine: Machine, run_dir: Path, monkeypatch: pytest.MonkeyPatch, usual: int | None = None
) -> tuple[object, dict[str, str]]:
    monkeypatch.setattr(runner, "open_nvml", lambda: machine)
    gpu_use = {} if usual is None else {machine_facts().hostname: {0: usual}, "elsewhere": {0: 1}}
    report = trials.run(run_dir, gpus=(0,), gpu_use=gpu_use)
    return report.outcome, dict(report.machine)


def test_a_launch_onto_a_gpu_that_others_have_taken_since_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_GPUS_FREE_S", 0.0)
    outcome, facts = launched(Machine(15_248, run_dir=tmp_path), tmp_path, monkeypatch, usual=615)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.phase) == (FailureClass.GPU_BUSY, Phase.PREFLIGHT)
    assert outcome.evidence == ("GPU 0 holds 15248 MiB instead of 615 MiB: a process the driver does not name",)
    assert facts["gpu_used_before_mib"] == "15248", "how much tells whether the shortage shrinks"
    assert not (tmp_path / "server.log").exists()


def test_what_was_always_on_a_gpu_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(launched(Machine(5_000, run_dir=tmp_path), tmp_path, monkeypatch)[0], Measured)


@pytest.mark.slow
def test_numbers_measured_beside_a_stranger_are_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, somebody: int
) -> None:
    monkeypatch.setattr(neighbours, "_LOOK_EVERY_S", 0.0)
    machine = Machine(600, run_dir=tmp_path, stranger=somebody)
    outcome, _ = launched(machine, tmp_path, monkeypatch, usual=600)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.phase) == (FailureClass.GPU_BUSY, Phase.SERVING)
    assert f"pid {somebody} " in outcome.evidence[0]
