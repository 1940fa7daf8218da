"""A Ray cluster of several nodes on this machine, whose nodes can be killed one by one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import psutil

from benchmarks.faults import stopping

_RAY = Path(sys.executable).with_name("ray")
_ROOT = Path(__file__).resolve().parents[2]
_NODES = 2
_START_S = 60.0
_HOST = "127.0.0.1"

CLUSTER_ENVIRONMENT = {
    # Ray refuses several nodes on loopback without this.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Cluster:
    """A head that the coordinator joins, and nodes on which trials run; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "ray.log"
        # Ray's sockets lie in this folder, and the path of a socket must be short.
        self._temporary = tempfile.mkdtemp(prefix="ray-")
        self._port = _free_port()
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """For `--ray-address`."""
        return f"{_HOST}:{self._port}"

    def __enter__(self) -> Self:
        head = ("--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={self._temporary}")
        try:
            self._start(*head)
            for _ in range(_NODES):
                self.add_node()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """SIGKILL to every node, the head last."""
        for node in reversed(self._nodes):
            _kill(node)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def add_node(self) -> None:
        """One more node."""
        self._start(f"--address={self.address}")

    def hosts(self, worker: int) -> bool:
        """Whether a worker process runs on a node that may be killed: any but the head, which the coordinator needs."""
        return self._node_of(worker) in self._nodes[1:]

    def kill_node_of(self, worker: int) -> None:
        """SIGKILL to everything of Ray on the node of a worker process, and to the worker."""
        node = self._node_of(worker)
        assert node is not None
        self._nodes.remove(node)
        _kill(node)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

    def _node_of(self, worker: int) -> subprocess.Popen[bytes] | None:
        try:
            above = {process.pid for process in psutil.Process(worker).parents()}
        except psutil.NoSuchProcess:
            return None
        return next((node for node in self._nodes if node.pid in above), None)

    def _start(self, *options: str) -> None:
        common = ("--num-cpus=1", f"--node-ip-address={_HOST}", "--disable-usage-stats", "--block")
        with self._log.open("ab") as log:
            node = subprocess.Popen(
                [str(_RAY), "start", *options, *common],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **CLUSTER_ENVIRONMENT, "PYTHONPATH": str(_ROOT)},
                start_new_session=True,
            )
        self._nodes.append(node)
        deadline = time.monotonic() + _START_S
        while not _has_raylet(node.pid):
            if node.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a Ray node did not start: see {self._log}")
            stopping.pause(0.2)


def _has_raylet(node: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(child.name() == "raylet" for child in psutil.Process(node).children())
    return False


def _kill(node: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
