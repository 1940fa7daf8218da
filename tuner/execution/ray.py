"""Trials on Ray: one worker actor per slot, on the node that has the GPUs.

Ray starts by itself on this machine, or is joined with an address. An actor holds its GPUs for as long as the study
runs, so two trials never share one. The actor that dies (node lost, out of memory, SIGKILL) is replaced, and so is one
that does not answer any more; a Ray of our own that loses what it needs is started anew.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import structlog

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import TrialEvent, TrialReport, TrialRequest
from tuner.domain.values import counted
from tuner.errors import MachineUnfit
from tuner.execution.base import Finished, Progressed, TrialKey, Update, key_of
from tuner.execution.rayconnection import RayConnection

_CONNECT_TIMEOUT_S = 60.0
_PLACE_AGAIN_S = 1.0
_TEARDOWN_GRACE_S = 60.0
_EVENT_INTERVAL_S = 0.25
_DEAF_AFTER_S = 120.0
"""A worker that lives answers a question for events at once, whatever its trial does; on a starved machine later."""
_DEAF_WHEN_CANCELLED_S = 15.0
_LONGEST_LOOK_S = 1.0
_RESTARTS = 3
"""So often in a row Ray is started anew on this machine, until a trial comes back."""

_log = structlog.get_logger(__name__)


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

    def ping(self) -> int:
        """Number of this process: proves that the actor lives."""
        return os.getpid()


@dataclass
class _Slot:
    """One actor and what it is doing.

    Attributes:
        process: the actor's, where it runs on this machine.
        unanswered_s: how long it was looked for the answer to the present question in vain. The sum of looks, so that
            a study that was itself stopped for a while blames nobody.
        gave_up: it was killed because it did not answer.
    """

    actor: Any
    process: psutil.Process | None
    request: TrialRequest | None = None
    result: Any = None
    pending_events: Any = None
    asked_events_at: float = 0.0
    looked_at: float = 0.0
    unanswered_s: float = 0.0
    gave_up: bool = False
    seen: list[TrialEvent] = field(default_factory=list)

    @property
    def last(self) -> TrialEvent | None:
        """The latest event of its trial."""
        return self.seen[-1] if self.seen else None

    def kill(self) -> None:
        """End the actor at once, also one that is stopped and hears nothing."""
        import ray

        if self.process is None:
            ray.kill(self.actor)
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()


def _lost(error: Exception | str, last: TrialEvent | None, *, detail: str) -> TrialReport:
    """The report of a trial that yielded none; Ray puts the remote traceback first and the exception last."""
    phase = last.phase if last is not None else Phase.PREFLIGHT
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    head = "" if isinstance(error, str) else f"{type(error).__name__}: "
    evidence = tuple(dict.fromkeys([f"{head}{lines[0]}", lines[-1]])) if lines else (repr(error),)
    return TrialReport(Failure(FailureClass.LOST_WORKER, phase, evidence, detail=detail), plan=None)


def _out_of_memory(error: Exception, last: TrialEvent | None) -> TrialReport:
    """The report of a trial whose worker Ray ended for want of memory; its first two lines tell how much there was.

    Ray does so before the kernel would: from 95 % of the machine's memory on, or of its container's
    (https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html).
    """
    phase = last.phase if last is not None else Phase.PREFLIGHT
    evidence = tuple(line.strip() for line in str(error).splitlines()[:2])
    detail = "Ray ended the worker that ran this trial, since the machine ran out of memory"
    return TrialReport(Failure(FailureClass.HOST_OOM, phase, evidence, detail=detail), plan=None)


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
        self._deaf_after_s = _DEAF_AFTER_S
        self._restarts_left = _RESTARTS
        self._ray = RayConnection(address, local_gpus)
        self._ray.open()
        try:
            self._refuse_too_few_gpus()
            for _ in range(parallel):
                self._slots.append(self._new_slot())
        except BaseException:
            self.close()
            raise

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

    def _new_slot(self) -> _Slot:
        import ray

        deadline = time.monotonic() + _CONNECT_TIMEOUT_S
        while True:
            # Two threads beside the trial's own: one for events, one for cancel.
            actor = ray.remote(TrialWorker).options(num_cpus=0, num_gpus=self._gpus, max_concurrency=3).remote()
            try:
                number = ray.get(actor.ping.remote(), timeout=max(1.0, deadline - time.monotonic()))
                return _Slot(actor, psutil.Process(number) if self._ray.is_local else None)
            except (ray.exceptions.RayError, psutil.Error) as error:
                # Ray places actors on a lost node until it has noticed the loss, which takes it some 15 s.
                if time.monotonic() < deadline and self._ray.lost() is None:
                    time.sleep(_PLACE_AGAIN_S)
                    continue
                hint = "is tuner installed on every node, and are the GPUs free?"
                if self._ray.is_local:
                    hint = "is the machine out of memory, or very busy?"
                raise MachineUnfit(
                    f"no Ray worker with {counted(self._gpus, 'GPU')} came up within {_CONNECT_TIMEOUT_S:.0f} s",
                    hint=hint,
                ) from error

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
        gone = self._ray.lost()
        if gone is not None:
            return self._restart(gone)
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
                self._restarts_left = _RESTARTS
        return updates

    def _restart(self, gone: str) -> list[Update]:
        """Start Ray here anew, since it lost one of its processes; what ran on it is lost, and its servers end."""
        if not self._restarts_left:
            raise MachineUnfit(
                f"Ray lost its {gone} again and again", hint="is the machine out of memory? dmesg tells what it killed"
            )
        self._restarts_left -= 1
        _log.warning("ray_lost", process=gone)
        detail = f"Ray's {gone} died, and Ray was started anew"
        lost: list[Update] = [
            Finished(key_of(slot.request), _lost(f"{gone} is gone", slot.last, detail=detail))
            for slot in self._slots
            if slot.request is not None
        ]
        self._leave()
        self._ray.open()
        self._slots = [self._new_slot() for _ in self._slots]
        return lost

    def _events_of(self, slot: _Slot, key: TrialKey, *, last: bool = False) -> list[Update]:
        import ray

        now = time.monotonic()
        if slot.pending_events is None:
            if not last and now - slot.asked_events_at < _EVENT_INTERVAL_S:
                return []
            slot.pending_events, slot.asked_events_at = slot.actor.events.remote(), now
            slot.looked_at, slot.unanswered_s = now, 0.0
        ready, _ = ray.wait([slot.pending_events], timeout=1.0 if last else 0)
        if not ready:
            self._give_up_if_deaf(slot, now)
            return []
        try:
            events = ray.get(slot.pending_events)
        except ray.exceptions.RayError:
            events = []
        slot.pending_events = None
        slot.seen += events
        return [Progressed(key, event) for event in events]

    def _give_up_if_deaf(self, slot: _Slot, now: float) -> None:
        """Kill a worker that has not answered for long: nothing else would ever end its trial."""
        slot.unanswered_s += min(now - slot.looked_at, _LONGEST_LOOK_S)
        slot.looked_at = now
        if slot.unanswered_s > self._deaf_after_s and not slot.gave_up:
            slot.gave_up = True
            slot.kill()

    def _report_of(self, slot: _Slot) -> TrialReport | None:
        import ray

        ready, _ = ray.wait([slot.result], timeout=0)
        if not ready:
            return None
        try:
            report = ray.get(slot.result)
        except ray.exceptions.RayTaskError as error:
            # The runner itself broke: a defect of tuner, told as such and not as the candidate's fault.
            return _lost(error, slot.last, detail="tuner itself failed while it ran this trial")
        except ray.exceptions.RayError as error:
            if self._ray.lost() is not None:
                return None  # told when Ray is started anew
            detail = "the worker that ran this trial died"
            if slot.gave_up:
                detail = f"the worker that ran this trial did not answer for {self._deaf_after_s:.0f} s and was killed"
            fresh = self._new_slot()
            slot.actor, slot.process, slot.pending_events, slot.gave_up = fresh.actor, fresh.process, None, False
            # Its last words are in the logs of Ray's session.
            self._ray.keep_logs()
            if isinstance(error, ray.exceptions.OutOfMemoryError):
                return _out_of_memory(error, slot.last)
            return _lost(error, slot.last, detail=detail)
        assert isinstance(report, TrialReport)
        return report

    def cancel(self) -> None:
        """Tear down every running trial and drop the queued ones."""
        self._queue.clear()
        self._deaf_after_s = _DEAF_WHEN_CANCELLED_S
        for slot in self._slots:
            if slot.request is not None:
                slot.actor.cancel.remote()

    def close(self) -> None:
        """End every trial and leave Ray; a Ray started here ends with it, and leaves no files unless a worker died."""
        import ray

        if ray.is_initialized() and self._ray.lost() is None:
            self.cancel()
            running = [slot.result for slot in self._slots if slot.result is not None]
            if running:
                ray.wait(running, num_returns=len(running), timeout=_TEARDOWN_GRACE_S)
        self._leave()

    def _leave(self) -> None:
        for slot in self._slots:
            slot.kill()
        self._ray.close()
