"""A cgroup (version 2) for each launch, where the machine lets us make one; standard library only.

A process cannot leave its cgroup without rights that servers rarely have, so a cgroup finds and kills the whole tree
at once. It is an addition: containers and plain users often may not create one, and everything works without.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_BURIAL_S = 1.0


def create(launch_id: str) -> str | None:
    """Make a cgroup for a launch below this process's own; its directory, or None where that is not allowed."""
    parent = _own_cgroup()
    if parent is None:
        return None
    folder = parent / f"tuner-{launch_id}"
    try:
        folder.mkdir()
    except OSError:
        return None
    if not (folder / "cgroup.kill").exists():
        remove(str(folder))
        return None
    return str(folder)


def enter(cgroup: str) -> None:
    """Move the calling process into a cgroup; stays where it is if the kernel refuses."""
    with contextlib.suppress(OSError):
        (Path(cgroup) / "cgroup.procs").write_text("0")


def remove(cgroup: str) -> bool:
    """Delete an empty cgroup; False if it still has processes after a second, in which the kernel buries the dead."""
    deadline = time.monotonic() + _BURIAL_S
    while True:
        try:
            Path(cgroup).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _own_cgroup() -> Path | None:
    mount = _mount_point()
    if mount is None:
        return None
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    return None if inside is None else mount / inside.lstrip("/")


def _mount_point() -> Path | None:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        mounted, _, described = line.partition(" - ")
        if described.startswith("cgroup2 "):
            return Path(mounted.split()[4])
    return None
