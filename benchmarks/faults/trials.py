"""One injection: run a whole trial, disturb it, and judge from outside what it left and what it said."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.catalogue import MEASURED, Disturbance, Injection
from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, Phase
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialReport, TrialRequest
from tuner.trial.ports import is_free
from tuner.trial.proctree import ProcessId, is_alive
from tuner.trial.record import FILE, LaunchRecord
from tuner.trial.runner import run_trial

TAG = "TUNER_FAULT_TAG"
WORKER_DEATH_BOUND_S = 10.0
"""After SIGKILL of its worker a server tree ends by itself within this time."""

_TIME_SCALE = "200"
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Judged:
    """What one injection did.

    Attributes:
        name: the fault.
        said: class that the trial reported, `measured`, or empty when there was no report.
        seconds: what it cost, tear-down included.
        bound_s: what it may cost.
        orphans: processes of it that were left.
        ports_held: its ports on which one of them still listened.
        is_right: whether `said` is among the expected.
        where: run directory, kept when something was wrong.
        trouble: why there was no report.
    """

    name: str
    said: str
    seconds: float
    bound_s: float
    orphans: int
    ports_held: int
    is_right: bool
    where: Path
    trouble: str = ""

    @classmethod
    def lost(cls, name: str, where: Path, trouble: str) -> Judged:
        """An injection that could not be carried through."""
        return cls(name, "", 0.0, 0.0, orphans=0, ports_held=0, is_right=False, where=where, trouble=trouble)

    @property
    def is_lost(self) -> bool:
        """Whether the trial vanished without a report."""
        return not self.said

    @property
    def is_over_bound(self) -> bool:
        """Whether it cost more than it may."""
        return self.seconds > self.bound_s

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return self.is_right and not (self.orphans or self.ports_held or self.is_over_bound)

    def __str__(self) -> str:
        left = f"{self.orphans} processes and {self.ports_held} ports left"
        return f"{self.name}: said {self.said or 'nothing'}, {self.seconds:.1f} s, {left}, {self.where} {self.trouble}"


def fault_space(injection: Injection, tag: str) -> Space:
    """A space of one configuration: the simulated engine with the fault, and a workload of a second."""
    env = {TAG: tag}
    if injection.spec:
        env["TUNER_SIM_FAULT"] = injection.spec
    flags = {"--time-scale": _TIME_SCALE, **injection.flags}
    workload = {
        "input_tokens": 32,
        "output_tokens": 16,
        "levels": [1, 4],
        "repeats": 1,
        "min_requests": 8,
        "single_stream_min_requests": 2,
        "single_stream_max_requests": 3,
        "warmup_requests": 2,
    }
    engines = {"simulated": {"flags": flags, "env": env}}
    return Space.model_validate({"name": "faults", "model": "sim/kimi", "engines": engines, "workload": workload})


def request_for(space: Space, run_dir: Path, limits: Mapping[Phase, float]) -> TrialRequest:
    """The only trial of a space."""
    candidate = Candidate.of(space, "simulated", {})
    return TrialRequest(
        "faults", 1, 1, Purpose.SEARCH, candidate, space, space.workload, str(run_dir), phase_limits=limits
    )


def run_once(space: Space, run_dir: Path, limits: Mapping[Phase, float]) -> TrialReport:
    """A whole trial in this process."""
    request = request_for(space, run_dir, limits)
    return run_trial(request, gpus=(), notify=lambda event: None, cancelled=lambda: False)


def inject(injection: Injection, root: Path, limits: Mapping[Phase, float], bound_s: float) -> Judged:
    """Inject one fault and judge what came of it."""
    tag = uuid.uuid4().hex
    run_dir = root / injection.name / tag[:8]
    run_dir.mkdir(parents=True)
    space = fault_space(injection, tag)
    began = time.monotonic()
    trouble = ""
    report: TrialReport | None = None
    try:
        if injection.disturbance is Disturbance.KILL_WORKER:
            seconds = _kill_worker(injection, tag, run_dir / "first")
            bound_s = WORKER_DEATH_BOUND_S
            report = run_once(space, run_dir, limits)  # as the study does: the same trial again
        else:
            with _disturbed(injection.disturbance, run_dir):
                report = run_once(space, run_dir, limits)
            seconds = time.monotonic() - began
    except Exception:
        trouble = traceback.format_exc()
        seconds = time.monotonic() - began
    said = _said(report)
    judged = Judged(
        name=injection.name,
        said=said,
        seconds=seconds,
        bound_s=bound_s,
        orphans=len(left_behind(tag, run_dir)),
        ports_held=ports_held(run_dir),
        is_right=said in injection.expected,
        where=run_dir,
        trouble=trouble,
    )
    if judged.is_clean:
        shutil.rmtree(run_dir)
    return judged


def _said(report: TrialReport | None) -> str:
    match report.outcome if report else None:
        case Measured():
            return MEASURED
        case Failure(failure_class=failure):
            return failure.value
        case _:
            return ""


# -- disturbing --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _disturbed(kind: Disturbance, run_dir: Path) -> Iterator[None]:
    if kind is Disturbance.NONE:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_disturb, args=(kind, run_dir, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _disturb(kind: Disturbance, run_dir: Path, over: threading.Event) -> None:
    record = _wait_for_record(run_dir, over)
    if record is None or record.server is None:
        return
    if kind is Disturbance.STEAL_PORT:
        _hold_port(record.ports[0], over)
        return
    over.wait(random.uniform(0.0, 1.0))  # anywhere between the first import and the benchmark
    victim = record.guard if kind is Disturbance.KILL_GUARD else record.server
    number = signal.SIGSTOP if kind is Disturbance.STOP_SERVER else signal.SIGKILL
    if is_alive(victim):
        os.kill(victim.pid, number)


def _wait_for_record(run_dir: Path, over: threading.Event) -> LaunchRecord | None:
    while not over.wait(0.01):
        record = LaunchRecord.read(run_dir / FILE)
        if record is not None and record.server is not None:
            return record
    return None


def _hold_port(port: int, over: threading.Event) -> None:
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        over.wait()


def _kill_worker(injection: Injection, tag: str, run_dir: Path) -> float:
    """Start the trial in a worker process, SIGKILL that, and return how long its server tree lived on."""
    run_dir.mkdir()
    program = [sys.executable, "-m", "benchmarks.faults.worker", injection.name, tag, str(run_dir)]
    with subprocess.Popen(program, start_new_session=True) as worker:
        over = threading.Event()
        threading.Thread(target=lambda: (worker.wait(), over.set()), daemon=True).start()
        record = _wait_for_record(run_dir, over)
        if record is None:
            raise RuntimeError("the worker ended before its server started")
        over.wait(random.uniform(0.0, 1.5))
        worker.kill()
        began = time.monotonic()
        while _alive(record) and time.monotonic() - began < 3 * WORKER_DEATH_BOUND_S:
            time.sleep(0.02)
        return time.monotonic() - began


def _alive(record: LaunchRecord) -> bool:
    return is_alive(record.guard) or (record.server is not None and is_alive(record.server))


# -- judging -----------------------------------------------------------------------------------------------------------


def left_behind(tag: str, run_dir: Path) -> list[int]:
    """Processes that carry the tag or guard the launch, after a moment in which the kernel may bury the dead."""
    deadline = time.monotonic() + _SETTLE_S
    while (left := [*_tagged(tag), *_guards(run_dir)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _tagged(tag: str) -> list[int]:
    mark = f"{TAG}={tag}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _guards(run_dir: Path) -> list[int]:
    return [
        record.guard.pid for record in _records(run_dir) if is_alive(ProcessId(record.guard.pid, record.guard.start))
    ]


def _records(run_dir: Path) -> list[LaunchRecord]:
    found = (LaunchRecord.read(path) for path in run_dir.rglob(FILE))
    return [record for record in found if record is not None]


def ports_held(run_dir: Path) -> int:
    """Ports given to the launches below a directory on which somebody still listens."""
    return sum(not is_free(port) for record in _records(run_dir) for port in record.ports)
