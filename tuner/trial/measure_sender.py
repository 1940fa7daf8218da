"""Sending the requests of one run of a measurement: as many load processes as they need, time limits, energy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from tuner.domain.load import OPEN_LOOP_HEADER, LoadPoint
from tuner.domain.measurement import LevelResult
from tuner.domain.workload import Workload
from tuner.loadgen.dialect import Dialect
from tuner.loadgen.job import Conversation, Job, LoadResult, Progress, TooFewConnections
from tuner.loadgen.pool import Interrupted, LoadPool
from tuner.loadgen.prompts import Prompts
from tuner.loadgen.target import Target
from tuner.loadgen.watch import CPU_LIMIT, FAN_OUT_SHARE
from tuner.trial.energy import Joules
from tuner.trial.measure_events import LevelProgress, MeasurementFailed, MeasurementTrouble, Stage

_MIN_LIMIT_S = 5.0  # with a fast simulated clock, limits in real time never fall below what a busy machine may pause
_OPEN_LOOP_CONNECTIONS = 64


@dataclass(slots=True)
class Sender:
    """Sends one run after the other to one server.

    Attributes:
        target: the server.
        workload: whose prompts and time limits count.
        prompts: of the launch.
        pool: the load processes.
        time_scale: the server's seconds per second of ours.
        on_progress: see `tuner.trial.protocol.measure`.
        should_abort: the same.
        energy: meter of the server's GPUs.
        levels: what was measured so far, told with a failure.
        dialect: how requests are asked; to be set before anything is sent.
        share_per_slot: of a core, that each request in flight cost the busiest load process last time.
        joules: of the last run; None without a meter.
    """

    target: Target
    workload: Workload
    prompts: Prompts
    pool: LoadPool
    time_scale: float
    on_progress: Callable[[LevelProgress], None] | None
    should_abort: Callable[[], bool] | None
    energy: Joules | None
    levels: list[LevelResult] = field(default_factory=list)
    dialect: Dialect | None = None
    share_per_slot: float = 0.0
    joules: float | None = None

    @property
    def exact_input(self) -> bool:
        """Whether prompts are exactly as long as asked."""
        assert self.dialect is not None
        return self.dialect.exact_input

    def send(
        self, stage: Stage, load: LoadPoint, requests: int, repeat: int, part: str, due: tuple[float, ...] = ()
    ) -> LoadResult:
        """Send so many requests and wait for their answers.

        Args:
            stage: of the measurement, for whoever hears of progress and failures.
            load: under which they are sent.
            requests: at least so many; conversations of several are not torn apart.
            repeat: number of the run, from 1.
            part: name of the run, by which its prompts differ from those of all others.
            due: seconds after the start at which each leaves; empty sends one as soon as another is answered.

        Raises:
            MeasurementFailed: nobody takes connections, or the measurement was stopped.
        """
        assert self.dialect is not None
        conversations = self.prompts.conversations(requests, self.dialect, part)
        return self._run(stage, load, conversations[: len(due)] if due else conversations, repeat, due)

    def _run(
        self,
        stage: Stage,
        load: LoadPoint,
        conversations: Sequence[Conversation],
        repeat: int,
        due: tuple[float, ...] = (),
    ) -> LoadResult:
        assert self.dialect is not None
        slots = load.level or min(_OPEN_LOOP_CONNECTIONS, len(due))
        job = Job(
            target=self._by_schedule if due else self.target,
            path=self.dialect.path,
            slots=slots,
            conversations=tuple(conversations),
            due_s=due,
            stream_limit_s=self._limit(self.workload.request_timeout_s),
            stall_limit_s=self._limit(min(self.workload.stall_timeout_s, self.workload.request_timeout_s)),
        )

        def tell(progress: Progress) -> None:
            if self.on_progress is not None:
                self.on_progress(
                    LevelProgress(
                        stage=stage,
                        load=load,
                        repeat=repeat,
                        done=progress.done,
                        total=job.requests,
                        in_flight=progress.in_flight,
                        pieces=progress.pieces,
                        elapsed_s=progress.elapsed_s * self.time_scale,
                    )
                )

        most = max(1, len(os.sched_getaffinity(0)) - 1)
        processes = min(most, max(1, ceil(self.share_per_slot * slots / FAN_OUT_SHARE)))
        before = self._joules_now()
        try:
            result = self.pool.run(job, processes=processes, on_progress=tell, should_stop=self.should_abort)
        except ConnectionError as error:
            raise self._unconnected(error, stage, load) from error
        except Interrupted:
            raise MeasurementFailed(
                MeasurementTrouble.ABORTED, stage, "the measurement was stopped", load=load, levels=self.levels
            ) from None
        after = self._joules_now()
        self.joules = None if before is None or after is None else after - before
        self.share_per_slot = result.cpu_share * result.processes / slots
        if result.cpu_share > CPU_LIMIT and result.processes < most and stage is Stage.LEVEL and not result.stall:
            fresh = self.prompts.conversations(len(job.conversations), self.dialect, f"{load.slug}/again/{repeat}")
            return self._run(stage, load, fresh[: len(due)] if due else fresh, repeat, due)
        return result

    @property
    def _by_schedule(self) -> Target:
        """The server, told that requests are no reactions to its answers where it cannot know by its own clock."""
        if self.time_scale == 1:
            return self.target
        return replace(self.target, headers=(*self.target.headers, (OPEN_LOOP_HEADER, "1")))

    def _limit(self, seconds: float) -> float:
        return seconds if self.time_scale == 1 else max(_MIN_LIMIT_S, seconds / self.time_scale)

    def _joules_now(self) -> float | None:
        return None if self.energy is None else self.energy()

    def _unconnected(self, error: ConnectionError, stage: Stage, load: LoadPoint) -> MeasurementFailed:
        """A server that takes some of the connections lives; one that takes none does not."""
        where = f"the server at {self.target.authority}"
        if isinstance(error, TooFewConnections):
            kind, message = MeasurementTrouble.REQUESTS_FAILED, f"{where} admits fewer connections than asked: {error}"
        else:
            kind, message = MeasurementTrouble.DEAD_SERVER, f"{where} does not take connections: {error}"
        return MeasurementFailed(kind, stage, message, load=load, levels=self.levels)
