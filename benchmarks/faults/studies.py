"""A whole study that is struck again and again, and judged by what it knows in the end.

Each injection strikes while a trial of the study runs, a trial that was not struck before. At the end every trial must
be there with a verdict: a struck one is launched again, by the study or by `tuner study resume`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults import stopping
from benchmarks.faults.catalogue import MEASURED
from benchmarks.faults.cluster import CLUSTER_ENVIRONMENT, Cluster
from benchmarks.faults.trials import TAG, WORKER_DEATH_BOUND_S, Judged, left_behind, ports_held
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.errors import TunerError
from tuner.store import Store, open_store
from tuner.trial.proctree import is_alive
from tuner.trial.record import FILE, LaunchRecord

_TUNER = (sys.executable, "-m", "tuner.cli.main")
_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 240.0
_STOPS_WITHIN_S = 15.0
_SPACE = """
name: faults
model: sim/kimi
engines:
  simulated:
    flags: {{--time-scale: 100}}
    env: {{{tag}: {value}, PYTHONPATH: {root}}}
knobs:
  decode_steps:
    int: {{low: 1, high: 60}}
    flag: --num-continuous-decode-steps
    default: 1
workload:
  input_tokens: 64
  output_tokens: 32
  levels: [1, 8]
  repeats: 1
  single_stream_min_requests: 2
  single_stream_max_requests: 3
  warmup_requests: 2
"""


@dataclass(slots=True)
class Study:
    """One study that runs through the command line, and its database.

    Attributes:
        environment: variables of its coordinator, and so of its workers.
    """

    folder: Path
    storage: str
    trials: int
    cluster: Cluster | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    _process: subprocess.Popen[bytes] | None = None
    _store: Store | None = None

    def start(self) -> None:
        """`tuner study start` in a process of its own."""
        space = self.folder / "space.yaml"
        space.write_text(_SPACE.format(tag=TAG, value=self.tag, root=_ROOT))
        self._run("start", "--space", str(space), "--name", "faults", "--trials", str(self.trials), "--yes")

    def resume(self) -> None:
        """`tuner study resume` in a process of its own."""
        self._run("resume", "faults")

    def _run(self, *arguments: str) -> None:
        address = ("--ray-address", self.cluster.address) if self.cluster else ()
        environment = {**self.environment, **(CLUSTER_ENVIRONMENT if self.cluster else {})}
        with (self.folder / "coordinator.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_TUNER, "study", *arguments, "--storage", self.storage, *address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **environment, "PYTHONPATH": str(_ROOT), "TUNER_RUNS": str(self.folder / "runs")},
                start_new_session=True,
            )

    @property
    def coordinator(self) -> subprocess.Popen[bytes]:
        """The running command."""
        assert self._process is not None
        return self._process

    def attempts(self) -> list[AttemptRecord]:
        """Every launch so far; empty while there is no study yet."""
        try:
            if self._store is None:
                self._store = open_store(self.storage, create=False)
            return self._store.attempts("faults")
        except TunerError:
            return []

    def next_victim(self, struck: set[int]) -> tuple[AttemptRecord, LaunchRecord]:
        """Wait for a running server of a trial that was not struck yet."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if self.coordinator.poll() is not None:
                raise RuntimeError(f"the study ended early: see {self.folder / 'coordinator.log'}")
            for attempt in self.attempts():
                if attempt.state is not AttemptState.RUNNING or attempt.trial in struck:
                    continue
                record = LaunchRecord.read(Path(attempt.run_dir) / FILE)
                if record is not None and record.server is not None and is_alive(record.server):
                    return attempt, record
            stopping.pause(0.2)
        raise RuntimeError(f"no trial ran for {_PATIENCE_S:.0f} s: see {self.folder / 'coordinator.log'}")

    def verdict_of(self, trial: int) -> str:
        """What the study knows about a trial by now: `measured`, a failure class, or empty."""
        own = [attempt for attempt in self.attempts() if attempt.trial == trial]
        if any(attempt.state is AttemptState.MEASURED and attempt.told for attempt in own):
            return MEASURED
        failed = [attempt for attempt in own if attempt.state is AttemptState.FAILED and attempt.told]
        return str(failed[-1].report.outcome.failure_class) if failed else ""  # type: ignore[union-attr]

    def end(self, trials: Collection[int]) -> None:
        """Wait until there is a verdict on each of these trials, then end the study after its present one."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.coordinator.poll() is None and time.monotonic() < deadline:
            if all(map(self.verdict_of, trials)):
                self.coordinator.terminate()
                break
            stopping.pause(0.5)
        deadline = time.monotonic() + _PATIENCE_S
        while self.coordinator.poll() is None and time.monotonic() < deadline:
            stopping.pause(0.1)
        self.kill()

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()

    def stop(self) -> None:
        """End the study at once, in the order in which it ends itself; kill it where it does not."""
        # Asked twice it tears its trial down; two signals of one number may arrive as one.
        for number in (signal.SIGINT, signal.SIGTERM):
            self.coordinator.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.coordinator.wait(_STOPS_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the coordinator."""
        self.coordinator.kill()
        self.coordinator.wait()


@dataclass(frozen=True, slots=True)
class Strike:
    """One injection into a study: which trial was struck, and how long its server or the study's rest lasted."""

    trial: int
    seconds: float


def until_gone(record: LaunchRecord) -> float:
    """Seconds until a struck launch is gone; its bound is for the judge to apply."""
    began = time.monotonic()
    alive = [record.guard, *([record.server] if record.server else [])]
    while any(map(is_alive, alive)) and time.monotonic() - began < 3 * WORKER_DEATH_BOUND_S:
        stopping.pause(0.02)
    return time.monotonic() - began


def struck(
    study: Study, injections: int, strike: Callable[[AttemptRecord, LaunchRecord], float | None]
) -> list[Strike]:
    """Strike until there were so many injections; a strike that returns None does not count as one."""
    strikes: list[Strike] = []
    seen: set[int] = set()
    study.start()
    try:
        while len(strikes) < injections:
            attempt, record = study.next_victim(seen)
            stopping.pause(random.uniform(0.0, 0.8))
            seen.add(attempt.trial)
            if (seconds := strike(attempt, record)) is not None:
                strikes.append(Strike(attempt.trial, seconds))
        study.end(seen)
    finally:
        study.stop()
    return strikes


def judge(name: str, study: Study, strikes: list[Strike], bound_s: float) -> list[Judged]:
    """What became of every struck trial; closes the study."""
    verdicts = {strike.trial: study.verdict_of(strike.trial) for strike in strikes}
    study.close()
    runs = study.folder / "runs"
    orphans, held = len(left_behind(study.tag, runs)), ports_held(runs)
    judged = []
    for number, strike in enumerate(strikes):
        said = verdicts[strike.trial]
        judged.append(
            Judged(
                name=name,
                said=said,
                seconds=strike.seconds,
                bound_s=bound_s,
                # What is left at the end cannot be told apart by injection: the first one answers for it.
                orphans=orphans if number == 0 else 0,
                ports_held=held if number == 0 else 0,
                is_right=said == MEASURED,
                where=study.folder,
            )
        )
    return judged
