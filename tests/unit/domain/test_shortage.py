"""Whose failure is it that no connection came about: the server's, or that of who asks?"""

from __future__ import annotations

import errno
import os

import pytest

from tuner.domain.shortage import own_shortage


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def raised_from(cause: OSError) -> Exception:
    """What a library raises from the system's error; a clean-up that fails then hides it once more."""
    refused, hidden = ConnectionError("all connection attempts failed"), AttributeError("half made")
    refused.__cause__, hidden.__context__ = cause, refused
    return hidden


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "ulimit -n"),
        (errno.ENOMEM, "memory"),
        (errno.ENOBUFS, "memory"),
        (errno.EADDRNOTAVAIL, "ip_local_port_range"),
    ],
)
def test_what_this_program_lacks_is_found_behind_whatever_was_raised_from_it(number: int, hint: str) -> None:
    refused = system(errno.ECONNREFUSED)
    for failure in (system(number), raised_from(system(number)), ExceptionGroup("two", [refused, system(number)])):
        found = own_shortage(failure)
        assert found is not None
        assert os.strerror(number) in found.message
        assert hint in str(found.hint)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPIPE, errno.ENOSPC])
def test_what_a_server_does_is_no_shortage_of_ours(number: int) -> None:
    assert own_shortage(raised_from(system(number))) is None
