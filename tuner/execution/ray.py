"""Trials on Ray: one worker actor per slot, on the node that has the GPUs.

Ray starts by itself on this machine, or is joined with an address. An actor holds its GPUs for as long as the study
runs, so two trials never share one. The actor that dies (node lost, out of memory, SIGKILL) is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import TrialEvent, TrialReport, TrialRequest
from tuner.domain.values import counted
from tuner.errors import MachineUnfit
from tuner.execution.base import Finished, Progressed, TrialKey, Update, key_of
from tuner.execution.rayfolder import RayFolder, sweep_folders

_CONNECT_TIMEOUT_S = 60.0
_PLACE_AGAIN_S = 1.0
_REACH_TIMEOUT_S = 5.0
_START_TRIES = 2
"""Ray gives its own node 30 s to come up, which a busy machine may need more than once."""
_TEARDOWN_GRACE_S = 60.0
_EVENT_INTERVAL_S = 0.25

# Local Ray stays on loopback, reports nothing home, and asks for no token file. Its workers would run at niceness 15,
# and every server that they start with them: behind any other program on the machine.
_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
}


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
    except OSError as error:
        raise MachineUnfit(
            f"Ray could not be joined at {address}: {error.strerror or error}",
            hint="check --ray-address, or leave it out to start Ray on this machine",
        ) from error


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep the caller's SIGTERM handler: Ray puts its own in its place, which ends the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def _unfit(address: str | None, error: Exception, folder: RayFolder | None) -> MachineUnfit:
    what = "started locally" if address is None else f"joined at {address}"
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    hint = "check --ray-address, or leave it out to start Ray here"
    if folder is not None:
        hint = "a busy machine, a full disk or little memory make Ray slow to start: look at them, then try again; "
        hint += f"its logs stay in {folder.path} until then"
    return MachineUnfit(f"Ray could not be {what}: {reason}", hint=hint)


class TrialWorker:
    """Runs inside a Ray actor: one trial at a time, its events and its cancellation from other threads."""

    def __init__(self) -> None:
        self._events: deque[TrialEvent] = deque()
        self._cancelled = threading.Event()

    def run(self, request: TrialRequest) -> TrialReport:
        """Run one trial on the GPUs that Ray gave this actor."""
        import ray

        from tuner.trial.runner import run_trial

        self._events.clear()
        self._cancelled.clear()
        gpus = tuple(int(identifier) for identifier in ray.get_gpu_ids())
        return run_trial(request, gpus=gpus, notify=self._events.append, cancelled=self._cancelled.is_set)

    def events(self) -> list[TrialEvent]:
        """Take the events since the last call."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def cancel(self) -> None:
        """Ask the running trial to end; it tears its server down first."""
        self._cancelled.set()

    def ping(self) -> str:
        """Node address: proves that the actor lives."""
        import ray

        return str(ray.util.get_node_ip_address())


@dataclass
class _Slot:
    """One actor and what it is doing."""

    actor: Any
    request: TrialRequest | None = None
    result: Any = None
    pending_events: Any = None
    asked_events_at: float = 0.0
    seen: list[TrialEvent] = field(default_factory=list)


def _lost(error: Exception, last: TrialEvent | None, *, detail: str) -> TrialReport:
    """The report of a trial that yielded none; Ray puts the remote traceback first and the exception last."""
    phase = last.phase if last is not None else Phase.PREFLIGHT
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    evidence = tuple(dict.fromkeys([f"{type(error).__name__}: {lines[0]}", lines[-1]])) if lines else (repr(error),)
    return TrialReport(Failure(FailureClass.LOST_WORKER, phase, evidence, detail=detail), plan=None)


