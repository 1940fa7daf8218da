"""The client watches itself: how late its event loop runs and how much CPU it takes.

A client that is busy reports its own waiting as the server's. The limits say from where on a level is marked.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, process_time

LAG_LIMIT_MS = 5.0
"""99th percentile of loop lateness above which a level is marked: half of a fast engine's time between tokens."""

CPU_LIMIT = 0.8
"""Share of one core above which a level is marked: queueing delay grows with 1/(1 - share)."""

FAN_OUT_SHARE = 0.5
"""Share of one core that a single load process may use before the work is spread over several."""

_PERIOD_S = 0.025


class SelfWatch:
    """Lateness of a periodic timer and CPU seconds between `start` and `stop`.

    uvloop's timers count whole milliseconds, so lateness up to 1 ms is the clock's grain; it is not subtracted.
    """

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._cpu_from = 0.0
        self._wall_from = 0.0
        self.cpu_s = 0.0
        self.wall_s = 0.0

    def start(self) -> None:
        """Begin; a running event loop is needed."""
        self._cpu_from, self._wall_from = process_time(), perf_counter()
        self._arm()

    def _arm(self) -> None:
        self._due = perf_counter() + _PERIOD_S
        self._handle = asyncio.get_running_loop().call_later(_PERIOD_S, self._fire)

    def _fire(self) -> None:
        self._late_s.append(max(0.0, perf_counter() - self._due))
        self._arm()

    def stop(self) -> None:
        """End; the figures are final."""
        if self._handle is not None:
            self._handle.cancel()
        self.cpu_s, self.wall_s = process_time() - self._cpu_from, perf_counter() - self._wall_from

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second, as a share of one core."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def lag_ms(self) -> float:
        """99th percentile of the lateness in milliseconds; 0 when too little time passed to see any."""
        if not self._late_s:
            return 0.0
        return sorted(self._late_s)[int(0.99 * (len(self._late_s) - 1))] * 1000
