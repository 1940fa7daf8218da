"""The scheduler on a clock of the test's own: speeds are the model's to the last digit, queues and KV room are real."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tuner.engines.simulated.model import Speed, parse_settings, truth
from tuner.engines.simulated.modelfile import SimModel, load_model
from tuner.engines.simulated.noise import Drift, LaunchNoise
from tuner.engines.simulated.scheduler import Job, Scheduler

PROMPT, ANSWER = 512, 128


@dataclass
class Call:
    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


@dataclass
class World:
    """Time that moves only when told, and the timers that hang on it. Wakes come `late_s` late."""

    now: float = 100.0
    late_s: float = 0.0
    _calls: list[tuple[float, int, Call]] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def clock(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Call:
        call = Call(callback)
        heapq.heappush(self._calls, (self.now + delay + self.late_s, next(self._numbers), call))
        return call

    def run(self, until: float = float("inf")) -> None:
        while self._calls and self._calls[0][0] <= until:
            moment, _number, call = heapq.heappop(self._calls)
            self.now = max(self.now, moment)
            if call.callback is not None:
                call.callback()


@pytest.fixture(scope="module")
def sm120() -> SimModel:
    return load_model("sm120")


def scheduler(model: SimModel, world: World, *, scale: float, flavor: str = "sglang", **asked: Any) -> Scheduler:
    settings = parse_settings(model, flavor, {f"--{name.replace('_', '-')}": value for name, value in asked.items()})
    still = Drift(0.0, 1.0, 0.0)
    return Scheduler(
        Speed(model, settings),
        LaunchNoise(model.noise, seed=0, scale=0.0, full_batch=128, drift=still, wall_clock=lambda: 0.0),
        time_scale=scale,
        max_running=settings.max_running,
        prefill_chunk=settings.prefill_chunk,
        decode_steps=settings.decode_steps,
        stream_interval=settings.stream_interval,
        timers=world,
        clock=world.clock,
    )


@dataclass
class ClosedLoop:
    """Clients that send their next request as soon as they have an answer (after `think_s` real seconds)."""

    world: World
    scheduler: Scheduler
    requests: int
    think_s: float = 0.0
    spread_s: float = 0.0
    first: float = float("inf")
    last: float = 0.0
    tokens: int = 0
    most_running: int = 0

    def run(self, clients: int) -> ClosedLoop:
        for number in range(clients):
            self.world.call_later(number * self.spread_s, self._send)
        self.world.run()
        return self

    def _send(self) -> None:
        if self.requests == 0:
            return
        self.requests -= 1
        self.first = min(self.first, self.world.now)
        got = 0

        def emit(count: int) -> None:
            nonlocal got
            got += count
            self.most_running = max(self.most_running, len(self.scheduler.running))
            if got >= ANSWER:
                self.tokens += ANSWER
                self.last = self.world.now
                self.world.call_later(self.think_s, self._send)

        self.scheduler.submit(Job(PROMPT, ANSWER, emit))

    def rate(self, scale: float) -> float:
        """Output tokens per simulated second."""
        return self.tokens / ((self.last - self.first) * scale)


@pytest.mark.parametrize("flavor", ["sglang", "vllm"])
@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("clients", [1, 32, 128])
def test_a_closed_loop_sees_the_model_s_speed(sm120: SimModel, flavor: str, scale: float, clients: int) -> None:
    world = World()
    loop = ClosedLoop(world, scheduler(sm120, world, scale=scale, flavor=flavor), requests=4 * clients).run(clients)
    assert loop.rate(scale) == pytest.approx(truth(sm120, flavor, {}, levels=[clients]).rates[clients], rel=2e-3)


def test_a_late_event_loop_does_not_slow_the_simulated_clock(sm120: SimModel) -> None:
    world = World(late_s=0.002)
    loop = ClosedLoop(world, scheduler(sm120, world, scale=20.0), requests=40).run(1)
    assert loop.rate(20.0) == pytest.approx(63.6, rel=5e-3)


def test_the_client_s_own_time_is_not_multiplied_by_the_time_scale(sm120: SimModel) -> None:
    """A millisecond between answer and next request is a millisecond, not twenty."""
    world = World()
    loop = ClosedLoop(world, scheduler(sm120, world, scale=20.0), requests=40, think_s=0.001).run(1)
    assert loop.rate(20.0) == pytest.approx(63.6, rel=5e-3)


@pytest.mark.parametrize("flushes", [True, False])
def test_after_a_flush_a_request_counts_from_when_it_came(sm120: SimModel, flushes: bool) -> None:
    world = World()
    engine = scheduler(sm120, world, scale=20.0)
    ClosedLoop(world, engine, requests=1).run(1)
    if flushes:
        engine.forget()
    world.now += 0.01
    came = engine.now
    job = Job(PROMPT, ANSWER, lambda _n: None)
    engine.submit(job)
    assert (job.ready_at > came) is flushes


def test_a_burst_that_takes_time_to_send_is_one_burst(sm120: SimModel) -> None:
    world = World()
    loop = ClosedLoop(world, scheduler(sm120, world, scale=20.0), requests=512, spread_s=0.0002).run(128)
    assert loop.rate(20.0) == pytest.approx(2370, rel=1e-2)


def test_what_exceeds_the_batch_limit_queues(sm120: SimModel) -> None:
    world = World()
    loop = ClosedLoop(world, scheduler(sm120, world, scale=1.0, max_running_requests=16), requests=64).run(64)
    assert loop.most_running == 16
    expected = truth(sm120, "sglang", {"--max-running-requests": 16}, levels=[64]).rates[64]
    assert loop.rate(1.0) == pytest.approx(expected, rel=2e-2)


def test_what_exceeds_the_kv_room_queues(sm120: SimModel) -> None:
    world = World()
    tight = scheduler(sm120, world, scale=1.0, mem_fraction_static=0.6)
    loop = ClosedLoop(world, tight, requests=64).run(64)
    assert loop.most_running == tight.kv_tokens // (PROMPT + ANSWER) < 64


def test_a_request_larger_than_the_kv_room_still_runs_alone(sm120: SimModel) -> None:
    world = World()
    tiny = scheduler(sm120, world, scale=1.0, mem_fraction_static=0.58)
    got: list[int] = []
    tiny.submit(Job(tiny.kv_tokens + 1, 2, got.append))
    world.run()
    assert sum(got) == 2


def test_at_scale_one_every_token_comes_by_itself_and_large_scales_bundle(sm120: SimModel) -> None:
    for scale, single in ((1.0, True), (50.0, False)):
        world = World()
        counts: list[int] = []
        scheduler(sm120, world, scale=scale).submit(Job(PROMPT, ANSWER, counts.append))
        world.run()
        assert sum(counts) >= ANSWER
        assert (max(counts) == 1) is single


def test_continuous_decode_steps_come_in_groups(sm120: SimModel) -> None:
    world = World()
    counts: list[int] = []
    scheduler(sm120, world, scale=1.0, num_continuous_decode_steps=4).submit(Job(PROMPT, 13, counts.append))
    world.run()
    assert counts == [1, 4, 4, 4]


def test_a_cancelled_request_frees_its_place(sm120: SimModel) -> None:
    world = World()
    one_slot = scheduler(sm120, world, scale=1.0, max_running_requests=1)
    gone, kept = Job(PROMPT, ANSWER, lambda _n: None), Job(PROMPT, 3, lambda _n: None)
    one_slot.submit(gone)
    one_slot.submit(kept)
    world.run(until=world.now + 1.0)
    one_slot.cancel(gone)
    world.run()
    assert (gone.produced < ANSWER, kept.produced) == (True, 3)


@pytest.mark.parametrize("after_s", [0.01, 0.065, 0.5])
def test_nothing_is_generated_for_a_client_that_left(sm120: SimModel, after_s: float) -> None:
    """While it waited, while its prompt was read (from 60 ms on), and while it was answered."""
    world = World()
    engine = scheduler(sm120, world, scale=1.0)
    got: list[int] = []
    job = Job(PROMPT, ANSWER, got.append)
    engine.submit(job)
    world.run(until=world.now + after_s)
    engine.cancel(job)
    before = len(got)
    world.run()
    assert len(got) == before
    assert engine.running == []


def test_a_stuck_stream_stays_and_the_others_go_on(sm120: SimModel) -> None:
    world = World()
    engine = scheduler(sm120, world, scale=1.0)
    stuck, fine = Job(PROMPT, ANSWER, lambda _n: None), Job(PROMPT, ANSWER, lambda _n: None)
    engine.submit(stuck)
    engine.submit(fine)
    world.run(until=world.now + 0.5)
    stuck.stuck = True
    world.run()
    assert (stuck.produced < ANSWER, fine.produced, engine.running) == (True, ANSWER, [stuck])


def test_a_frozen_engine_generates_nothing_more(sm120: SimModel) -> None:
    world = World()
    engine = scheduler(sm120, world, scale=1.0)
    job = Job(PROMPT, ANSWER, lambda _n: None)
    engine.submit(job)
    world.run(until=world.now + 0.5)
    engine.freeze()
    before = job.produced
    world.run()
    assert 0 < before == job.produced < ANSWER


def waits_at(model: SimModel, *, rate: float, scale: float, scheduled: bool = True, requests: int = 120) -> list[float]:
    """Simulated seconds from arrival to first token of requests that come at a rate, evenly spaced."""
    world = World()
    engine = scheduler(model, world, scale=scale)
    waits: list[float] = []

    def send() -> None:
        came, first = engine.now, True

        def emit(_count: int) -> None:
            nonlocal first
            if first:
                waits.append(engine.now - came)
            first = False

        engine.submit(Job(PROMPT, ANSWER, emit, scheduled=scheduled))

    for number in range(requests):
        world.call_later(number / (rate * scale), send)
    world.run()
    return waits


@pytest.mark.parametrize("rate", [2.0, 10.0])
def test_requests_that_come_by_schedule_wait_alike_at_every_time_scale(sm120: SimModel, rate: float) -> None:
    real, fast = (waits_at(sm120, rate=rate, scale=scale) for scale in (1.0, 20.0))
    assert fast == pytest.approx(real, abs=0.06)  # a decode step or two, which are bundled in time lapse


def test_that_a_request_came_by_schedule_must_be_told(sm120: SimModel) -> None:
    """In time lapse it would count as a reaction to the answer before it, and some would not wait at all."""
    told, untold = (waits_at(sm120, rate=10.0, scale=20.0, scheduled=scheduled) for scheduled in (True, False))
    assert min(untold) < 0.02 < 0.05 < min(told)


def test_a_rate_beyond_what_the_model_serves_makes_a_queue_that_grows(sm120: SimModel) -> None:
    served = 2370 / ANSWER  # requests a second at C=128
    calm, flooded = (waits_at(sm120, rate=share * served, scale=20.0, requests=600) for share in (0.5, 3.0))
    assert max(calm) < 0.5
    assert flooded[-1] > 3 * flooded[len(flooded) // 3] > 30 * max(calm)
