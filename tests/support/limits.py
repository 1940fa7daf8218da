"""What a process may have, taken from it for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_files(room: int) -> Iterator[None]:
    """This process may open only so many further files, whatever it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
