"""A folder of its own for each Ray that is started here, so that nothing of it stays.

Ray writes logs and sockets below a temporary folder and never removes them. In a folder that is ours alone they can be
removed without touching another Ray's, also by a later process where this one was killed. Which folders were left
behind is told by a lock that the kernel drops with its holder; a process id would say little where containers share
the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tuner.errors import MachineUnfit
from tuner.trial.scratch import has_room, temporary_folders

_PREFIX = "tuner-ray-"
_OWNER = "owner"
_KEPT = "kept"
_KEPT_S = 24 * 3600.0
_RAYS = "r"
_LONGEST = f"/{_PREFIX}12345678/{_RAYS}/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""As Ray names its sockets (ray/_private/node.py) under the largest process id of Linux, proc_sys_kernel(5)."""


@dataclass(slots=True)
class RayFolder:
    """A folder that is ours for as long as this process lives, or until it is removed."""

    path: Path
    _lock: int
    _is_kept: bool = False

    @classmethod
    def make(cls) -> Self:
        """Make one, where Ray itself would put its files unless its sockets would not fit there.

        Raises:
            MachineUnfit: no temporary folder can be written, or every path is too long.
        """
        home = next((folder for folder in _homes() if has_room(folder, len(_LONGEST))), None)
        if home is None:
            raise MachineUnfit(
                "Ray finds no folder for its sockets",
                hint="name a temporary folder with a short path that can be written (TMPDIR)",
            )
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        unlocked = path / f".{_OWNER}"
        lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Whoever sees the file finds it locked, or left behind.
        unlocked.rename(path / _OWNER)
        return cls(path, lock)

    @property
    def rays(self) -> Path:
        """The part for Ray, which lets everybody write into what it is given: nobody else comes as far as there."""
        return self.path / _RAYS

    def remove(self) -> None:
        """Remove it with all that is in it, unless it is kept; its Ray has ended."""
        if not self._is_kept:
            _remove(self.path)
        os.close(self._lock)

    def keep(self) -> None:
        """Leave it to the user for a day after its Ray has ended: it holds what nobody else knows."""
        self._is_kept = True
        (self.path / _KEPT).touch()


def sweep_folders() -> list[Path]:
    """Remove the folders that dead processes of this user left, and what they kept for the user a day ago.

    Returns:
        Which they were.
    """
    left = [path for home in _homes() for path in home.glob(f"{_PREFIX}*") if _was_left(path) and not _is_wanted(path)]
    for path in left:
        _remove(path)
    return left


def _remove(path: Path) -> None:
    """The mark of its owner goes last: where a process still writes, the rest is found by it and removed next time."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _OWNER:
                entry.unlink()
        if [entry.name for entry in path.iterdir()] == [_OWNER]:
            shutil.rmtree(path)


def _homes() -> list[Path]:
    return temporary_folders(os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"))


def _is_wanted(path: Path) -> bool:
    """Whether it was kept for the user within the last day."""
    try:
        return time.time() - (path / _KEPT).lstat().st_mtime < _KEPT_S
    except OSError:
        return False


def _was_left(path: Path) -> bool:
    """Whether a folder is ours to remove; one that cannot be looked into is not."""
    with contextlib.suppress(OSError):
        known = path.lstat()
        if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.getuid():
            return False
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
        return True
    return False
