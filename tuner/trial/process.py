"""Start a server under a guard, and end it with proof that nothing stayed behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self

import tuner
from tuner.domain.launch import LaunchPlan
from tuner.errors import InternalError
from tuner.trial import cgroup as cgroups
from tuner.trial import guard as guard_program
from tuner.trial import sharedmemory
from tuner.trial.blindfold import secret_values
from tuner.trial.deaths import Death
from tuner.trial.environment import build_environment
from tuner.trial.gpu import DirtyGpu, GpuProbe, memory_floor, wait_until_clean
from tuner.trial.hostlocks import HostLock
from tuner.trial.logfile import LogFollower, join_segments
from tuner.trial.proctree import ProcessId, ProcessStat, find_members, identify, is_alive, kill_members
from tuner.trial.proof import LeftProcess, TeardownProof, check_ports
from tuner.trial.record import LaunchRecord, boot_id
from tuner.trial.scratch import VARIABLE, remove, scratch_for
from tuner.trial.script import write_launch_files
from tuner.trial.warm import WarmParent

LOG = "server.log"
GUARD_LOG = "guard.log"
GRACE_S = 10.0
"""SIGTERM to SIGKILL. vLLM needs up to 9 s to end its workers; SGLang would wait for running requests without limit."""

HUNG_GRACE_S = 2.0
"""The same for a server that was found hung: what does not answer requests seldom answers signals."""

GPU_RETURN_S = 60.0
# A dead guard is noticed at once; this only bounds the wait for a machine that is very busy.
_START_S = 60.0
_PORT_RETURN_S = 3.0
_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from tuner.trial.guard import main; sys.exit(main())"


def launch(
    plan: LaunchPlan,
    run_dir: Path,
    *,
    holds: Sequence[HostLock] = (),
    gpus: GpuProbe | None = None,
    caller_env: Mapping[str, str] | None = None,
    warm: WarmParent | None = None,
    shared_temp: Sequence[str] = (),
) -> ServerHandle:
    """Start the server of a plan; returns as soon as its process exists, long before it is ready.

    Writes `launch.sh`, `plan.json`, `server.log` and `launch.json` into the run directory. Use the result as a context
    manager: leaving it tears the server down.

    Args:
        plan: what to start.
        run_dir: directory of this attempt; made if missing.
        holds: locks (ports, GPUs) that must outlive this process until the server is gone.
        gpus: the driver's probe; None on a machine without GPUs.
        caller_env: the environment that inherited variables come from; this process's own by default.
        warm: fork the server from this process, which holds the engine's imports; None executes its program.
        shared_temp: names in the temporary folder that outlast launches (see `scratch`).

    Raises:
        LaunchRefused: if the program cannot be executed at all.
        ColdError: `warm` cannot fork; nothing was started.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    write_launch_files(plan, run_dir)
    launch_id = uuid.uuid4().hex
    floor = memory_floor(gpus, plan.gpus) if gpus is not None and plan.gpus else {}
    worker = _require(identify(os.getpid()))
    process = _start_guard(run_dir, holds) if warm is None else warm.start_guard(run_dir / GUARD_LOG, holds)
    cgroup = cgroups.create(launch_id)
    environment = build_environment(plan, os.environ if caller_env is None else caller_env, launch_id)
    scratch = scratch_for(launch_id, environment)
    record = LaunchRecord(
        launch_id=launch_id,
        boot=boot_id(),
        worker=worker,
        guard=_require(identify(process.pid)),
        cgroup=cgroup,
        ports=(plan.port, *plan.extra_ports),
        scratch=None if scratch is None else str(scratch.path),
    )
    # First written down, then made: whoever sweeps up after us knows of everything.
    record.write(run_dir)
    if scratch is not None and scratch.make(shared_temp, environment):
        environment[VARIABLE] = str(scratch.path)
    variables = environment if warm is None else {**warm.variables, **environment}
    order = {
        "launch_id": launch_id,
        "worker": dataclasses.astuple(worker),
        "argv": plan.argv,
        "env": variables,
        "cwd": plan.cwd or str(run_dir),
        "log": str(run_dir / LOG),
        "hidden": secret_values(variables),
        "cgroup": cgroup,
        "scratch": record.scratch,
        "held": [] if warm is not None else [lock.descriptor for lock in holds],
    }
    handle = ServerHandle(plan, run_dir, process, record, gpus=gpus, floor=floor)
    handle.begin(order)
    return handle


