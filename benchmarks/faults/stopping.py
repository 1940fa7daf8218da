"""Ending the benchmark early: the first Ctrl-C or SIGTERM ends what runs, begins nothing more and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tuner.trial.proctree import is_alive
from tuner.trial.record import FILE, LaunchRecord

_ENDS_WITHIN_S = 15.0
_asked = threading.Event()


class Stopped(BaseException):
    """The end was asked for. Like KeyboardInterrupt no Exception: an injection that it ends is not one gone wrong."""


def listen() -> None:
    """From now on SIGINT and SIGTERM ask for the end; to ask again changes nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ask)


def _ask(_number: int, _frame: FrameType | None) -> None:
    if not _asked.is_set():
        # No `print`: the signal may have come in the middle of one.
        os.write(2, b"stopping: what runs is ended\n")
    _asked.set()


def is_asked() -> bool:
    """Whether to end."""
    return _asked.is_set()


def check() -> None:
    """Raise `Stopped` when the end was asked for."""
    pause(0.0)


def pause(seconds: float) -> None:
    """Sleep, but not beyond the wish to end. Not for the main thread, which runs the signal handler.

    Raises:
        Stopped: the end was asked for.
    """
    if _asked.wait(seconds):
        raise Stopped


def clear_away(root: Path) -> None:
    """Wait until everything that was launched for a folder has ended, kill what has not, and remove the folder."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while (left := {*_launched(root), *_started_for(root)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(root, ignore_errors=True)


def _launched(root: Path) -> Iterator[int]:
    """Guards and servers of the launches below a folder; when its worker dies, a guard ends its server."""
    for path in root.rglob(FILE):
        record = LaunchRecord.read(path)
        for process in (record.guard, record.server) if record is not None else ():
            if process is not None and is_alive(process):
                yield process.pid


def _started_for(root: Path) -> Iterator[int]:
    """Studies below a folder, and what they started: Ray's processes and their workers."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and bytes(root) in (entry / "environ").read_bytes():
                yield int(entry.name)
