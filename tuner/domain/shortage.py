"""What this program itself may lack to talk to a server: open files, memory, ports. No server is to blame for it."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from tuner.errors import OwnShortage

_FILES = "raise the limit of open files (`ulimit -n`), or ask for lower levels"
_MEMORY = "free some memory of this machine, or ask for lower levels"
_PORTS = "wait a minute until closed connections are forgotten, or widen net.ipv4.ip_local_port_range"
_HINTS: Mapping[int, str] = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
    errno.EADDRNOTAVAIL: _PORTS,
}
"""Error number → what to do. Of a server that is full, or gone, a client hears other ones."""


def own_shortage(failure: BaseException) -> OwnShortage | None:
    """The error for the user where a failure comes from what this program lacks, else None.

    Args:
        failure: any; libraries raise errors of their own from the system's.
    """
    for link in _links(failure):
        if isinstance(link, OSError) and (hint := _HINTS.get(link.errno or 0)) is not None:
            where = f": {link.filename}" if link.filename else ""
            return OwnShortage(f"tuner itself lacks what it needs to measure: {link.strerror}{where}", hint=hint)
    return None


def _links(failure: BaseException) -> Iterator[BaseException]:
    """The failure, what it came from, and the members of groups."""
    waiting, seen = [failure], set()
    while waiting:
        link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
        waiting += [before for before in (link.__cause__, link.__context__) if before is not None]
