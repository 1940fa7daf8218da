"""Ray itself: started on this machine, or joined; whether it still lives, and its end without anything left.

A Ray that is started here is a handful of processes of ours. When one of those it cannot do without is killed, Ray does
not help itself: without its control service (GCS) it ends the process that uses it after a minute, in the middle of a
study and without a word; without its raylet no worker comes up any more. So they are watched, and started anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping

import psutil
import structlog

from tuner.errors import MachineUnfit
from tuner.execution.rayfolder import RayFolder, sweep_folders

_REACH_TIMEOUT_S = 5.0
_START_TRIES = 2
"""Ray gives its own node 30 s to come up, which a busy machine may need more than once."""
_NEEDED = ("gcs_server", "raylet")
"""Names of the processes without which nothing more can be launched (ray/_private/services.py starts them)."""
_ENDS_WITHIN_S = 3.0

# Local Ray stays on loopback, reports nothing home, and asks for no token file. Its workers would run at niceness 15,
# and every server that they start with them: behind any other program on the machine.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
}

_log = structlog.get_logger(__name__)


class RayConnection:
    """The Ray that this process uses, of which there is one at a time.

    Args:
        address: of a running cluster (`auto`, `host:6379`, `ray://…`); None starts Ray here.
        local_gpus: GPUs that a Ray started here offers; None lets Ray count them.
    """

    def __init__(self, address: str | None, local_gpus: int | None) -> None:
        self._address, self._local_gpus = address, local_gpus
        self._folder: RayFolder | None = None
        self._processes: list[psutil.Process] = []
        self._needed: dict[psutil.Process, str] = {}

    @property
    def is_local(self) -> bool:
        """Whether it is started here, rather than joined."""
        return self._address is None

    def open(self) -> None:
        """Start or join it.

        Raises:
            MachineUnfit: it does not come up, or nobody answers at the address.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if self._address is None:
            sweep_folders()
            self._folder = RayFolder.make()
        else:
            _refuse_unreachable(self._address)
        with _signals_of_our_own():
            self._init()

    def _init(self) -> None:
        import ray

        # What Ray has to say (of its own dashboard, say) belongs into the log, not into the view of a study.
        ray_log = logging.getLogger("ray")
        ray_log.handlers.clear()
        ray_log.propagate = True
        # The end of a node it prints to stdout, past its log, which only Ray's own debugger can turn off.
        ray._private.worker._worker_logs_enabled = False
        quiet = {"log_to_driver": False, "configure_logging": False, "ignore_reinit_error": True}
        for tries_left in reversed(range(_START_TRIES if self.is_local else 1)):
            try:
                self._init_once(quiet)
                return
            except Exception as error:
                # Nothing narrower will do: Ray raises a bare Exception when its node is slow to start.
                ray.shutdown()
                if not tries_left:
                    raise self._unfit(error) from error

    def _init_once(self, quiet: Mapping[str, bool]) -> None:
        import ray

        if self._folder is None:
            ray.init(address=self._address, **quiet)
            return
        # Never a cluster that is there by accident: that of a Ray job (RAY_ADDRESS), or of a `ray start`.
        os.environ.pop("RAY_ADDRESS", None)
        before = set(psutil.Process().children())
        ray.init(
            "local",
            num_gpus=self._local_gpus,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(self._folder.rays),
            **quiet,
        )
        started = set(psutil.Process().children()) - before
        self._needed = {process: name for process in started if (name := _name_of(process)) in _NEEDED}
        # Noted while they can be found: what a dead raylet leaves has another parent.
        self._processes = [*started, *(child for one in started for child in _children_of(one))]

    def _unfit(self, error: Exception) -> MachineUnfit:
        what = "started locally" if self._address is None else f"joined at {self._address}"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "check --ray-address, or leave it out to start Ray here"
        if self._folder is not None:
            hint = "a busy machine, a full disk, little memory or few open files (`ulimit -n`) keep Ray from starting: "
            hint += f"look at them, then try again; its logs stay in {self._folder.path} until then"
        return MachineUnfit(f"Ray could not be {what}: {reason}", hint=hint)

    def lost(self) -> str | None:
        """Which process of a Ray that was started here has died, of those that it needs; None while all is well."""
        return next((name for process, name in self._needed.items() if _is_dead(process)), None)

    def close(self) -> None:
        """Leave it; a Ray that was started here ends with all its processes and files."""
        import ray

        if ray.is_initialized():
            ray.shutdown()
        # Those that a dead raylet leaves wait for a while to see whether it comes back.
        _, alive = psutil.wait_procs(self._processes, timeout=_ENDS_WITHIN_S)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=_ENDS_WITHIN_S)
        self._processes, self._needed = [], {}
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def keep_logs(self) -> None:
        """Leave the files of a Ray that was started here to the user for a day: they hold a worker's last words."""
        if self._folder is not None:
            self._folder.keep()
            _log.warning("ray_worker_died", logs=str(self._folder.path))


def _refuse_unreachable(address: str) -> None:
    """Fail within seconds where nobody listens; Ray itself would try for minutes.

    Raises:
        MachineUnfit: nobody answers at `host:port` (also behind `ray://`); `auto` names no host, so Ray looks itself.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MachineUnfit(
            f"Ray could not be joined at {address}: {reason}",
            hint="check --ray-address, or leave it out to start Ray on this machine",
        ) from error


@contextlib.contextmanager
def _signals_of_our_own() -> Iterator[None]:
    """Keep the caller's SIGTERM handler: Ray puts its own in its place, which ends the process at once.

    What Ray starts ignores a terminal that is closed: the kernel tells the whole process group, and the study, which is
    told as well, could not finish its trial without Ray. A launch's guard, and so its server, takes no part in that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _name_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _is_dead(process: psutil.Process) -> bool:
    """Also one whose end nobody has asked for yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
