"""The progress lines that engines write while they serve."""

from __future__ import annotations

import time

from tuner.engines.simulated.journal import Journal
from tuner.engines.simulated.scheduler import Scheduler

_EVERY_REAL_S = 0.5


class ServingLog:
    """Writes one line every half real second in which something was generated.

    Args:
        scheduler: whose progress.
        journal: where to.
        flavor: whose words.
        time_scale: simulated seconds per real second.
    """

    def __init__(self, scheduler: Scheduler, journal: Journal, flavor: str, time_scale: float) -> None:
        self._scheduler, self._journal, self._flavor, self._scale = scheduler, journal, flavor, time_scale
        self._last, self._generated = time.monotonic(), 0

    def look(self) -> None:
        """Called after each activity of the scheduler."""
        now = time.monotonic()
        if now - self._last < _EVERY_REAL_S:
            return
        scheduler = self._scheduler
        rate = (scheduler.generated - self._generated) / (now - self._last) / self._scale
        self._last, self._generated = now, scheduler.generated
        usage = scheduler.kv_used / max(1, scheduler.kv_tokens)
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        if self._flavor == "vllm":
            self._journal.main(
                f"Engine 000: Avg generation throughput: {rate:.1f} tokens/s, Running: {running} reqs, "
                f"Waiting: {waiting} reqs, GPU KV cache usage: {usage * 100:.1f}%, Prefix cache hit rate: 0.0%",
                source="loggers.py:127",
            )
        else:
            self._journal.worker(
                f"Decode batch, #running-req: {running}, #token: {scheduler.kv_used}, token usage: {usage:.2f}, "
                f"cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: {waiting}"
            )
