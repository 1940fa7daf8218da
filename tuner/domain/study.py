"""A study and its attempts, as they are remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured, MetricAt
from tuner.domain.space import Space
from tuner.domain.trial import KnobActivity, LaunchKind, Outcome, Purpose, TrialReport


class StudyState(StrEnum):
    """Where a study is.

    `interrupted` is never stored: the study was being run, and whoever ran it is gone or gives no sign of life.
    """

    CREATED = "created"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class AttemptState(StrEnum):
    """Where one launch is.

    `partial`: measured at its first levels only, since it was beaten already; no failure, and nothing to be compared.
    `abandoned`: its coordinator or worker died; the trial is run again.
    """

    RUNNING = "running"
    MEASURED = "measured"
    PARTIAL = "partial"
    FAILED = "failed"
    ABANDONED = "abandoned"

    @property
    def finished(self) -> bool:
        """Whether the launch ended with an outcome, so that there is something to tell the sampler."""
        return self in (AttemptState.MEASURED, AttemptState.PARTIAL, AttemptState.FAILED)


MAX_NAME_BYTES = 120


def study_name_fault(name: str) -> str | None:
    """Why a new study cannot have this name, or None.

    A study's run directory has its name, messages print it, and commands take it as an argument.
    """
    if not name or name != name.strip():
        return "it is empty, or begins or ends with a blank"
    if name.startswith((".", "-")):
        return f"it begins with {name[0]}"
    if odd := next((c for c in name if c in "/\\" or not c.isprintable()), None):
        return f"it holds {odd!r}"
    if len(name.encode("utf-8")) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    return None


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on something, and until when that is believed without a sign of life.

    Attributes:
        owner: a process, as `host:namespace:pid:start`.
        expires_at: seconds since the epoch.
    """

    owner: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as stored.

    Attributes:
        name: unique within a database.
        space: the validated space.
        space_text: the file, word for word (secrets are hidden when it is stored).
        space_hash: sha256 of the canonical space; resuming with another one is refused.
        overrides: command-line values that override the file.
        sampler: name of the search method.
        seed: base seed.
        simulated: True when an engine of the study is simulated.
        tuner_version: that it was started with.
        created_at: seconds since the epoch.
        state: as stored; see `StudyState`.
        stop_requested: whether somebody asked whoever runs it to stop.
        reason: why it is in this state (stop reason, failure).
    """

    name: str
    space: Space
    space_text: str
    space_hash: str
    sampler: str
    seed: int
    simulated: bool
    tuner_version: str
    created_at: float
    state: StudyState = StudyState.CREATED
    stop_requested: bool = False
    reason: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One launch as stored.

    Attributes:
        id: unique within a database; later launches have larger ones.
        study: name of its study.
        trial: number within the study.
        attempt: 1 for the first launch of its trial.
        run_dir: absolute folder of its files.
        lease_owner: who looks after it, or did; see `Lease`.
        lease_expires_at: until when that is believed (seconds since the epoch).
        started_at: seconds since the epoch, by the coordinator's clock.
        finished_at: the same; None while it runs.
        told: whether the search has heard of it.
        report: what its worker knows; None while it runs, or when it was abandoned.
        block: launches that share one were made in one round, in random order, to be compared with each other.
    """

    id: int
    study: str
    trial: int
    attempt: int
    purpose: Purpose
    candidate: Candidate
    state: AttemptState
    run_dir: str
    lease_owner: str
    lease_expires_at: float
    started_at: float
    finished_at: float | None = None
    told: bool = False
    report: TrialReport | None = None
    block: int | None = None

    @property
    def ran_s(self) -> float:
        """Seconds that it ran: by its worker's report, else for as long as anybody looked after it; 0 while it runs.

        A launch that was interrupted may be found, and given up, long after it ended.
        """
        if self.report is not None:
            return max(0.0, self.report.finished_at - self.report.started_at)
        if self.finished_at is None:
            return 0.0
        return max(0.0, min(self.finished_at, self.lease_expires_at) - self.started_at)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs, or when nobody was left to say."""
        return None if self.report is None else self.report.outcome

    @property
    def measured(self) -> Measured | None:
        """What it measured, where it was measured in full."""
        return self.outcome if isinstance(self.outcome, Measured) else None

    @property
    def activity(self) -> tuple[KnobActivity, ...]:
        """What its server said about its knobs; empty where no server came to say anything."""
        return () if self.report is None else self.report.activity

    def value(self, at: MetricAt) -> float | None:
        """What it measured, in the metric's unit; None when it was not measured in full, or did not measure this."""
        return None if self.measured is None else self.measured.value(at)

    @property
    def simulated(self) -> bool:
        """Whether it measured, and the numbers are a model's."""
        return self.measured is not None and self.measured.simulated

    def was_launched(self, kind: LaunchKind) -> bool:
        """Whether a worker reported that its server was launched so."""
        return self.report is not None and self.report.kind is kind


@dataclass(frozen=True, slots=True)
class Tally:
    """How many trials of a study are where, each by its last launch; abandoned ones are in `trials` alone.

    Attributes:
        trials: all of them.
        beside_budget: those that the user asked for one by one.
        measured: at every load.
        measured_in_part: beaten before their last loads.
        verified: launched to see what their settings do.
        failed: without a measurement.
        running: being launched or measured now.
        interrupted: they never ended, because whoever ran them is gone.
    """

    trials: int
    beside_budget: int
    measured: int
    measured_in_part: int
    verified: int
    failed: int
    running: int
    interrupted: int


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A file that a launch left behind.

    Attributes:
        kind: what it is (`server_log`, `launch_script`, `requests`).
        path: relative to the attempt's run directory.
        sha256: of its content when the attempt was finished, or None when the file could not be read.
        size_bytes: the same.
    """

    kind: str
    path: str
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """An export that was written: which trial, in which format, where, and the hash of the file."""

    study: str
    trial: int
    format: str
    path: str
    sha256: str
    created_at: float
