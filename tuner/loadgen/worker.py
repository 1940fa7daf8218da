"""The load process: reads a job from stdin, waits for the starting signal, answers with records on stdout.

Its own process keeps the caller's threads, garbage and screen drawing away from the clock. It ends when stdin ends, so
it never outlives its parent.

In:  a job (`Job.to_lines`), then `go TIME` (monotonic seconds), then perhaps `stop`.
Out: one JSON object a line: `{"event": "ready"|"unconnected"|"short"|"progress"|"result", …}`; `result` is followed by
     the records.
"""

from __future__ import annotations

import json
import queue
import resource
import sys
import threading
from dataclasses import asdict
from typing import BinaryIO

import uvloop

from tuner.errors import OwnShortage
from tuner.loadgen.driver import Driver
from tuner.loadgen.job import Job, Progress, TooFewConnections

_PROGRESS_EVERY = 5  # ticks


class _Orders:
    """Reads stdin in a thread that sleeps in the system call, so that it costs the event loop nothing."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._jobs: queue.SimpleQueue[Job | float | None] = queue.SimpleQueue()
        self.stopped = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := self._source.readline():
            if line.startswith(b"{"):
                self.stopped.clear()
                self._jobs.put(Job.from_lines(line, self._source.readline))
            elif line.startswith(b"go "):
                self._jobs.put(float(line[3:]))
            else:
                self.stopped.set()
        self.stopped.set()
        self._jobs.put(None)

    def next(self) -> Job | float | None:
        return self._jobs.get()


def _say(sink: BinaryIO, event: str, **more: object) -> None:
    sink.write(json.dumps({"event": event, **more}).encode() + b"\n")
    sink.flush()


async def _do(job: Job, orders: _Orders, sink: BinaryIO) -> None:
    ticks = 0

    def tick(progress: Progress) -> None:
        nonlocal ticks
        ticks += 1
        if ticks % _PROGRESS_EVERY == 0:
            _say(sink, "progress", **asdict(progress))

    driver = Driver(job, on_tick=tick, should_stop=orders.stopped.is_set)
    try:
        await driver.prepare()
        _say(sink, "ready")
        start_at = orders.next()
        if not isinstance(start_at, float):
            return
        result = await driver.run(start_at)
    except OwnShortage as shortage:
        _say(sink, "short", message=shortage.message, hint=shortage.hint)
        return
    except OSError as error:
        few = isinstance(error, TooFewConnections)
        words = str(error) if few else f"{type(error).__name__}: {error}"
        _say(sink, "unconnected", error=words, few=few)
        return
    _say(sink, "result", records=len(result.records), summary=result.summary_json())
    for record in result.records:
        sink.write(record.to_json().encode() + b"\n")
    sink.flush()


def _allow_sockets() -> None:
    """A connection is an open file; many shells allow a process 1,024 of them unless it asks for more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Serve jobs until stdin ends."""
    _allow_sockets()
    orders, sink = _Orders(sys.stdin.buffer), sys.stdout.buffer
    while isinstance(job := orders.next(), Job):
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(_do(job, orders, sink))
        finally:
            loop.close()


if __name__ == "__main__":
    main()
