"""Where launch faults happen: in a phase of the launch, or once the load is there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import NoReturn

from tuner.engines.simulated.api import Api
from tuner.engines.simulated.crash_texts import last_words
from tuner.engines.simulated.faults import Fault, Faults
from tuner.engines.simulated.journal import Journal
from tuner.engines.simulated.scheduler import Scheduler
from tuner.engines.simulated.strays import leave_child

_NOISE_EVERY_S = 0.25


def end_process(status: int) -> NoReturn:
    """End at once, without clean-up, as a crash does; negative for a signal."""
    sys.stderr.flush()
    if status < 0:
        os.kill(os.getpid(), -status)
        signal.pause()  # the signal takes us
    os._exit(status)


class Incidents:
    """Makes the faults of one launch happen.

    Args:
        faults: what happens when.
        journal: the log.
        flavor: whose last words to use.
    """

    def __init__(self, faults: Faults, journal: Journal, flavor: str) -> None:
        self._faults, self._journal, self._flavor = faults, journal, flavor
        self._tasks: set[asyncio.Task[None]] = set()

    async def in_phase(self, phase: str) -> None:
        """Called in the middle of each launch phase, and when serving begins."""
        orphan = self._faults.named("orphan")
        if phase == "nccl_init" and orphan is not None:
            leave_child(self._flavor, lifetime_s=orphan.number("lifetime"))
        for fault in self._faults.at(phase):
            await self._strike(fault, phase)

    async def _strike(self, fault: Fault, phase: str) -> None:
        match fault.name:
            case "log-flood":
                self._keep(self._flood(int(fault.number("lines"))))
            case "log-garbage":
                self._journal.bytes(b"\xff\xfe broken \xc3\x28 log \x80\x81 line\n" * 20)
            case "log-size":
                line = b"DEBUG " + b"x" * 1017 + b"\n"
                for _kilobyte in range(int(fault.number("megabytes"))):
                    self._journal.bytes(line * 1024)
            case "crash" | "oom" if phase != "serving":
                self.crash(fault)
            case "hang" if phase != "serving":
                await self._hang(fault)

    def crash(self, fault: Fault) -> NoReturn:
        """Print the last words and end."""
        status = last_words(self._journal, fault.failure_class, flavor=self._flavor, detail=fault.detail)
        if fault.options.get("signal"):
            status = -int(fault.number("signal"))
        elif fault.options.get("exit"):
            status = int(fault.number("exit"))
        end_process(status)

    async def _hang(self, fault: Fault) -> None:
        noisy = fault.number("noisy") > 0
        while True:
            await asyncio.sleep(_NOISE_EVERY_S)
            if noisy:
                self._journal.worker("still waiting for a lock", source="shm_broadcast.py:112", level="WARNING")

    async def _flood(self, lines_per_s: int) -> None:
        """Lines with a number, so that no two are equal; written in bursts of a tenth of a second."""
        number = 0
        while True:
            burst = max(1, lines_per_s // 10)
            text = "".join(f"DEBUG flood line {number + index}\n" for index in range(burst))
            self._journal.bytes(text.encode())
            number += burst
            await asyncio.sleep(0.1)

    def _keep(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)

    def watch(self, scheduler: Scheduler, api: Api) -> None:
        """Let faults of the serving phase happen once their load is there."""
        pending = [fault for fault in self._faults.at("serving") if fault.name in ("crash", "oom", "hang")]
        if not pending:
            return

        def look() -> None:
            for fault in list(pending):
                if scheduler.generated >= fault.number("after") and len(scheduler.running) >= fault.number("running"):
                    pending.remove(fault)
                    self._strike_serving(fault, scheduler, api)

        scheduler.watchers.append(look)

    def _strike_serving(self, fault: Fault, scheduler: Scheduler, api: Api) -> None:
        if fault.name != "hang":
            self.crash(fault)
        if fault.options["streams"] == "one":
            scheduler.running[0].stuck = True
        else:
            scheduler.freeze()
        api.health_hangs = fault.options["health"] == "hang"
        if fault.number("noisy") > 0:
            self._keep(self._hang(fault))
