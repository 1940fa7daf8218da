"""Warm launches: servers forked from a process that already holds the engine's imports (see `zygote`).

One parent per engine program and worker. It is started at the first warm launch, with that launch's environment, and
ends with the worker. A launch whose environment differs in a variable that may have been read while the engine was
imported is not forked but started plainly: the parent tells which names Python code asked for, and the files of its
loaded libraries are searched for the others.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tuner.domain.launch import LaunchPlan
from tuner.engines.definition import Warm
from tuner.trial import zygote
from tuner.trial.environment import build_environment
from tuner.trial.hostlocks import HostLock
from tuner.trial.proctree import MARK

_IMPORT_TIMEOUT_S = 300.0
_FORK_TIMEOUT_S = 20.0
_MOST_STARTS = 3
_NO_LAUNCH = "0" * 32
"""Stands in the parent's environment where a server's launch id will be written."""


class ColdError(Exception):
    """This launch must be a plain one; the text says why. Never reaches a user but as a note."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a parent says after importing.

    Attributes:
        seconds: how long the imports took.
        read: variables that Python code asked for meanwhile.
        listed: modules that looked at the whole environment.
        written: variables that the imports set or took away (None); every fork has them so.
        opened_by: GPU device files that were opened meanwhile, and CUDA → module that was being imported.
        unfit: what makes the process unfit for forking.
        files: its program and loaded libraries.
        missing: modules that could not be imported → reason.
    """

    seconds: float
    read: frozenset[str]
    listed: tuple[str, ...]
    written: Mapping[str, str | None]
    opened_by: Mapping[str, str]
    unfit: tuple[str, ...]
    files: tuple[str, ...]
    missing: Mapping[str, str]


class ForkedGuard:
    """A guard that a parent forked, with the part of `subprocess.Popen` that a `ServerHandle` uses."""

    def __init__(self, pid: int, control: int, status: int) -> None:
        self.pid = pid
        self.stdin: IO[bytes] = os.fdopen(control, "wb")
        self.stdout: IO[bytes] = os.fdopen(status, "rb")
        self._pidfd = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code is its parent's to know.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._pidfd < 0:
            return 0
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("guard", timeout or 0.0)
        os.close(self._pidfd)
        self._pidfd = -1
        return 0

    def kill(self) -> None:
        """SIGKILL."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class WarmParent:
    """A process with the engine's imports, from which servers are forked.

    Raises:
        ColdError: it could not be started, or is unfit for forking.
    """

    def __init__(self, interpreter: str, warm: Warm, environment: Mapping[str, str], log: Path, *, gpus: bool) -> None:
        self._warm = warm
        self._environment = environment
        self._suspects: dict[str, str | None] = {}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as output:
            self.process = subprocess.Popen(
                [interpreter, zygote.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, MARK: _NO_LAUNCH},
                cwd="/",
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        try:
            wish = {
                "modules": warm.modules_for(gpus=gpus),
                "ask": warm.ask,
                "fork_workers": warm.fork_workers,
                "spawn_when_set": warm.spawn_when_set,
                "ready_threads": warm.ready_threads,
                "answer_devices": warm.answer_devices,
            }
            answer = self._ask(json.dumps(wish).encode(), (), _IMPORT_TIMEOUT_S)
            self.imported = _imported(answer)
            if self.imported.unfit:
                raise ColdError(f"the engine's imports cannot be forked: {'; '.join(self.imported.unfit)}")
        except BaseException:
            self.close()
            raise

    @property
    def variables(self) -> Mapping[str, str]:
        """What every forked server gets beside its plan's environment."""
        return self._warm.env

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for another server."""
        return self.process.poll() is None

    def refuse(self, environment: Mapping[str, str]) -> None:
        """Refuse a launch that a fork would not repeat.

        Raises:
            ColdError: a variable differs that importing may have read.
        """
        names = {*environment, *self._environment} - {MARK}
        for name in sorted(name for name in names if environment.get(name) != self._environment.get(name)):
            if (lister := self._lister_of(name)) is not None:
                raise ColdError(f"{name} may be among the variables that {lister} looks for while it is imported")
            if name in self.imported.read or name in self.imported.written:
                raise ColdError(f"{name} is read while the engine is imported")
            if (library := self._reader_of(name)) is not None:
                raise ColdError(f"{name} may be read when {Path(library).name} is loaded")

    def _lister_of(self, name: str) -> str | None:
        """A module of the engine that looked at all variables, unless it is known to look for others.

        Utilities that do so look for their own prefix.
        """
        packages = {module.partition(".")[0] for module in self._warm.modules}
        looked = (module for module in self.imported.listed if module.partition(".")[0] in packages)
        return next((module for module in looked if name.startswith(self._warm.lists.get(module, ""))), None)

    def _reader_of(self, name: str) -> str | None:
        """A loaded file whose bytes hold the name, unless it is known to read its variables later."""
        if name not in self._suspects:
            late = [part for part, beginning in self._warm.reads_late.items() if name.startswith(beginning)]
            files = (file for file in self.imported.files if not any(part in file for part in late))
            self._suspects[name] = next((file for file in files if _holds(file, name.encode())), None)
        return self._suspects[name]

    def start_guard(self, log: Path, holds: Sequence[HostLock]) -> ForkedGuard:
        """Fork a guard that waits for its order.

        Raises:
            ColdError: the parent is dead or does not answer.
        """
        control_read, control_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            with log.open("ab") as errors:
                given = [control_read, status_write, errors.fileno(), *(lock.descriptor for lock in holds)]
                pid = json.loads(self._ask(b"fork", given, _FORK_TIMEOUT_S))["guard"]
            return ForkedGuard(pid, control_write, status_read)
        except BaseException:
            os.close(control_write)
            os.close(status_read)
            raise
        finally:
            os.close(control_read)
            os.close(status_write)

    def _ask(self, message: bytes, descriptors: Sequence[int], timeout_s: float) -> bytes:
        self._channel.settimeout(timeout_s)
        try:
            socket.send_fds(self._channel, [message], list(descriptors))
            answer = self._channel.recv(zygote.MESSAGE_BYTES)
        except OSError as error:
            self.close()
            raise ColdError(f"the process with the engine's imports does not answer: {error}") from error
        if not answer:
            self.close()
            raise ColdError("the process with the engine's imports has ended")
        return answer

    def close(self) -> None:
        """End the parent; servers that it forked are their guards' business."""
        self._channel.close()
        self.process.kill()
        self.process.wait()


class WarmParents:
    """The parents of one worker, by program and engine modules."""

    def __init__(self) -> None:
        self._parents: dict[tuple[str, str, bool], WarmParent] = {}
        self._starts: dict[tuple[str, str, bool], int] = {}

    def parent_for(self, plan: LaunchPlan, warm: Warm | None, log: Path) -> WarmParent:
        """The parent for a launch, started if need be (which takes as long as the imports).

        Args:
            plan: the launch.
            warm: how its engine is kept warm; None if it is not known.
            log: where a new parent's output goes.

        Raises:
            ColdError: the launch must be plain.
        """
        if warm is None:
            raise ColdError(f"nothing is known about keeping {plan.engine} warm")
        environment = {**warm.env, **build_environment(plan, os.environ, _NO_LAUNCH)}
        key = (interpreter_of(plan.argv), warm.model_dump_json(), bool(plan.gpus))
        parent = self._parents.get(key)
        if parent is None or not parent.is_alive:
            self._starts[key] = self._starts.get(key, 0) + 1
            if self._starts[key] > _MOST_STARTS:
                raise ColdError(f"the process with the engine's imports ended {_MOST_STARTS} times")
            parent = self._parents[key] = WarmParent(key[0], warm, environment, log, gpus=bool(plan.gpus))
        parent.refuse(environment)
        return parent

    def close(self) -> None:
        """End every parent."""
        for parent in self._parents.values():
            parent.close()
        self._parents.clear()


def interpreter_of(argv: Sequence[str]) -> str:
    """The Python that a command line runs in.

    Raises:
        ColdError: it is no script and no `python -m module`.
    """
    program = Path(argv[0])
    if program.name.startswith("python"):
        if len(argv) > 1 and (argv[1] == "-m" or not argv[1].startswith("-")):
            return argv[0]
        raise ColdError(f"{program.name} is called with options of its own")
    with contextlib.suppress(OSError), program.open("rb") as script:
        first = script.readline(512).decode(errors="replace").split()
        if len(first) == 1 and first[0].startswith("#!/") and "python" in Path(first[0]).name:
            return first[0].removeprefix("#!")
    raise ColdError(f"{program.name} is no Python script")


def _imported(answer: bytes) -> Imported:
    said = json.loads(answer)
    return Imported(
        seconds=said["seconds"],
        read=frozenset(said["read"]),
        listed=tuple(said["listed"]),
        written=said["written"],
        opened_by=said["opened_by"],
        unfit=tuple(said["unfit"]),
        files=tuple(said["files"]),
        missing=said["missing"],
    )


def _holds(file: str, text: bytes) -> bool:
    try:
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:  # noqa: PTH123
            return content.find(text) >= 0
    except (OSError, ValueError):
        return False  # removed since it was loaded, or empty