class GuardProcess(Protocol):
    """A running guard: a child of this process, or forked from a warm engine."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """The control pipe."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The status pipe."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""

    def kill(self) -> None:
        """SIGKILL."""


class LaunchRefused(InternalError):
    """The server's program could not be executed: missing, not executable, or its directory is gone.

    Attributes:
        is_late: whether it was not even tried in time, because the host is starved.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class ServerHandle:
    """A server and everything it started; closing it proves that all of it is gone.

    Attributes:
        plan: how it was started.
        run_dir: where its files lie.
        log: its output so far, line by line.
        started_at: `time.monotonic()` of the start.
        proof: what was left after closing; None while it is open.
        killed: processes of the server that a signal ended before its tear-down, where the kernel tells.
        is_hung: set by whoever found the server hung; it then gets a shorter grace.
        guard_lost: whether the guard was killed, and the server with it; says nothing about the server.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run_dir: Path,
        process: GuardProcess,
        record: LaunchRecord,
        *,
        gpus: GpuProbe | None,
        floor: Mapping[int, int],
    ) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self.log = LogFollower(run_dir / LOG)
        self.started_at = time.monotonic()
        self.proof: TeardownProof | None = None
        self._guard = process
        self._record = record
        self._gpus = gpus
        self._floor = floor
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._exit_code: int | None = None
        self._tree_ended = False
        self._guard_done = False
        self.is_hung = False
        self.guard_lost = False
        self.killed: list[Death] = []
        self._refused: str | None = None
        self._spawned = threading.Event()
        self._listener = threading.Thread(target=self._listen, name=f"guard-{record.launch_id[:8]}", daemon=True)

    def begin(self, order: Mapping[str, Any]) -> None:
        """Give the guard its order and wait until the server's process exists; called once, by `launch`."""
        self._listener.start()
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(json.dumps(order).encode() + b"\n")
            self._guard.stdin.flush()
        self._spawned.wait(_START_S)
        if self._record.server is None:
            # A guard that lives and says nothing has not come to run: it does little before it starts the server.
            is_late = self._refused is None and is_alive(self._record.guard)
            reason = self._refused or f"the guard did not start within {_START_S:.0f} s: see {self.run_dir / GUARD_LOG}"
            self.close(grace_s=0.0)
            raise LaunchRefused(reason, is_late=is_late)

    @property
    def launch_id(self) -> str:
        """The mark that every process of this launch carries in its environment."""
        return self._record.launch_id

    @property
    def pid(self) -> int:
        """The process that the plan named, leader of the server's session and process group."""
        assert self._record.server is not None
        return self._record.server.pid

    @property
    def guard_pid(self) -> int:
        """The launch's guard."""
        return self._record.guard.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the named process, negative for a signal; None while it runs."""
        with self._lock:
            return self._exit_code

    def poll(self) -> int | None:
        """The exit code once the server is dead, else None.

        A named process that ended with 0 while its children live on has put itself into the background: that is not
        dead. One that failed is, whatever children it left.
        """
        with self._lock:
            is_dead = self._exit_code is not None and (self._exit_code != 0 or self._tree_ended)
            return self._exit_code if is_dead else None

    def members(self) -> list[ProcessStat]:
        """The living processes of this launch, lowest id first."""
        return sorted(find_members(self._record.marks).values(), key=lambda stat: stat.pid)

    def seen_processes(self) -> frozenset[ProcessId]:
        """Every process of this launch that its guard has seen, ended ones included; costs nothing to ask."""
        server = self._record.server
        return self._record.members if server is None else self._record.members | {server}

    def close(self, grace_s: float | None = None) -> TeardownProof:
        """Tear everything down and prove it: SIGTERM, a bounded wait, SIGKILL. Safe to call twice.

        Args:
            grace_s: seconds between the two signals; by default `GRACE_S`, or `HUNG_GRACE_S` for a hung server.
        """
        if self.proof is not None:
            return self.proof
        if grace_s is None:
            grace_s = HUNG_GRACE_S if self.is_hung else GRACE_S
        began = time.monotonic()
        self._stop_guard(grace_s)
        members = {process.pid for process in self._record.members}
        left = kill_members(self._record.marks, timeout_s=guard_program.KILL_WAIT_S)
        join_segments(self.run_dir / LOG)
        if self._record.cgroup:
            cgroups.remove(self._record.cgroup)
        if self._record.scratch and not remove(Path(self._record.scratch)):
            self._notes.append(f"the temporary folder {self._record.scratch} could not be removed")
        sharedmemory.remove(self._record.segments)
        held = check_ports(self._record.ports, {*members, self.guard_pid}, timeout_s=_PORT_RETURN_S)
        dirty: tuple[DirtyGpu, ...] = ()
        if self._gpus is not None and self._floor:
            dirty = wait_until_clean(self._gpus, self._floor, timeout_s=GPU_RETURN_S)
        elif self.plan.gpus:
            self._notes.append("GPU memory was not checked: no driver to ask")
        self.proof = TeardownProof(
            processes=tuple(LeftProcess.of(stat) for stat in left.values()),
            ports=held,
            gpus=dirty,
            seconds=time.monotonic() - began,
            notes=tuple(self._notes),
        )
        self._update(ended=not left)
        return self.proof

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the guard's side ---------------------------------------------------------------------------------------------

    def _stop_guard(self, grace_s: float) -> None:
        guard = self._guard
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.write(f"{guard_program.STOP.decode()} {grace_s}\n".encode())
            guard.stdin.flush()
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            guard.wait(grace_s + guard_program.KILL_WAIT_S + 5.0)
        except subprocess.TimeoutExpired:
            self._notes.append("the guard did not finish and was killed")
            guard.kill()
            guard.wait()
        self._listener.join(5.0)
        if guard.stdout is not None:
            guard.stdout.close()
        guard_log = self.run_dir / GUARD_LOG
        with contextlib.suppress(OSError):
            if guard_log.stat().st_size == 0:
                guard_log.unlink()

    def _listen(self) -> None:
        """Follow the guard's events; when they end without `done`, the guard was killed: end the tree from here."""
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            with contextlib.suppress(ValueError, KeyError):
                self._on_event(json.loads(line))
        self._spawned.set()
        if not self._guard_done:
            self.guard_lost = True
            self._notes.append("the guard was killed; the server was ended by the worker")
            kill_members(self._record.marks, timeout_s=guard_program.KILL_WAIT_S)
            with self._lock:
                self._tree_ended = True
                if self._exit_code is None:
                    self._exit_code = -int(signal.SIGKILL)

    def _on_event(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "started":
            server = ProcessId(event["pid"], event["start"])
            self._update(server=server, log_pipe=event["log_pipe"])
            self._spawned.set()
        elif kind == "members":
            seen = frozenset(ProcessId(pid, start) for pid, start in event["processes"])
            self._update(members=self._record.members | seen)
        elif kind == "shared_memory":
            self._update(segments=frozenset(sharedmemory.Segment(*segment) for segment in event["segments"]))
        elif kind == "spawn_failed":
            self._refused = event["reason"]
            self._spawned.set()
        elif kind == "member_killed":
            self.killed.append(Death(event["pid"], event["name"], event["signal"]))
        elif kind == "leader_exit":
            with self._lock:
                self._exit_code = event["code"]
        elif kind == "tree_exit":
            with self._lock:
                self._tree_ended = True
        elif kind == "done":
            self._guard_done = True

    def _update(self, **changes: Any) -> None:
        self._record = dataclasses.replace(self._record, **changes)
        with contextlib.suppress(OSError):  # a full disk must not end a trial; only a later sweep would miss this
            self._record.write(self.run_dir)


def _start_guard(run_dir: Path, holds: Sequence[HostLock]) -> subprocess.Popen[bytes]:
    package_root = Path(tuner.__file__).resolve().parent.parent
    with (run_dir / GUARD_LOG).open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(package_root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            cwd="/",
            start_new_session=True,
            pass_fds=[lock.descriptor for lock in holds],
        )


def _require(process: ProcessId | None) -> ProcessId:
    if process is None:
        raise InternalError("a process that was just started cannot be seen in /proc: is it mounted?")
    return process
