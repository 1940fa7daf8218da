"""Who holds a lease: a name for this process, and whether the process behind a name is surely gone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil


def this_process() -> str:
    """`host:namespace:pid:start`; unique, because a pid that is used again has another start.

    The start counts from the kernel's boot where `/proc` tells it. A date would be reckoned from the boot date, which
    moves when the clock is set: a living owner would then look like another process, and two would run one study.
    """
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_start(pid)}"


def is_gone(owner: str) -> bool:
    """True only when the owner was a process on this machine that no longer runs.

    A name of another form, machine or container may be alive: its lease has to run out.
    """
    machine, _, process = owner.rpartition(":")[0].rpartition(":")
    start = owner.rpartition(":")[2]
    if machine != _machine() or not process.isdigit():
        return False
    try:
        return _start(int(process)) != start
    except psutil.NoSuchProcess:
        return True


def since_boot(owner: str) -> bool:
    """Whether the owner was a process of this machine, or container, since the machine was started last.

    Where the kernel does not tell its boot, only that it was this machine.
    """
    return same_boot(owner, this_process())


def same_boot(one: str, other: str) -> bool:
    """Whether two owners were processes of one machine, or container, between two starts of it; see `since_boot`."""
    return _place(one) == _place(other) and _boot(one) == _boot(other)


def _place(owner: str) -> str:
    return owner.rpartition(":")[0].rpartition(":")[0]


def _boot(owner: str) -> str:
    return owner.rpartition(":")[2].partition("+")[0] if "+" in owner else ""


def _start(pid: int) -> str:
    process = psutil.Process(pid)
    if process.status() == psutil.STATUS_ZOMBIE:
        raise psutil.ZombieProcess(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except FileNotFoundError:
        if not psutil.pid_exists(pid):
            raise psutil.NoSuchProcess(pid) from None
    else:
        # proc_pid_stat(5): the name, in parentheses, may hold blanks; the start in clock ticks is field 22.
        return f"{boot}+{stat.rpartition(b')')[2].split()[19].decode()}"
    return f"{process.create_time():.2f}"


def _machine() -> str:
    """Host name and PID namespace: containers of one host may share the first, never the second."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}:{namespace}"
