"""Faults of our own side, each injected into a study of its own: what dies, goes away, fills up or jumps."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from benchmarks.faults import stopping
from benchmarks.faults.cluster import Cluster
from benchmarks.faults.shim import Shim
from benchmarks.faults.studies import Study, judge, struck, until_gone
from benchmarks.faults.trials import WORKER_DEATH_BOUND_S, Judged
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES, Purpose
from tuner.trial.record import LaunchRecord

_ROOT = Path(__file__).resolve().parents[2]
_SPARE_TRIALS = 2
_OUTAGE_S = 5.0
_LONG_OUTAGE_S = 60.0
_GOES_ON_BOUND_S = 60.0
_TEARDOWN_BOUND_S = 20.0
_LOAD_WORKER = "tuner.loadgen.worker"
_CLOCK_JUMPS_S = (3600, -3600, 86_400, 0)


def coordinator_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to `tuner study`, then `tuner study resume`."""
    study = _study(folder, injections)

    def strike(_attempt: AttemptRecord, record: LaunchRecord) -> float:
        study.kill()
        seconds = until_gone(record)
        study.resume()
        return seconds

    return judge("coordinator_killed", study, struck(study, injections, strike), WORKER_DEATH_BOUND_S)


def ray_worker_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to the Ray worker that runs the trial."""
    return _kill_in_study("ray_worker_killed", folder, injections, lambda record: record.worker.pid)


def guard_killed_in_study(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to the guard of the launch."""
    return _kill_in_study("guard_killed_in_study", folder, injections, lambda record: record.guard.pid)


def server_killed_in_study(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to the server, as the kernel does it when memory is short; of a baseline it would end the study."""
    return _kill_in_study(
        "server_killed_in_study",
        folder,
        injections,
        lambda record: record.server.pid if record.server else None,
        spared=BASELINE_PURPOSES,
    )


def load_worker_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to the process that sends the requests of the benchmark."""
    return _kill_in_study("load_worker_killed", folder, injections, _load_worker_of, bound_s=_TEARDOWN_BOUND_S)


def _kill_in_study(
    name: str,
    folder: Path,
    injections: int,
    victim: Callable[[LaunchRecord], int | None],
    *,
    bound_s: float = WORKER_DEATH_BOUND_S,
    spared: Collection[Purpose] = (),
) -> list[Judged]:
    study = _study(folder, 2 * injections)

    def strike(attempt: AttemptRecord, record: LaunchRecord) -> float | None:
        pid = None if attempt.purpose in spared else victim(record)
        if pid is None:
            return None
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the trial was over
        return until_gone(record)

    return judge(name, study, struck(study, injections, strike), bound_s)


def _load_worker_of(record: LaunchRecord) -> int | None:
    """Wait for the load process of a launch; None when the launch ended before there was one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        worker = psutil.Process(record.worker.pid)
        while psutil.pid_exists(record.guard.pid):
            for child in worker.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if _LOAD_WORKER in child.cmdline():
                        return int(child.pid)
            stopping.pause(0.02)
    return None


def node_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to a whole Ray node of a cluster on this machine, which then gets a new one."""
    with Cluster(folder) as cluster:
        study = Study(folder, _sqlite(folder), 2 * injections + _SPARE_TRIALS, cluster)

        def strike(_attempt: AttemptRecord, record: LaunchRecord) -> float | None:
            if not cluster.hosts(record.worker.pid):
                # Ray chose the coordinator's own node: have it choose again.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.worker.pid, signal.SIGKILL)
                return None
            cluster.kill_node_of(record.worker.pid)
            seconds = until_gone(record)
            cluster.add_node()
            return seconds

        strikes = struck(study, injections, strike)
    return judge("node_killed", study, strikes, WORKER_DEATH_BOUND_S)


def database_down(folder: Path, injections: int) -> list[Judged]:
    """PostgreSQL is stopped while a trial runs, and comes back; the last time it is away for a minute."""
    sys.path.insert(0, str(_ROOT / "tests"))
    from support.postgres import PostgresServer

    server = PostgresServer(folder / "postgres")
    server.start()
    try:
        study = Study(folder, server.url(), injections + _SPARE_TRIALS)
        outages = iter([*[_OUTAGE_S] * (injections - 1), _LONG_OUTAGE_S])

        def strike(_attempt: AttemptRecord, _record: LaunchRecord) -> float:
            before = len(study.attempts())
            server.stop()
            stopping.pause(next(outages))
            server.start()
            return _until(lambda: len(study.attempts()) > before or study.coordinator.poll() is not None)

        return judge("database_down", study, struck(study, injections, strike), _GOES_ON_BOUND_S)
    finally:
        server.stop()


def disk_full(folder: Path, injections: int) -> list[Judged]:
    """No file of the study grows any more, its database included; once the study has stopped for that, there is room.

    A study whose trial ends in time without writing just goes on.
    """
    shim = Shim(folder)
    study = _study(folder, 2 * injections, shim)

    def strike(attempt: AttemptRecord, _record: LaunchRecord) -> float | None:
        shim.fill_disk()
        seconds = _until(lambda: study.coordinator.poll() is not None or study.verdict_of(attempt.trial) != "")
        shim.free_disk()
        if study.coordinator.poll() is None:
            return None if seconds <= _GOES_ON_BOUND_S else seconds
        study.resume()
        return seconds

    return judge("disk_full", study, struck(study, injections, strike), _GOES_ON_BOUND_S)


def clock_jump(folder: Path, injections: int) -> list[Judged]:
    """Somebody sets the clock while a trial runs: an hour ahead, an hour back, a day ahead, right again."""
    shim = Shim(folder)
    study = _study(folder, injections, shim)
    jumps = itertools.cycle(_CLOCK_JUMPS_S)

    def strike(attempt: AttemptRecord, _record: LaunchRecord) -> float:
        shim.set_clock(next(jumps))
        return _until(lambda: study.verdict_of(attempt.trial) != "" or study.coordinator.poll() is not None)

    return judge("clock_jump", study, struck(study, injections, strike), _GOES_ON_BOUND_S)


def _study(folder: Path, injections: int, shim: Shim | None = None) -> Study:
    environment = shim.environment if shim else {}
    return Study(folder, _sqlite(folder), injections + _SPARE_TRIALS, environment=environment)


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'tuner.db'}"


def _until(question: Callable[[], bool]) -> float:
    """Seconds until something is true; gives up well beyond every bound, which is for the judge to apply."""
    began = time.monotonic()
    while not question() and time.monotonic() - began < 3 * _GOES_ON_BOUND_S:
        stopping.pause(0.1)
    return time.monotonic() - began


STUDY_FAULTS: dict[str, Callable[[Path, int], list[Judged]]] = {
    "coordinator_killed": coordinator_killed,
    "ray_worker_killed": ray_worker_killed,
    "guard_killed_in_study": guard_killed_in_study,
    "server_killed_in_study": server_killed_in_study,
    "load_worker_killed": load_worker_killed,
    "node_killed": node_killed,
    "database_down": database_down,
    "disk_full": disk_full,
    "clock_jump": clock_jump,
}
