"""Load processes, seen from the caller: start them, give them one job together, collect the records."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import IO

import tuner
from tuner.errors import InternalError, OwnShortage
from tuner.loadgen.job import Job, LoadResult, Progress, TooFewConnections, merge
from tuner.loadgen.record import RequestRecord

_POLL_S = 0.05
_LEAD_S = 0.02  # from the last `ready` to the common start
_GRACE_S = 3.0

Line = bytes | None
"""A line from a load process, or None when it has ended."""


class Interrupted(Exception):
    """The caller asked to stop in the middle of a job."""


class _Process:
    def __init__(self, lines: queue.SimpleQueue[tuple[_Process, Line]]) -> None:
        root = str(Path(tuner.__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tuner.loadgen.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # Ctrl-C reaches the caller alone, which then ends the job in order
        )
        self._lines = lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put((self, line))
        self._lines.put((self, None))

    def tell(self, *lines: bytes) -> None:
        """Write lines to the process; one that has died is noticed by its end of output."""
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.writelines(lines)
            self._child.stdin.flush()

    def last_words(self) -> str:
        """The end of what the process wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End the process; it leaves by itself when its input ends."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        self._errors.close()


class _Answer:
    """What one process has said about the current job."""

    def __init__(self) -> None:
        self.ready = False
        self.progress: Progress | None = None
        self.summary: str | None = None
        self.expected = 0
        self.records: list[RequestRecord] = []

    @property
    def complete(self) -> bool:
        return self.summary is not None and len(self.records) == self.expected


class LoadPool:
    """Starts load processes when they are needed and ends them at the end of the `with` block."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[tuple[_Process, Line]] = queue.SimpleQueue()
        self._processes: list[_Process] = []

    def __enter__(self) -> LoadPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every load process."""
        for process in self._processes:
            process.close()
        self._processes = []

    def run(
        self,
        job: Job,
        *,
        processes: int = 1,
        on_progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> LoadResult:
        """Do one job.

        Args:
            job: what to send.
            processes: how many processes share it; never more than there are slots.
            on_progress: called about twice a second.
            should_stop: asked about twenty times a second; True ends the job.

        Raises:
            ConnectionError: the server took no connections.
            TooFewConnections: it took some, but fewer than the job needs.
            OwnShortage: this machine allows fewer connections than the job needs.
            Interrupted: `should_stop` said so.
            InternalError: a load process died.
        """
        count = max(1, min(processes, job.slots, len(job.conversations)))
        while len(self._processes) < count:
            self._processes.append(_Process(self._lines))
        crew = self._processes[:count]
        answers = {process: _Answer() for process in crew}
        for part, process in enumerate(crew):
            process.tell(*job.share(part, count).to_lines())
        started = False
        while not all(answer.complete for answer in answers.values()):
            if should_stop is not None and should_stop():
                self._stop(crew)
                raise Interrupted
            try:
                process, line = self._lines.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if process not in answers:
                continue
            self._note(process, line, answers[process])
            if not started and all(answer.ready for answer in answers.values()):
                started = True
                signal = f"go {perf_counter() + _LEAD_S!r}\n".encode()
                for member in crew:
                    member.tell(signal)
            if on_progress is not None and (progress := _sum(answers)) is not None:
                on_progress(progress)
        return merge([_result(answer) for answer in answers.values()])

    def _note(self, process: _Process, line: Line, answer: _Answer) -> None:
        if line is None:
            words = process.last_words()
            self.close()
            raise InternalError(f"a load process died: {words or 'no message'}")
        if answer.summary is not None:
            answer.records.append(RequestRecord.from_json(line))
            return
        said = json.loads(line)
        event = said.pop("event")
        if event == "ready":
            answer.ready = True
        elif event == "progress":
            answer.progress = Progress(**said)
        elif event == "short":
            self.close()
            raise OwnShortage(**said)
        elif event == "unconnected":
            self.close()
            raise TooFewConnections(said["error"]) if said["few"] else ConnectionError(said["error"])
        else:
            answer.summary, answer.expected = said["summary"], said["records"]

    def _stop(self, crew: list[_Process]) -> None:
        for process in crew:
            process.tell(b"stop\n")
        # What they still have to say belongs to a job that nobody waits for: start afresh with the next one.
        self.close()
        self._lines = queue.SimpleQueue()


def _sum(answers: dict[_Process, _Answer]) -> Progress | None:
    found = [answer.progress for answer in answers.values() if answer.progress]
    if len(found) < len(answers):
        return None
    for answer in answers.values():
        answer.progress = None
    return Progress(
        done=sum(p.done for p in found),
        in_flight=sum(p.in_flight for p in found),
        pieces=sum(p.pieces for p in found),
        elapsed_s=max(p.elapsed_s for p in found),
    )


def _result(answer: _Answer) -> LoadResult:
    assert answer.summary is not None
    return LoadResult.from_summary(answer.summary, tuple(answer.records))
