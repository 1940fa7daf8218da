"""Locks that every tuner process of a host sees and that the kernel drops when their last holder dies.

A lock is an open descriptor. It is handed to the guard of the launch as well, so a GPU or a port stays locked until
the server that used it is gone, even when the worker was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tuner.errors import MachineUnfit

_LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class HostLock:
    """One held lock; close it once the thing locked is free again."""

    name: str
    descriptor: int

    def close(self) -> None:
        """Give up this process's hold; the lock ends when the guard's hold has ended too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(slots=True)
class Lease:
    """Several locks held together; a context manager."""

    locks: tuple[HostLock, ...]

    def close(self) -> None:
        """Give all of them back."""
        for lock in self.locks:
            lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock_folder() -> Path:
    """Where lock files lie: `$TUNER_LOCK_DIR`, else a folder in the temporary directory that all users share."""
    folder = Path(os.environ.get("TUNER_LOCK_DIR") or Path(tempfile.gettempdir()) / "tuner-locks")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    return folder


def lock_file(name: str) -> HostLock | None:
    """Lock a name on this host; None if another process holds it. `holder_of` names that process."""
    path = lock_folder() / f"{name}.lock"
    descriptor = _open_shared(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    with contextlib.suppress(OSError):  # a lock file of another user is locked all the same, but keeps its old text
        path.write_text(f"pid {os.getpid()}\n")
    return HostLock(name, descriptor)


def holder_of(name: str) -> str:
    """Who took a lock last, as text for a message; empty if unknown."""
    try:
        return (lock_folder() / f"{name}.lock").read_text().strip()
    except OSError:
        return ""


def _open_shared(path: Path) -> int:
    # flock needs no write access, so a file made by another user will do; O_CREAT on such a file is refused by
    # kernels that protect regular files in sticky folders, hence the two steps.
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with contextlib.suppress(FileExistsError):
            return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def lock_port(port: int) -> HostLock | None:
    """Lock a port number among tuner processes of this network namespace; None if one of them holds it.

    The lock is a bound socket with an abstract name: it lives in the same namespace as the ports, and leaves no file.
    """
    marker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        marker.bind(f"\0tuner-port-{port}")
    except OSError:
        marker.close()
        return None
    return HostLock(f"port-{port}", marker.detach())


class GpusTaken(MachineUnfit):
    """Another study launches on one of the GPUs at this moment."""


def wait_for_gpus(
    indices: Sequence[int],
    *,
    timeout_s: float,
    tell: Callable[[str], None],
    is_cancelled: Callable[[], bool],
) -> Lease:
    """Lock GPUs for one launch as soon as the launches of other studies have left them.

    Args:
        indices: the GPUs' device indices.
        timeout_s: longest wait.
        tell: gets what is waited for.
        is_cancelled: ends the wait.

    Raises:
        GpusTaken: they are still in use.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return lock_gpus(indices)
        except GpusTaken as taken:
            if time.monotonic() >= deadline or is_cancelled():
                raise
            tell(f"waiting: {taken.message}")
        time.sleep(_LOOK_EVERY_S)


def lock_gpus(indices: Sequence[int]) -> Lease:
    """Lock GPUs for one launch, all or none, by their device indices.

    Raises:
        GpusTaken: if another process of this host holds one of them.
    """
    locks: list[HostLock] = []
    for index in sorted(indices):
        name = f"gpu-{index}"
        if (lock := lock_file(name)) is None:
            for held in locks:
                held.close()
            raise GpusTaken(
                f"gpu {index} is in use by another study on this host ({holder_of(name)})",
                hint="wait for it to end, or give this study other GPUs",
            )
        locks.append(lock)
    return Lease(tuple(locks))
