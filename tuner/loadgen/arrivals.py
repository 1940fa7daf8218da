"""When the requests of an open loop arrive: as many in the window as the asked rate makes of it."""

from __future__ import annotations

from random import Random
from typing import Literal

Spacing = Literal["poisson", "constant"]


def window_seconds(rate: float, requests: int) -> float:
    """The time in which so many requests arrive at a rate in requests/s."""
    return requests / rate


def arrival_instants(rate: float, requests: int, spacing: Spacing, random: Random) -> tuple[float, ...]:
    """Seconds after the start at which each request is due, ascending, all within `window_seconds`.

    Poisson arrivals are drawn given their number: the instants of a Poisson process with n events in a window are
    distributed as n sorted uniform draws over it (Ross, Stochastic Processes, 2nd ed., theorem 2.3.1). Gaps stay near
    exponential, and the rate is the asked one exactly; a free draw misses it by one part in √n (at 5/s for 20 s by a
    tenth), which would decide every throughput and limit at the rate.
    """
    seconds = window_seconds(rate, requests)
    if spacing == "constant":
        return tuple(number / rate for number in range(requests))
    return tuple(sorted(random.random() * seconds for _ in range(requests)))
