"""The guard: a small process between tuner and a server, so that no server outlives the tuner that started it.

    worker ──control pipe──▶ guard ──fork──▶ server (own session, own cgroup) ──▶ engine's children
           ◀─status pipe───        ◀─log pipe──

The guard starts the server, copies its output into a bounded log, and takes the whole tree down when it is told to,
when the control pipe closes, or when the worker dies (SIGKILL included: a pidfd tells). It is the subreaper of the
tree, so double-forked and re-parented children come back to it and count as descendants. If the guard itself is
killed, the kernel kills the server (PR_SET_PDEATHSIG) and the worker, which sees the status pipe close, kills the rest.

Standard library only and few modules: a start costs some 30 ms. The order comes as one JSON line on standard input,
never on the command line or on disk, because the environment may hold secrets. Events go out as JSON lines:
`started`, `members`, `shared_memory`, `member_killed`, `leader_exit`, `tree_exit`, `spawn_failed`, `done`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tuner.trial import cgroup, proctree, scratch, sharedmemory
from tuner.trial.deaths import DeathWatch
from tuner.trial.logfile import LogWriter
from tuner.trial.proctree import Marks, ProcessId

STOP = b"stop"
ORPHAN_GRACE_S = 3.0
KILL_WAIT_S = 5.0
# Who belongs to the tree is written down for the case that guard and worker are both killed: often while the tree
# grows, seldom while it is measured.
_LOOK_EVERY_S = 1.0
_DEATHS_EVERY_S = 0.25
_LOOK_SELDOM_S = 5.0
_GROWING_S = 60.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


class BecomeServer(BaseException):
    """Raised in the server's process, in place of executing its program, where the guard was forked from a warm engine.

    Session, directory, standard streams and the kernel's watch over the guard are in place; `order` has the rest.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__()
        self.order = order