class RayExecutor:
    """An `Executor` on Ray.

    Args:
        gpus: GPUs per trial; 0 on a machine without.
        parallel: trials at a time; each gets its own actor and GPUs.
        address: of a running Ray cluster (`auto`, `host:6379`, `ray://…`); None starts Ray here.
        local_gpus: GPUs that a locally started Ray offers; None lets Ray count them.

    Raises:
        MachineUnfit: when Ray cannot be started or joined, or has too few GPUs.
    """

    def __init__(
        self, *, gpus: int, parallel: int = 1, address: str | None = None, local_gpus: int | None = None
    ) -> None:
        self._gpus = gpus
        self._queue: deque[TrialRequest] = deque()
        self._slots: list[_Slot] = []
        self._folder: RayFolder | None = None
        self._connect(address, local_gpus)
        try:
            self._refuse_too_few_gpus()
            for _ in range(parallel):
                self._slots.append(_Slot(self._new_actor()))
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None, local_gpus: int | None) -> None:
        for name, value in _RAY_ENVIRONMENT.items():
            os.environ.setdefault(name, value)

        if address is None:
            sweep_folders()
            self._folder = RayFolder.make()
        else:
            _refuse_unreachable(address)
        quiet = {"log_to_driver": False, "configure_logging": False, "ignore_reinit_error": True}
        with _own_sigterm():
            self._init_ray(address, local_gpus, quiet)

    def _init_ray(self, address: str | None, local_gpus: int | None, quiet: Mapping[str, bool]) -> None:
        import ray

        # What Ray has to say (of its own dashboard, say) belongs into the log, not into the view of a study.
        ray_log = logging.getLogger("ray")
        ray_log.handlers.clear()
        ray_log.propagate = True
        for tries_left in reversed(range(_START_TRIES if address is None else 1)):
            try:
                if self._folder is not None:
                    # Never a cluster that is there by accident: that of a Ray job (RAY_ADDRESS), or of a `ray start`.
                    os.environ.pop("RAY_ADDRESS", None)
                    ray.init(
                        "local",
                        num_gpus=local_gpus,
                        include_dashboard=False,
                        _node_ip_address="127.0.0.1",
                        _temp_dir=str(self._folder.path),
                        **quiet,
                    )
                else:
                    ray.init(address=address, **quiet)
                return
            except Exception as error:
                # Nothing narrower will do: Ray raises a bare Exception when its node is slow to start.
                ray.shutdown()
                if not tries_left:
                    raise _unfit(address, error, self._folder) from error

    def _refuse_too_few_gpus(self) -> None:
        import ray

        offered = int(ray.cluster_resources().get("GPU", 0))
        if self._gpus > offered:
            raise MachineUnfit(
                f"each trial needs {counted(self._gpus, 'GPU')}, and Ray offers {offered}",
                hint="use a machine with more GPUs, or lower hardware.gpus in the space file",
            )

    @property
    def slots(self) -> int:
        """Trials at a time."""
        return len(self._slots)

    def _new_actor(self) -> Any:
        import ray

        deadline = time.monotonic() + _CONNECT_TIMEOUT_S
        while True:
            # Two threads beside the trial's own: one for events, one for cancel.
            actor = ray.remote(TrialWorker).options(num_cpus=0, num_gpus=self._gpus, max_concurrency=3).remote()
            try:
                ray.get(actor.ping.remote(), timeout=max(1.0, deadline - time.monotonic()))
            except ray.exceptions.RayError as error:
                # Ray places actors on a lost node until it has noticed the loss, which takes it some 15 s.
                if time.monotonic() < deadline:
                    time.sleep(_PLACE_AGAIN_S)
                    continue
                raise MachineUnfit(
                    f"no Ray worker with {counted(self._gpus, 'GPU')} came up within {_CONNECT_TIMEOUT_S:.0f} s",
                    hint="is tuner installed on every node, and are the GPUs free?",
                ) from error
            return actor

    def submit(self, request: TrialRequest) -> None:
        """Queue a trial."""
        self._queue.append(request)
        self._dispatch()

    def _dispatch(self) -> None:
        for slot in self._slots:
            if slot.request is None and self._queue:
                slot.request = self._queue.popleft()
                slot.seen.clear()
                slot.result = slot.actor.run.remote(slot.request)

    def poll(self, timeout_s: float) -> Sequence[Update]:
        """Wait up to `timeout_s` for news of any trial."""
        deadline = time.monotonic() + timeout_s
        while True:
            updates = self._collect()
            self._dispatch()
            left = deadline - time.monotonic()
            if updates or left <= 0:
                return updates
            self._wait(min(left, _EVENT_INTERVAL_S))

    def _wait(self, seconds: float) -> None:
        import ray

        waiting = [slot.result for slot in self._slots if slot.result is not None]
        if waiting:
            ray.wait(waiting, timeout=seconds)
        else:
            time.sleep(seconds)

    def _collect(self) -> list[Update]:
        updates: list[Update] = []
        for slot in self._slots:
            if slot.request is None:
                continue
            key = key_of(slot.request)
            updates += self._events_of(slot, key)
            report = self._report_of(slot)
            if report is not None:
                updates += self._events_of(slot, key, last=True)
                updates.append(Finished(key, report))
                slot.request = slot.result = None
        return updates

    def _events_of(self, slot: _Slot, key: TrialKey, *, last: bool = False) -> list[Update]:
        import ray

        now = time.monotonic()
        if slot.pending_events is None:
            if not last and now - slot.asked_events_at < _EVENT_INTERVAL_S:
                return []
            slot.pending_events, slot.asked_events_at = slot.actor.events.remote(), now
        ready, _ = ray.wait([slot.pending_events], timeout=1.0 if last else 0)
        if not ready:
            return []
        try:
            events = ray.get(slot.pending_events)
        except ray.exceptions.RayError:
            events = []
        slot.pending_events = None
        slot.seen += events
        return [Progressed(key, event) for event in events]

    def _report_of(self, slot: _Slot) -> TrialReport | None:
        import ray

        ready, _ = ray.wait([slot.result], timeout=0)
        if not ready:
            return None
        last = slot.seen[-1] if slot.seen else None
        try:
            report = ray.get(slot.result)
        except ray.exceptions.RayTaskError as error:
            # The runner itself broke: a defect of tuner, told as such and not as the candidate's fault.
            return _lost(error, last, detail="tuner itself failed while it ran this trial")
        except ray.exceptions.RayError as error:
            slot.actor = self._new_actor()
            slot.pending_events = None
            if self._folder is not None:
                # Its last words are in the logs of Ray's session.
                self._folder.keep()
                self._folder = None
            return _lost(error, last, detail="the worker that ran this trial died")
        assert isinstance(report, TrialReport)
        return report

    def cancel(self) -> None:
        """Tear down every running trial and drop the queued ones."""
        self._queue.clear()
        for slot in self._slots:
            if slot.request is not None:
                slot.actor.cancel.remote()

    def close(self) -> None:
        """End every trial and leave Ray; a Ray started here ends with it, and leaves no files unless a worker died."""
        import ray

        if ray.is_initialized():
            self.cancel()
            running = [slot.result for slot in self._slots if slot.result is not None]
            if running:
                ray.wait(running, num_returns=len(running), timeout=_TEARDOWN_GRACE_S)
            for slot in self._slots:
                ray.kill(slot.actor)
            ray.shutdown()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
