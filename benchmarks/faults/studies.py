"""Faults of our own side, injected into whole studies: coordinator, worker or node killed, database away.

One study per fault. Each injection strikes while a trial of the study runs, a trial that was not struck before. At the
end every trial must be there with a verdict: a struck one is launched again, by the study or by `tuner study resume`.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

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
_PATIENCE_S = 180.0
_OUTAGE_S = 5.0
_DATABASE_BOUND_S = 60.0
_SPARE_TRIALS = 2
_SPACE = """
name: faults
model: sim/kimi
engines:
  simulated:
    flags: {{--time-scale: 50}}
    env: {{{tag}: {value}}}
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
    """One study that runs through the command line, and its database."""

    folder: Path
    storage: str
    trials: int
    cluster: Cluster | None = None
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    _process: subprocess.Popen[bytes] | None = None
    _store: Store | None = None

    def start(self) -> None:
        """`tuner study start` in a process of its own."""
        space = self.folder / "space.yaml"
        space.write_text(_SPACE.format(tag=TAG, value=self.tag))
        self._run("start", "--space", str(space), "--name", "faults", "--trials", str(self.trials), "--yes")

    def resume(self) -> None:
        """`tuner study resume` in a process of its own."""
        self._run("resume", "faults")

    def _run(self, *arguments: str) -> None:
        address = ("--ray-address", self.cluster.address) if self.cluster else ()
        environment = CLUSTER_ENVIRONMENT if self.cluster else {}
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
            time.sleep(0.2)
        raise RuntimeError(f"no trial ran for {_PATIENCE_S:.0f} s: see {self.folder / 'coordinator.log'}")

    def end(self) -> None:
        """Wait for the study's end, and make sure of it."""
        try:
            self.coordinator.wait(_PATIENCE_S * 4)
        except subprocess.TimeoutExpired:
            self.kill()

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()

    def kill(self) -> None:
        """SIGKILL to the coordinator."""
        self.coordinator.kill()
        self.coordinator.wait()


@dataclass(frozen=True, slots=True)
class Strike:
    """One injection into a study: which trial was struck, and how long its server or the study's rest lasted."""

    trial: int
    seconds: float


def _until_gone(record: LaunchRecord) -> float:
    """Seconds until a struck launch is gone; its bound is for the judge to apply."""
    began = time.monotonic()
    alive = [record.guard, *([record.server] if record.server else [])]
    while any(map(is_alive, alive)) and time.monotonic() - began < 3 * WORKER_DEATH_BOUND_S:
        time.sleep(0.02)
    return time.monotonic() - began


def _strikes(study: Study, injections: int, strike: Callable[[LaunchRecord], float | None]) -> list[Strike]:
    """Strike until there were so many injections; a strike that returns None does not count as one."""
    strikes: list[Strike] = []
    struck: set[int] = set()
    study.start()
    try:
        while len(strikes) < injections:
            attempt, record = study.next_victim(struck)
            time.sleep(random.uniform(0.0, 0.8))
            struck.add(attempt.trial)
            if (seconds := strike(record)) is not None:
                strikes.append(Strike(attempt.trial, seconds))
        study.end()
    finally:
        if study.coordinator.poll() is None:
            study.kill()
    return strikes


def coordinator_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to `tuner study`, then `tuner study resume`."""
    study = Study(folder, f"sqlite:///{folder / 'tuner.db'}", injections + _SPARE_TRIALS)

    def strike(record: LaunchRecord) -> float:
        study.kill()
        seconds = _until_gone(record)
        study.resume()
        return seconds

    return _judge("coordinator_killed", study, _strikes(study, injections, strike), WORKER_DEATH_BOUND_S)


def ray_worker_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to the Ray worker that runs the trial."""
    study = Study(folder, f"sqlite:///{folder / 'tuner.db'}", injections + _SPARE_TRIALS)

    def strike(record: LaunchRecord) -> float:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.worker.pid, signal.SIGKILL)
        return _until_gone(record)

    return _judge("ray_worker_killed", study, _strikes(study, injections, strike), WORKER_DEATH_BOUND_S)


def node_killed(folder: Path, injections: int) -> list[Judged]:
    """SIGKILL to a whole Ray node of a cluster on this machine, which then gets a new one."""
    with Cluster(folder) as cluster:
        study = Study(folder, f"sqlite:///{folder / 'tuner.db'}", 2 * injections + _SPARE_TRIALS, cluster)

        def strike(record: LaunchRecord) -> float | None:
            if not cluster.hosts(record.worker.pid):
                # Ray chose the coordinator's own node: have it choose again.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.worker.pid, signal.SIGKILL)
                return None
            cluster.kill_node_of(record.worker.pid)
            seconds = _until_gone(record)
            cluster.add_node()
            return seconds

        strikes = _strikes(study, injections, strike)
    return _judge("node_killed", study, strikes, WORKER_DEATH_BOUND_S)


def database_down(folder: Path, injections: int) -> list[Judged]:
    """PostgreSQL is stopped while a trial runs, and comes back; the last time it is away for a minute."""
    sys.path.insert(0, str(_ROOT / "tests"))
    from support.postgres import PostgresServer

    server = PostgresServer(folder / "postgres")
    server.start()
    try:
        study = Study(folder, server.url(), injections + _SPARE_TRIALS)
        outages = iter([*[_OUTAGE_S] * (injections - 1), 60.0])

        def strike(_record: LaunchRecord) -> float:
            before = len(study.attempts())
            server.stop()
            time.sleep(next(outages))
            server.start()
            began = time.monotonic()
            while len(study.attempts()) <= before and study.coordinator.poll() is None:
                time.sleep(0.1)
            return time.monotonic() - began

        return _judge("database_down", study, _strikes(study, injections, strike), _DATABASE_BOUND_S)
    finally:
        server.stop()


STUDY_FAULTS: dict[str, Callable[[Path, int], list[Judged]]] = {
    "coordinator_killed": coordinator_killed,
    "ray_worker_killed": ray_worker_killed,
    "node_killed": node_killed,
    "database_down": database_down,
}


def _judge(name: str, study: Study, strikes: list[Strike], bound_s: float) -> list[Judged]:
    attempts = study.attempts()
    study.close()
    runs = study.folder / "runs"
    orphans, held = len(left_behind(study.tag, runs)), ports_held(runs)
    judged = []
    for number, strike in enumerate(strikes):
        said = _verdict(attempts, strike.trial)
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


def _verdict(attempts: list[AttemptRecord], trial: int) -> str:
    """What the study knows about a trial in the end: empty if it was lost."""
    own = [attempt for attempt in attempts if attempt.trial == trial]
    if any(attempt.state is AttemptState.MEASURED and attempt.told for attempt in own):
        return MEASURED
    failed = [attempt for attempt in own if attempt.state is AttemptState.FAILED and attempt.told]
    return str(failed[-1].report.outcome.failure_class) if failed else ""  # type: ignore[union-attr]