class _Guard:
    def __init__(self, order: dict[str, Any], worker: ProcessId, *, execute: bool) -> None:
        self._order = order
        self._execute = execute
        self._myself = _identify_self()
        self._worker_fd = _watch(worker)
        self._log = LogWriter(Path(order["log"]), hidden=order["hidden"])
        self._log_read, self._log_write = os.pipe()
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._asked_to_stop = False
        self._leader = 0
        self._leader_exited = False
        self._tree_ended = False
        self._members: frozenset[ProcessId] = frozenset()
        self._next_look = self._next_deaths = 0.0
        self._began = time.monotonic()
        self._grace_s = ORPHAN_GRACE_S
        self._deaths = DeathWatch()
        self._segments = sharedmemory.SegmentWatch()

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._asked_to_stop = True

    # -- starting ---------------------------------------------------------------------------------------------------

    def spawn(self) -> bool:
        """Start the server; False if the program cannot be executed (the reason is reported)."""
        error_read, error_write = os.pipe()
        self._leader = os.fork()
        if self._leader == 0:
            self._become_server(error_write)
        os.close(error_write)
        os.close(self._log_write)
        with os.fdopen(error_read, "rb") as failed:
            reason = failed.read().decode(errors="replace")
        if reason:
            os.waitpid(self._leader, 0)
            self._tell("spawn_failed", reason=reason)
            return False
        stat = proctree.read_stat(self._leader)
        inode = os.fstat(self._log_read).st_ino
        self._tell("started", pid=self._leader, start=stat.start if stat else 0, log_pipe=inode)
        return True

    def _become_server(self, error_write: int) -> NoReturn:
        try:
            self._enter_server()
            if not self._execute:
                raise BecomeServer(self._order)
            argv = self._order["argv"]
            os.execvpe(argv[0], argv, self._order["env"])  # noqa: S606 - argv comes from a checked plan
        except OSError as error:
            os.write(error_write, f"{self._order['argv'][0]}: {error.strerror}".encode())
        except BecomeServer:
            raise
        except BaseException:  # noqa: BLE001 - nothing of the guard may run on in this process
            os._exit(127)
        os._exit(127)

    def _enter_server(self) -> None:
        """Everything that holds for the server's process before its program begins."""
        order = self._order
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != order["guard_pid"]:
            os._exit(1)  # the guard died before the kernel was asked to watch it
        if order["cgroup"]:
            cgroup.enter(order["cgroup"])
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order["cwd"])
        silent = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silent, 0)
        os.dup2(self._log_write, 1)
        os.dup2(self._log_write, 2)

    # -- watching ---------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Copy the log and collect the dead until there is a reason to take the tree down, or no tree."""
        poller = select.poll()
        for descriptor in (0, self._log_read, self._worker_fd, self._wake_read):
            poller.register(descriptor, select.POLLIN)
        while not self._asked_to_stop:
            ready = dict(poller.poll(_DEATHS_EVERY_S * 1000))
            if self._log_read in ready and not self._copy_log():
                poller.unregister(self._log_read)
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._collect()
            if self._worker_fd in ready:
                return
            if 0 in ready:
                self._read_control()
                return
            self._remember_members()
            if time.monotonic() >= self._next_deaths:
                self._report_deaths()

    def _read_control(self) -> None:
        words = os.read(0, 4096).split()
        if words[:1] == [STOP]:
            self._grace_s = float(words[1])

    def _copy_log(self) -> bool:
        data = os.read(self._log_read, 1 << 18)
        self._log.write(data)
        return bool(data)

    def _collect(self) -> bool:
        """Collect every dead child; True while any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if self._leader_exited and not self._tree_ended:
                    self._tree_ended = True
                    self._tell("tree_exit")
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._leader_exited = True
                self._report_deaths()
                self._tell("leader_exit", code=os.waitstatus_to_exitcode(status))

    def _remember_members(self) -> None:
        if time.monotonic() < self._next_look:
            return
        now = time.monotonic()
        self._next_look = now + (_LOOK_EVERY_S if now - self._began < _GROWING_S else _LOOK_SELDOM_S)
        table = proctree.process_table()
        members = frozenset(proctree.descendants(self._myself, table))
        self._deaths.follow(table[member.pid] for member in members)
        if members != self._members:
            self._members = members
            self._tell("members", processes=sorted((m.pid, m.start) for m in members))
        self._remember_segments(members)

    def _remember_segments(self, members: Iterable[ProcessId]) -> None:
        if self._segments.look(member.pid for member in members):
            self._tell("shared_memory", segments=sorted((s.name, s.inode) for s in self._segments.made))

    def _report_deaths(self) -> None:
        self._next_deaths = time.monotonic() + _DEATHS_EVERY_S
        for death in self._deaths.killed():
            if death.pid != self._leader:
                # Into the log as well: whoever reads it for the cause must not take what follows for the cause.
                self._log.write(
                    f"\n[tuner: {death.name} (pid {death.pid}) was killed by signal {death.signal}]\n".encode()
                )
                self._tell("member_killed", pid=death.pid, name=death.name, signal=death.signal)

    # -- ending -----------------------------------------------------------------------------------------------------

    def tear_down(self) -> None:
        """SIGTERM to everything that belongs to the launch, a bounded wait, then SIGKILL to what is left."""
        self._deaths.close()  # what dies from here on was asked to
        marks = Marks(self._order["launch_id"], guard=self._myself, cgroup=self._order["cgroup"])
        members = proctree.find_members(marks)
        self._remember_segments(members)
        for process in members:
            proctree.send(process, signal.SIGTERM)
            proctree.send(process, signal.SIGCONT)  # a stopped process hears SIGTERM only when it goes on
        deadline = time.monotonic() + self._grace_s
        while self._collect() and time.monotonic() < deadline:
            self._drain_log(0.05)
        left = proctree.kill_members(marks, timeout_s=KILL_WAIT_S)
        self._collect()
        self._drain_log(0.0)
        self.finish(left)

    def finish(self, left: Iterable[ProcessId] = ()) -> None:
        """Close the log, give back cgroup, temporary folder and shared memory, and say which processes are left."""
        self._log.close()
        if self._order["cgroup"]:
            cgroup.remove(self._order["cgroup"])
        if self._order["scratch"]:
            scratch.remove(Path(self._order["scratch"]))
        sharedmemory.remove(self._segments.made)
        self._tell("done", left=sorted((m.pid, m.start) for m in left))

    def _drain_log(self, wait_s: float) -> None:
        while select.select([self._log_read], [], [], wait_s)[0]:
            if not self._copy_log():
                time.sleep(wait_s)
                return

    def _tell(self, event: str, **facts: object) -> None:
        with contextlib.suppress(OSError):  # the worker may be dead
            os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


def _identify_self() -> ProcessId:
    myself = proctree.identify(os.getpid())
    assert myself is not None  # we are running
    return myself


def _watch(worker: ProcessId) -> int:
    """A descriptor that becomes readable when the worker has died (at once if it is dead already)."""
    try:
        descriptor = os.pidfd_open(worker.pid)
    except OSError:
        descriptor = -1
    if descriptor >= 0 and proctree.is_alive(worker):
        return descriptor
    read, write = os.pipe()
    os.close(write)
    return read


def main(*, execute: bool = True) -> int:
    """Run one launch to its end; started by `tuner.trial.process`, never by hand.

    Args:
        execute: False in a guard that was forked from a warm engine: its server's process goes on without a program.

    Raises:
        BecomeServer: in the server's process, when `execute` is False.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with os.fdopen(
        0, "rb", buffering=0, closefd=False
    ) as control:  # unbuffered: what follows the line stays in the pipe
        line = control.readline()
    if not line:
        return 0  # the worker died before it gave the order
    order = json.loads(line)
    order["guard_pid"] = os.getpid()
    for descriptor in order["held"]:
        os.set_inheritable(descriptor, False)  # host locks live as long as the guard, never in the server
    guard = _Guard(order, ProcessId(*order["worker"]), execute=execute)
    if guard.spawn():
        guard.watch()
        guard.tear_down()
    else:
        guard.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
