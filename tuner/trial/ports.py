"""Ports that two servers never share, and proof that a port is free again."""

from __future__ import annotations

import errno
import random
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.errors import MachineUnfit
from tuner.trial.hostlocks import HostLock, Lease, lock_port

LOWEST = 20_000
"""Ray's workers use 10002-19999."""

_TRIES = 2_000


@dataclass(slots=True)
class PortLease(Lease):
    """Ports that no other tuner process of this host will choose.

    The ports are not bound, so that the server can bind them. A foreign program may still take one in between: the
    launch then fails as `port_in_use` and is tried again with a fresh lease.
    """

    ports: tuple[int, ...]


def reserve_ports(count: int) -> PortLease:
    """Choose free ports, below the range from which the kernel serves outgoing connections.

    A race lost against another process costs one try: the next number is taken.

    Raises:
        MachineUnfit: if no free ports are found.
    """
    ports: list[int] = []
    locks: list[HostLock] = []
    numbers = _candidates()
    for port in random.sample(numbers, min(_TRIES, len(numbers))):
        if len(ports) == count:
            break
        if (lock := lock_port(port)) is None:
            continue
        if _can_bind(port):
            ports.append(port)
            locks.append(lock)
        else:
            lock.close()
    lease = PortLease(tuple(locks), tuple(ports))
    if len(ports) < count:
        lease.close()
        raise MachineUnfit(
            f"no {count} free TCP ports between {numbers[0]} and {numbers[-1]}",
            hint="end programs that listen there: ss -ltnp shows them",
        )
    return lease


def is_free(port: int) -> bool:
    """Whether nothing listens on a port, on any address of this host; lingering closed connections do not count."""
    return _can_bind(port, reuse=True)


def holder_of_port(port: int) -> int | None:
    """The process that listens on a port, or None if nobody does or the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return connection.pid
    return None


def _candidates() -> range:
    try:
        lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_outgoing = 32_768
    return range(LOWEST, lowest_outgoing if lowest_outgoing > LOWEST + 1_000 else 61_000)


def _can_bind(port: int, *, reuse: bool = False) -> bool:
    # The wildcard address meets a listener on any address; the socket never listens, so nobody can connect.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if reuse:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
