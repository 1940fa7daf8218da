"""Batches, queue, KV room, and the absolute schedule of every token.

All times inside are simulated seconds since start; one real second is `time_scale` of them. Work happens in
activities (one prefill, or some decode steps) that follow each other without gap on the simulated clock. A late event
loop therefore delivers late, but never makes the next activity start late: errors do not add up.

One thing must not be multiplied by the time scale: what the client and the wire need in real time between a finished
answer and the next request. An arrival soon after a completion (or after another arrival) is therefore dated to that
event plus the *real* time in between, and decoding is not played while such requests still come in (the simulated
schedule stands, it is only delivered a little later). At time scale 1 this changes nothing. Requests that say that they
come by schedule (`Job.scheduled`) are dated to when they come.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tuner.engines.simulated.model import Speed
from tuner.engines.simulated.noise import LaunchNoise

_CHUNKS_PER_SECOND = 8000
"""Real chunks per second over all streams, above which tokens are bundled, so that a client on one core can follow."""
_SHORTEST_WAIT_S = 0.001
_EARLY_S = 0.0005
"""Event loops wake on whole milliseconds; half of one early keeps the mean error at zero."""
_REACTION_S = 0.03
"""An arrival later than this (real seconds) after the last event is no reaction to it."""
_QUIET_S = 0.004
"""With a time scale, decoding waits until no request has come or ended for so long (real seconds)."""
_LONGEST_BURST_S = 0.25
"""A burst older than this is steady traffic: decoding no longer waits for its end."""


@dataclass(slots=True, eq=False)
class Job:
    """One request as the scheduler sees it.

    Attributes:
        prompt_tokens: tokens to prefill.
        output_tokens: tokens to generate.
        emit: called with the number of new tokens whenever some are due.
        produced: tokens generated so far.
        scheduled: it came by schedule, whether or not earlier requests have ended.
        stuck: True for a stream that will never get another token.
    """

    prompt_tokens: int
    output_tokens: int
    emit: Callable[[int], None]
    produced: int = 0
    ready_at: float = 0.0
    scheduled: bool = False
    stuck: bool = False

    @property
    def room(self) -> int:
        """KV tokens that the request may need."""
        return self.prompt_tokens + self.output_tokens


@dataclass(slots=True)
class _Activity:
    start: float
    duration: float
    steps: int
    prefilled: list[Job] | None = None  # of a prefill; None for decode steps

    @property
    def end(self) -> float:
        return self.start + self.duration * self.steps


class Timer(Protocol):
    """A call that can be taken back."""

    def cancel(self) -> None:
        """Take it back."""


class Timers(Protocol):
    """The one thing that the scheduler needs of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call after so many real seconds."""


class Scheduler:
    """Runs jobs on the simulated clock.

    Args:
        speed: costs of the settings.
        noise: this launch's speed relative to the truth.
        time_scale: simulated seconds per real second.
        max_running: batch limit.
        prefill_chunk: prompt tokens per prefill; -1 for no limit.
        decode_steps: decode steps between two looks at the queue.
        stream_interval: tokens per chunk asked for.
        timers: what wakes it; the running event loop when None.
        clock: real seconds of any steady clock. Not the loop's, which stands still during a callback.

    Attributes:
        waiting, running: jobs in the queue and in the batch.
        frozen: True once generation has stopped for good.
        generated, prefilled: tokens so far.
        watchers: called after each activity.
    """

    def __init__(
        self,
        speed: Speed,
        noise: LaunchNoise,
        *,
        time_scale: float,
        max_running: int,
        prefill_chunk: int,
        decode_steps: int,
        stream_interval: int,
        timers: Timers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._speed, self._noise, self._scale = speed, noise, time_scale
        self._max_running, self._prefill_chunk = max_running, prefill_chunk
        self._granule = math.lcm(decode_steps, stream_interval)
        self._kv_tokens = speed.kv_tokens()
        self._timers: Timers = timers or asyncio.get_running_loop()
        self._clock = clock
        self._origin = clock()
        self._timer: Timer | None = None
        self._boundary = 0.0
        self._activity: _Activity | None = None
        self._completions: deque[float] = deque()
        self._last_arrival = 0.0
        self._burst = (-math.inf, -math.inf)
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.frozen = False
        self.generated = 0
        self.prefilled = 0
        self.watchers: list[Callable[[], None]] = []

    @property
    def now(self) -> float:
        """Simulated seconds since start."""
        return (self._clock() - self._origin) * self._scale

    @property
    def kv_used(self) -> int:
        """KV tokens reserved by running requests."""
        return sum(job.room for job in self.running)

    @property
    def kv_tokens(self) -> int:
        """KV tokens that there are."""
        return self._kv_tokens

    def submit(self, job: Job) -> None:
        """Queue a job."""
        arrival = self.now if job.scheduled else self._arrival()
        job.ready_at = arrival + self._speed.admission_ms / 1000.0
        self.waiting.append(job)
        activity = self._activity
        if activity is not None and activity.prefilled is None and activity.steps > self._granule:
            wanted = max(job.ready_at, self.now) - activity.start
            activity.steps = min(activity.steps, self._whole_granules(math.ceil(wanted / activity.duration)))
        self._pump()

    def cancel(self, job: Job) -> None:
        """Forget a job whose client has gone."""
        if job in self.running:
            self.running.remove(job)
        elif job in self.waiting:
            self.waiting.remove(job)
        elif self._activity is not None and self._activity.prefilled and job in self._activity.prefilled:
            self._activity.prefilled.remove(job)

    def forget(self) -> None:
        """What comes next is no reaction to what was: a client that flushes the cache begins something new."""
        self._completions.clear()
        self._burst = (-math.inf, -math.inf)

    def freeze(self) -> None:
        """Stop all generation for good, as a deadlocked engine does."""
        self.frozen = True

    def _arrival(self) -> float:
        """When the request that has just come counts as sent."""
        now, real = self.now, self._clock()
        if real - self._burst[1] > _REACTION_S:
            self._completions.clear()
            arrival = now
        elif self._completions:
            finished = self._completions.popleft()
            arrival = finished + (now - finished) / self._scale
        else:
            arrival = self._last_arrival + real - self._burst[1]
        self._last_arrival = arrival
        self._note_event()
        return arrival

    def _note_event(self) -> None:
        """A request came or ended: the burst goes on, or a new one begins."""
        real = self._clock()
        first, last = self._burst
        self._burst = (first if real - last < _QUIET_S else real, real)

    def _burst_ends(self) -> float | None:
        """Monotonic time at which the present burst may count as over, or None when there is none to wait for."""
        first, last = self._burst
        end = min(last + _QUIET_S, first + _LONGEST_BURST_S)
        return end if self._scale > 1.0 and end > self._clock() else None

    def _whole_granules(self, steps: int) -> int:
        return max(1, math.ceil(steps / self._granule)) * self._granule

    def _pump(self) -> None:
        """Do everything that is due, then sleep until the next end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while not self.frozen:
            if self._activity is None:
                self._activity = self._next_activity()
                if self._activity is None:
                    return
            burst_ends = self._burst_ends() if self._activity.prefilled is None else None
            if burst_ends is not None:
                self._activity = None  # planned anew, with whoever has come by then
                self._sleep_until(burst_ends)
                return
            if self._activity.end > self.now + _EARLY_S * self._scale:
                self._sleep_until(self._origin + self._activity.end / self._scale)
                return
            self._finish(self._activity)

    def _sleep_until(self, moment: float) -> None:
        self._timer = self._timers.call_later(max(0.0, moment - self._clock()), self._pump)

    def _next_activity(self) -> _Activity | None:
        if not self.running and self.waiting:
            self._boundary = max(self._boundary, self.waiting[0].ready_at)
        elif not self.running:
            return None
        admitted = self._admit()
        if admitted:
            tokens = sum(job.prompt_tokens for job in admitted)
            seconds = tokens * self._speed.prefill_ms_per_token / 1000.0
            batch = len(self.running) + len(admitted)
            return _Activity(self._boundary, seconds / self._noise.speed(batch, self._boundary), 1, admitted)
        active = [job for job in self.running if not job.stuck]
        if not active:
            return None
        batch = len(self.running)
        step = self._speed.step_ms(batch) / 1000.0 / self._noise.speed(batch, self._boundary)
        steps = min(job.output_tokens - job.produced for job in active)
        return _Activity(self._boundary, step, min(steps, self._bundle(step, batch)))

    def _bundle(self, step: float, batch: int) -> int:
        """Decode steps until the next look: few enough to stream and to see arrivals, many enough to be cheap."""
        if self._scale == 1.0:
            steps = 1
        else:
            wait = max(_SHORTEST_WAIT_S, batch / _CHUNKS_PER_SECOND) * self._scale
            steps = math.ceil(wait / step)
        if self.waiting and len(self.running) < self._max_running:
            steps = min(steps, max(1, math.ceil((self.waiting[0].ready_at - self._boundary) / step)))
        return self._whole_granules(steps)

    def _admit(self) -> list[Job]:
        """Take from the queue what is there, fits the batch and the KV room, and fills one prefill."""
        admitted: list[Job] = []
        tokens, room = 0, self._kv_tokens - self.kv_used
        while self.waiting and len(self.running) + len(admitted) < self._max_running:
            job = self.waiting[0]
            alone = not self.running and not admitted
            if job.ready_at > self._boundary + 1e-9 or (job.room > room and not alone):
                break
            if admitted and 0 < self._prefill_chunk < tokens + job.prompt_tokens:
                break
            admitted.append(self.waiting.popleft())
            tokens, room = tokens + job.prompt_tokens, room - job.room
        return admitted

    def _finish(self, activity: _Activity) -> None:
        self._boundary, self._activity = activity.end, None
        if activity.prefilled is not None:
            self.running += activity.prefilled
            self.prefilled += sum(job.prompt_tokens for job in activity.prefilled)
            due, count = activity.prefilled, 1
        else:
            due, count = [job for job in self.running if not job.stuck], activity.steps
        for job in due:
            new = min(count, job.output_tokens - job.produced)
            job.produced += new
            self.generated += new
        done = [job for job in due if job.produced >= job.output_tokens]
        if done:
            gone = set(map(id, done))
            self.running = [job for job in self.running if id(job) not in gone]
        # Somebody may react to these answers at once.
        awaited = sum(not job.scheduled for job in done)
        if awaited:
            self._note_event()
            self._completions.extend([self._boundary] * awaited)
        for job in due:
            job.emit(count)
        for look in self.watchers:
            look()
