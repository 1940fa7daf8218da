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

from benchmarks.faults import stopping
from benchmarks.faults.catalogue import MEASURED, Disturbance, Injection
from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Failure, Phase
from tuner.domain.output import OutputReference
from tuner.domain.space import Space
from tuner.domain.trial import LaunchKind, Purpose, TrialReport, TrialRequest
from tuner.trial.ports import is_free
from tuner.trial.proctree import ProcessId, is_alive
from tuner.trial.record import FILE, LaunchRecord
from tuner.trial.runner import run_trial

TAG = "TUNER_FAULT_TAG"
WORKER_DEATH_BOUND_S = 10.0
"""After SIGKILL of its worker a server tree ends by itself within this time."""

_ROOT = Path(__file__).resolve().parents[2]
_TIME_SCALE = "200"
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Norm:
    """What launches without a fault take and answer.

    Attributes:
        limits: learned from them, seconds per phase.
        bound_s: what a trial may cost.
        reference: what they answered; None leaves answers unjudged.
    """

    limits: Mapping[Phase, float]
    bound_s: float
    reference: OutputReference | None = None


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
    env = {TAG: tag, "PYTHONPATH": str(_ROOT)}  # the engine of this checkout, whatever is installed
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


def run_once(space: Space, run_dir: Path, norm: Norm, purpose: Purpose = Purpose.SEARCH) -> TrialReport:
    """The only trial of a space, in this process.

    Raises:
        Stopped: the benchmark is to end; the trial was torn down.
    """
    stopping.check()
    request = TrialRequest(
        "faults",
        1,
        1,
        purpose,
        Candidate.of(space, "simulated", {}),
        space,
        space.workload,
        str(run_dir),
        phase_limits={LaunchKind.PLAIN: norm.limits},
        reference=norm.reference,
    )
    report = run_trial(request, gpus=(), notify=lambda event: None, cancelled=stopping.is_asked)
    stopping.check()
    return report


def inject(injection: Injection, root: Path, norm: Norm) -> Judged:
    """Inject one fault and judge what came of it.

    Raises:
        Stopped: the benchmark is to end.
    """
    stopping.check()
    tag = uuid.uuid4().hex
    run_dir = root / injection.name / tag[:8]
    run_dir.mkdir(parents=True)
    bound_s = norm.bound_s
    began = time.monotonic()
    said = trouble = ""
    try:
        match injection.disturbance:
            case Disturbance.KILL_WORKER:
                seconds = _kill_worker(injection, tag, run_dir / "first")
                bound_s = WORKER_DEATH_BOUND_S
                said = say(run_once(fault_space(injection, tag), run_dir, norm))  # as the study does: once more
            case Disturbance.LIMIT_FILES:
                said = _with_short_files(injection, tag, run_dir)
                seconds = time.monotonic() - began
            case kind:
                with _disturbed(kind, run_dir):
                    said = say(run_once(fault_space(injection, tag), run_dir, norm))
                seconds = time.monotonic() - began
    except Exception:
        trouble = traceback.format_exc()
        seconds = time.monotonic() - began
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


def say(report: TrialReport) -> str:
    """`measured`, or the class of the failure."""
    return report.outcome.failure_class.value if isinstance(report.outcome, Failure) else MEASURED


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
    while not over.wait(0.01) and not stopping.is_asked():
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


def _worker(injection: Injection, tag: str, run_dir: Path) -> list[str]:
    """The command line of a worker process of its own."""
    return [sys.executable, "-m", "benchmarks.faults.worker", injection.name, tag, str(run_dir)]


def _with_short_files(injection: Injection, tag: str, run_dir: Path) -> str:
    """The trial in a worker whose files, and those of all its children, end at a size, as they do on a full disk."""
    size = injection.file_bytes
    limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); "
    command = [sys.executable, "-c", f"{limit}os.execv(sys.argv[1], sys.argv[1:])", *_worker(injection, tag, run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, cwd=_ROOT) as worker:
        try:
            while worker.poll() is None:
                stopping.pause(0.05)
            output, _ = worker.communicate()
        finally:
            worker.kill()
    if worker.returncode:
        raise subprocess.CalledProcessError(worker.returncode, command)
    return output.decode().strip()


def _kill_worker(injection: Injection, tag: str, run_dir: Path) -> float:
    """Start the trial in a worker process, SIGKILL that, and return how long its server tree lived on."""
    run_dir.mkdir()
    with subprocess.Popen(_worker(injection, tag, run_dir), start_new_session=True, cwd=_ROOT) as worker:
        over = threading.Event()
        threading.Thread(target=lambda: (worker.wait(), over.set()), daemon=True).start()
        try:
            record = _wait_for_record(run_dir, over)
            stopping.check()
            if record is None:
                raise RuntimeError("the worker ended before its server started")
            over.wait(random.uniform(0.0, 1.5))
        finally:
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
