"""What goes to a worker and what comes back: plain data, so that it can cross processes and machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart, MetricAt, value_at
from tuner.domain.outcome import Failure, Phase
from tuner.domain.output import OutputReference, OutputReport
from tuner.domain.space import Space
from tuner.domain.workload import Workload

Outcome = Measured | MeasuredInPart | Failure
"""How one launch ended; a Failure never carries a number to be compared."""


class Purpose(StrEnum):
    """Why a launch happens. `second_chance`: a value that was set aside after failures is tried once more."""

    BASELINE = "baseline"
    SEARCH = "search"
    SENTINEL = "sentinel"
    SECOND_CHANCE = "second_chance"
    CONFIRM = "confirm"
    ABLATE = "ablate"
    VERIFY = "verify"

    @property
    def is_beside_the_budget(self) -> bool:
        """Whether the user asks for such launches one by one, so that they cost a study's budget nothing."""
        return self in (Purpose.ABLATE, Purpose.VERIFY)


BASELINE_PURPOSES = frozenset({Purpose.BASELINE, Purpose.SENTINEL})
"""Launches of a baseline that a search makes to compare with."""


@dataclass(frozen=True, slots=True)
class CutoffBound:
    """One bound of a `Cutoff`: a value on the worse side of it is beaten, at it is not."""

    at: MetricAt
    value: float


@dataclass(frozen=True, slots=True)
class Cutoff:
    """When a launch is beaten already, whatever its remaining loads will show: all bounds missed, noise allowed for.

    Attributes:
        rival: the earlier trial whose configuration beats it.
        bounds: of one or more objectives that are measured before the last load.
    """

    rival: int
    bounds: tuple[CutoffBound, ...]

    def beats(self, levels: Sequence[LevelResult]) -> bool:
        """Whether what was measured so far misses every bound; what was not measured yet misses none."""
        found = [(bound, value_at(levels, bound.at)) for bound in self.bounds]
        return bool(found) and all(value is not None and _is_worse(bound, value) for bound, value in found)


def _is_worse(bound: CutoffBound, value: float) -> bool:
    return value < bound.value if bound.at.metric.higher_is_better else value > bound.value


class LaunchKind(StrEnum):
    """How a server came to life: as its user starts it, or forked from a process that holds the engine's imports."""

    PLAIN = "plain"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """One launch to be done.

    Attributes:
        study: study name.
        trial: trial number within the study.
        attempt: 1 for the first launch of this trial, 2 for a retry …
        purpose: why.
        candidate: what to launch.
        space: where it comes from (engine, fixed flags, model).
        workload: what to send.
        run_dir: absolute directory for launch.sh, server.log, raw request data.
        gpus: how many GPUs the server needs; the worker fills in which.
        seed: for prompts; differs per attempt.
        phase_limits: kind of launch → phase → seconds, where the study has learned them; others follow the space's
            budget. Both kinds, since only the worker knows which one a launch becomes.
        gpu_use: host → GPU → MiB that were in use there before the study's launches so far.
        reference: the baseline's answers; None before its first launch.
        warm: fork the server from a process with the engine's imports where that changes nothing (`trial/warm.py`).
        cutoffs: any of them, met after a load, ends the measurement.
    """

    study: str
    trial: int
    attempt: int
    purpose: Purpose
    candidate: Candidate
    space: Space
    workload: Workload
    run_dir: str
    gpus: int = 0
    seed: int = 0
    phase_limits: Mapping[LaunchKind, Mapping[Phase, float]] = field(default_factory=dict)
    gpu_use: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    reference: OutputReference | None = None
    warm: bool = False
    cutoffs: tuple[Cutoff, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """Something worth showing while a trial runs.

    Attributes:
        at: seconds since the epoch.
        phase: where the trial is.
        text: one short line, e.g. `C=32 run 1: 40/64 requests, 1203 tok/s`.
    """

    at: float
    phase: Phase
    text: str = ""


class Activity(StrEnum):
    """Whether a setting that was asked for took effect."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KnobActivity:
    """What the running server says about one knob.

    Attributes:
        knob: knob name.
        state: whether its setting took effect.
        reason: why that is believed; empty where the server simply reports the value.
        rests_on: other knobs whose values alone decide it, whatever value this knob has; empty when nothing does, None
            when that is not known.
    """

    knob: str
    state: Activity
    reason: str = ""
    rests_on: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Everything a worker knows after one launch.

    Attributes:
        outcome: measured, measured in part, or failed.
        plan: how the server was started; None if it never came to that.
        phase_seconds: how long each phase lasted, in order.
        activity: what became of each knob.
        versions: engine, driver, CUDA, NCCL … as found.
        machine: fingerprint facts of the node.
        artifacts: paths under the run directory, by kind (`server_log`, `launch_script`, `requests`).
        started_at: seconds since the epoch (wall clock of the node).
        finished_at: the same.
        notes: what else is worth telling.
        output: what the output check found; None where it was off, or the launch failed before it.
        kind: how the server was launched.
    """

    outcome: Outcome
    plan: LaunchPlan | None
    phase_seconds: Mapping[Phase, float] = field(default_factory=dict)
    activity: tuple[KnobActivity, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    finished_at: float = 0.0
    notes: tuple[str, ...] = ()
    output: OutputReport | None = None
    kind: LaunchKind = LaunchKind.PLAIN
