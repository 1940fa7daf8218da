"""The client's watch over itself sees a loop that is held up and a core that is used up."""

from __future__ import annotations

import asyncio
import time

from tuner.loadgen.watch import LAG_LIMIT_MS, SelfWatch


def watched(hold_up: float, *, busy: bool) -> SelfWatch:
    """A loop that is held up five times: by so many seconds of CPU time, or by waiting so long."""

    async def run() -> SelfWatch:
        watch = SelfWatch()
        watch.start()
        for _ in range(5):
            await asyncio.sleep(0.03)
            until = time.process_time() + hold_up
            if busy:
                while time.process_time() < until:
                    pass
            else:
                time.sleep(hold_up)
        await asyncio.sleep(0.03)
        watch.stop()
        return watch

    return asyncio.run(run())


def test_a_loop_that_is_held_up_is_late_by_that_much() -> None:
    # It is held up in any part of a period of 25 ms: what is left of 60 ms is late.
    assert watched(0.06, busy=False).lag_ms > 30 > LAG_LIMIT_MS


def test_waiting_takes_no_core_and_working_takes_its_share() -> None:
    waiting, working = watched(0.06, busy=False), watched(0.06, busy=True)
    assert waiting.cpu_share < 0.3
    assert working.cpu_s > waiting.cpu_s + 0.2
    assert working.cpu_share == working.cpu_s / working.wall_s


def test_too_short_a_time_shows_nothing() -> None:
    watch = SelfWatch()
    assert (watch.lag_ms, watch.cpu_share) == (0.0, 0.0)
