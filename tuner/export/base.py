"""What is exported: a launch plan with its provenance. Whatever the format, it says where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tuner.domain.front import Estimate, Front, Gain, Standing, gain_over
from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import SpreadKind
from tuner.domain.proof import ArmResult, Confirmation
from tuner.domain.recorded import Recorded, RecordedNumber
from tuner.domain.space import Objective
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord
from tuner.domain.values import Value, counted, readable
from tuner.domain.workload import Workload
from tuner.engines.definition import load_definition
from tuner.errors import StudyError
from tuner.export.standings import front_of


@dataclass(frozen=True, slots=True)
class Number:
    """One measured objective.

    Attributes:
        goal: which.
        estimate: over launches.
        gain: over the baseline.
        confirmed: whether both are from the confirmation's launches alone. Those of the search were chosen for being
            good, and promise too much.
    """

    goal: Objective
    estimate: Estimate
    gain: Gain | None
    confirmed: bool = False

    def __str__(self) -> str:
        """`output_tok_s at C=128: 2320 tok/s, 95 % interval 2308–2332 within one launch, +12.1 % over the baseline`."""
        value = self.estimate
        text = f"{self.goal.at}: {readable(value.center)} {self.goal.metric.unit}"
        if value.low is not None and value.high is not None:
            text += f", 95 % interval {readable(value.low)}–{readable(value.high)} {_SPREAD_WORDS[value.spread_kind]}"
        text += f", n={counted(value.launches, 'launch')}"
        if self.confirmed:
            text += " of the confirmation"
        if self.gain is not None:
            text += f", {(self.gain.ratio - 1) * 100:+.1f} % against the baseline"
        return text


_SPREAD_WORDS = {
    SpreadKind.WITHIN_LAUNCH: "within a launch",
    SpreadKind.BETWEEN_LAUNCHES: "from launch to launch",
    SpreadKind.NONE: "of unknown origin",
}


@dataclass(frozen=True, slots=True)
class Export:
    """A launch plan written out with provenance.

    Attributes:
        study: study name.
        trial: trial number.
        fingerprint: identity of the configuration across studies.
        plan: how the server was started; secrets are hidden in it.
        program: how many leading items of `plan.argv` are the program, before the engine's own flags.
        settings: knob → value, unset ones included.
        changes: knob → (baseline's value, own value).
        numbers: the objectives.
        broken: limits that the configuration breaks.
        versions: engine, driver, CUDA, NCCL … as found on the node.
        machine: facts of the node.
        measured_at: seconds since the epoch.
        tuner_version: of the coordinator.
        simulated: True when no real engine was measured.
        workload: what was sent.
    """

    study: str
    trial: int
    fingerprint: str
    plan: LaunchPlan
    program: int
    settings: Mapping[str, Value]
    changes: Mapping[str, tuple[Value, Value]]
    numbers: tuple[Number, ...]
    broken: tuple[str, ...]
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    measured_at: float
    tuner_version: str
    simulated: bool
    workload: Workload = field(default_factory=Workload)

    @property
    def recorded(self) -> Recorded:
        """The measurement as a script remembers it."""
        return Recorded(
            study=self.study,
            trial=self.trial,
            engine=self.plan.engine,
            program=self.plan.argv[: self.program],
            model=self.plan.model,
            gpus=len(self.plan.gpus),
            simulated=self.simulated,
            workload=self.workload,
            numbers=tuple(
                RecordedNumber(
                    metric=number.goal.metric,
                    level=number.goal.level,
                    rate=number.goal.rate,
                    center=number.estimate.center,
                    low=number.estimate.low,
                    high=number.estimate.high,
                    launches=number.estimate.launches,
                )
                for number in self.numbers
            ),
            machine=self.machine,
            versions=self.versions,
        )

    @property
    def measured_on(self) -> str:
        """The moment of the measurement, ISO 8601 in UTC."""
        return datetime.fromtimestamp(self.measured_at, UTC).isoformat(timespec="seconds")


def export_of(
    study: StudyRecord, attempts: Sequence[AttemptRecord], rule: str, confirmation: Confirmation | None = None
) -> Export:
    """Pick a configuration of a study and gather what its export says.

    Args:
        study: the study.
        attempts: all of its launches.
        rule: see `Front.pick`.
        confirmation: of the study; a configuration that took part is exported with the numbers found there.

    Raises:
        StudyError: no such rule or trial, or it left no launch plan.
        NothingFeasible: the front is empty.
    """
    front = front_of(study.space, attempts)
    return export_from(front, front.pick(rule), study, attempts, confirmation)


def numbers_of(front: Front, chosen: Standing, confirmation: Confirmation | None) -> tuple[Number, ...]:
    """The objectives of a configuration: from the confirmation where it took part, else from all of its launches.

    Gains are over the front's baseline, which is the first engine's.
    """
    if confirmation is not None and (confirmed := _confirmed(front, chosen, confirmation)):
        return confirmed
    # The baseline is no gain over itself.
    gains = (None,) * len(front.goals) if chosen.is_baseline else front.gains(chosen)
    return tuple(Number(*found) for found in zip(front.goals, chosen.values, gains, strict=True))


def _confirmed(front: Front, chosen: Standing, confirmation: Confirmation) -> tuple[Number, ...]:
    """None of them unless every objective was measured."""
    arm = confirmation.arm_of(chosen.candidate)
    if arm is None or None in arm.values:
        return ()
    base = None if front.baseline is None else confirmation.arm_of(front.baseline.candidate)
    of_first = base is None or base.candidate.engine == arm.candidate.engine
    gains = _effects_as_gains(front, arm) if of_first else _gains_over(base, arm)
    return tuple(
        Number(goal, value, gain, confirmed=True)
        for goal, value, gain in zip(front.goals, arm.values, gains, strict=True)
        if value is not None
    )


def _effects_as_gains(front: Front, arm: ArmResult) -> list[Gain | None]:
    """What the rounds show of an arm against the baseline of its own engine."""
    gains = {
        effect.objective: Gain(
            1 + effect.change,
            None if effect.low is None else 1 + effect.low,
            None if effect.high is None else 1 + effect.high,
        )
        for effect in arm.effects
        if effect.change is not None
    }
    return [gains.get(goal.label) for goal in front.goals]


def _gains_over(base: ArmResult | None, arm: ArmResult) -> list[Gain | None]:
    """An arm against the baseline of another engine; effects are told of its own alone."""
    if base is None:
        return [None] * len(arm.values)
    pairs = zip(arm.values, base.values, strict=True)
    return [None if own is None or other is None else gain_over(own, other) for own, other in pairs]


def export_from(
    front: Front,
    chosen: Standing,
    study: StudyRecord,
    attempts: Sequence[AttemptRecord],
    confirmation: Confirmation | None,
) -> Export:
    """The same for a configuration that was picked from the study's front.

    Raises:
        StudyError: it left no launch plan.
    """
    launches = [a for a in attempts if a.trial in chosen.trials and a.state is AttemptState.MEASURED]
    last = launches[-1]
    assert last.report is not None
    if last.report.plan is None:
        raise StudyError(f"trial {chosen.trial} of study {study.name} left no launch plan")
    definition = load_definition(chosen.candidate.engine)
    given = study.space.engines[chosen.candidate.engine].command
    baseline = front.baseline.candidate if front.baseline is not None else chosen.candidate
    return Export(
        study=study.name,
        trial=chosen.trial,
        fingerprint=chosen.candidate.fingerprint,
        plan=last.report.plan,
        program=len(definition.program(given)),
        settings=chosen.candidate.values,
        changes=chosen.candidate.differs_from(baseline),
        numbers=numbers_of(front, chosen, confirmation),
        broken=tuple(chosen.broken),
        versions=last.report.versions,
        machine=last.report.machine,
        measured_at=last.report.finished_at,
        tuner_version=study.tuner_version,
        simulated=chosen.simulated,
        workload=study.space.workload,
    )
