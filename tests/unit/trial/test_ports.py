"""Ports that no two servers of a host share."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import MachineUnfit
from tuner.trial import ports
from tuner.trial.hostlocks import lock_port
from tuner.trial.ports import holder_of_port, is_free, reserve_ports


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_two_leases_never_share_a_port() -> None:
    with reserve_ports(40) as one, reserve_ports(40) as two:
        assert len({*one.ports, *two.ports}) == 80


def test_a_port_reserved_by_another_process_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys; from tuner.trial.ports import reserve_ports as r; l = r(1); print(*l.ports, flush=True); input()"
    )
    root = Path(ports.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as other:
        assert other.stdout is not None
        taken = int(other.stdout.readline())
        monkeypatch.setattr(ports, "_candidates", lambda: range(taken, taken + 1))
        with pytest.raises(MachineUnfit, match="no 1 free TCP ports"):
            reserve_ports(1)
        other.kill()
        other.wait()
        with reserve_ports(1) as lease:
            assert lease.ports == (taken,)


def test_a_port_that_a_stranger_listens_on_costs_one_try(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_candidates", lambda: range(listener, listener + 40))
    with reserve_ports(1) as lease:
        assert lease.ports[0] != listener
    assert lock_port(listener) is not None  # the lost port was not left locked


def test_a_lease_that_cannot_be_filled_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_ports(1) as lease:
        only = lease.ports[0]
    monkeypatch.setattr(ports, "_candidates", lambda: [only])
    with pytest.raises(MachineUnfit):
        reserve_ports(2)
    with reserve_ports(1) as again:
        assert again.ports == (only,)


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with reserve_ports(20) as lease:
        assert all(ports.LOWEST <= port < lowest for port in lease.ports)


def test_the_holder_of_a_port_is_named(listener: int) -> None:
    assert not is_free(listener)
    assert holder_of_port(listener) == os.getpid()


def test_a_closed_listener_leaves_the_port_free_even_with_lingering_connections() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first and lingers in TIME_WAIT
        client.close()
    assert is_free(port)
    assert holder_of_port(port) is None
