"""What earlier studies may teach a new one: which fit, how far each is to be believed, and what they saw.

Their launches become hints of the search: ratios to the baseline there, with a doubt that grows with every difference
between the studies, and failures by a candidate's own fault. They are never trials of the new study.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tuner.domain.candidate import Candidate
from tuner.domain.machine import differences
from tuner.domain.measurement import Measured, MetricAt
from tuner.domain.outcome import FAILURES, Failure
from tuner.domain.space import Objective, Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import TrialReport
from tuner.domain.values import counted, spell
from tuner.errors import StudyError
from tuner.search.base import PriorObservation
from tuner.store import Store
from tuner.study.options import WARM_START
from tuner.study.preparing import Prepared
from tuner.study.summary import baselines_of
from tuner.trial.baseline_levels import BaselineLevels, wanted_metrics

_DOUBT = 0.03
"""Standard deviation of a gain from one study to the next where nothing differs: launch noise of both baselines."""

_DOUBTS: Mapping[str, float] = {
    "version": 0.05,
    "baseline": 0.05,
    "workload": 0.05,
    "machine": 0.05,
    "model": 0.10,
    "gpus": 0.10,
}
"""What differs → the doubt that it adds; doubts add as variances do."""

_TRUST = 0.9
_TRUST_LOST = 0.5
"""A failure of an earlier study counts nearly like one here; half as much for each of another version or model."""

_MOST = 120
"""Hints of measured launches in all: the models' cost grows with them, and the best and newest tell most."""

_SAME_LOAD = ("input_tokens", "output_tokens", "input_lengths", "output_lengths", "shape", "api")
_SAME_ARRIVALS = ("arrivals", "rate_seconds")
"""Queues grow with the spacing of arrivals and with time: both matter where something is asked at a rate."""


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """An earlier study as evidence for a new one.

    Attributes:
        name: of the study.
        hints: what it has to say.
        differs: what is different there, in words; each thing adds doubt.
        doubt: how far a gain seen there may be off here (standard deviation, as a share).
        obstacle: why it has nothing to say here; empty when it has.
    """

    name: str
    hints: tuple[PriorObservation, ...]
    differs: tuple[str, ...]
    doubt: float
    obstacle: str = ""

    @property
    def failures(self) -> int:
        """How many of its hints are failures."""
        return sum(hint.failure is not None for hint in self.hints)

    @property
    def measured(self) -> int:
        """How many of its hints are measured configurations."""
        return len(self.hints) - self.failures

    def __str__(self) -> str:
        why = f"; different there: {', '.join(self.differs)}" if self.differs else ""
        known = f"{counted(self.measured, 'configuration')}, {counted(self.failures, 'failure')}"
        return f"{self.name}: {known}, a gain there may be off by {self.doubt:.0%} here{why}"


def warm_start_names(record: StudyRecord) -> tuple[str, ...]:
    """The earlier studies that teach this one."""
    return tuple(json.loads(record.overrides.get(WARM_START, "[]")))


@dataclass(frozen=True, slots=True)
class Teachers:
    """Earlier studies that teach a new one because it names them, and others that could."""

    named: tuple[EarlierStudy, ...] = ()
    offered: tuple[EarlierStudy, ...] = ()


def teachers_of(store: Store, prepared: Prepared) -> Teachers:
    """The studies that a new one names, and the others that fit it, the least doubted first.

    Raises:
        StudyError: there is no study of a name given, or it has nothing to say here.
    """
    names = warm_start_names(prepared.record)
    named = [weigh(store.study(name), store.attempts(name), prepared) for name in names]
    for earlier in named:
        if earlier.obstacle:
            raise StudyError(
                f"study {earlier.name} cannot warm-start this one: {earlier.obstacle}", hint="leave out --warm-start"
            )
    others = [r for r in store.studies() if r.name not in (prepared.record.name, *names)]
    weighed = [weigh(record, store.attempts(record.name), prepared) for record in others]
    fitting = sorted((e for e in weighed if not e.obstacle), key=lambda e: (e.doubt, -e.measured))
    return Teachers(tuple(named), tuple(fitting))


def hints_for(store: Store, prepared: Prepared) -> tuple[PriorObservation, ...]:
    """What the search of a study is told of earlier ones, as they were when the study began.

    A study that was deleted since is silently missing: nothing that was decided with it is taken back.
    """
    known = {record.name for record in store.studies()}
    hints: list[PriorObservation] = []
    for name in warm_start_names(prepared.record):
        if name in known:
            hints += weigh(store.study(name), store.attempts(name), prepared).hints
    return tuple(_most_telling(hints, prepared.record.space.goals))


def weigh(record: StudyRecord, attempts: Sequence[AttemptRecord], prepared: Prepared) -> EarlierStudy:
    """What one earlier study has to say about a new one, and how far that is to be believed."""
    new = prepared.record
    attempts = [a for a in attempts if (a.finished_at or math.inf) <= new.created_at]
    reports = [a.report for a in attempts if a.report is not None and isinstance(a.report.outcome, Measured)]
    if obstacle := _obstacle(record, reports, prepared):
        return EarlierStudy(record.name, (), (), 0.0, obstacle)
    differs = dict(_differences(record, attempts, reports, prepared))
    doubt = math.sqrt(_DOUBT**2 + sum(_DOUBTS[kind] ** 2 for kind in differs))
    trust = _TRUST * math.prod(_TRUST_LOST for kind in differs if kind in ("version", "model"))
    hints = tuple(_hints(record, attempts, new.space, prepared.baselines, doubt, trust))
    measured = any(hint.failure is None for hint in hints)
    obstacle = "" if measured else "none of its measured configurations is one of this space"
    return EarlierStudy(record.name, hints, tuple(differs.values()), doubt, obstacle)


def _obstacle(record: StudyRecord, reports: Sequence[TrialReport], prepared: Prepared) -> str:
    """Why nothing of a study may be used, or an empty text."""
    new = prepared.record
    if not reports:
        return "it measured nothing"
    if record.simulated != new.simulated:
        return "one of the two is simulated"
    if not set(record.space.engines) & set(new.space.engines):
        return f"it has other engines ({', '.join(record.space.engines)})"
    if not new.simulated and bool(record.space.hardware.gpus) != bool(new.space.hardware.gpus):
        return "one of the two uses no GPU"
    # A simulated engine's numbers come from a model, whatever the machine.
    known = not (new.simulated or prepared.elsewhere)
    changed = differences(_hardware(reports[-1]), prepared.machine.summary()) if known else {}
    if changed:
        told = "; ".join(f"{fact}: {then} there, {here} here" for fact, (then, here) in changed.items())
        return f"it was measured on another machine ({told})"
    return ""


def _hardware(report: TrialReport) -> Mapping[str, str]:
    """Facts of the machine alone: the model has its own doubt."""
    return {name: value for name, value in report.machine.items() if name != "model_config"}


def _differences(
    record: StudyRecord, attempts: Sequence[AttemptRecord], reports: Sequence[TrialReport], prepared: Prepared
) -> Iterator[tuple[str, str]]:
    """Kind of a difference that does not forbid the comparison → in words."""
    new = prepared.record
    if prepared.elsewhere and not new.simulated:
        yield "machine", "perhaps the machine: that of the new trials is not known here"
    if record.space.model != new.space.model:
        yield "model", f"model {record.space.model}"
    gpus = record.space.hardware.gpus
    if gpus != new.space.hardware.gpus and not new.simulated:
        yield "gpus", f"{counted(gpus, 'GPU')} a launch"
    for engine, setup in prepared.setups.items():
        then = next((r.versions[engine] for r in reversed(reports) if engine in r.versions), None)
        if then is not None and setup.installed.version not in (None, then):
            yield "version", f"{engine} {then}"
    before, now = record.space.workload, new.space.workload
    wants_rates = any(at.load.rate is not None for at in wanted_metrics(new.space))
    alike = (*_SAME_LOAD, *(_SAME_ARRIVALS if wants_rates else ()))
    if any(getattr(before, name) != getattr(now, name) for name in alike):
        yield "workload", "the workload"
    starts = baselines_of(attempts)
    if any(_here(new.space, starts[e], starts[e]) != b for e, b in prepared.baselines.items() if e in starts):
        yield "baseline", "the baseline"


def _here(space: Space, candidate: Candidate, start: Candidate) -> Candidate | None:
    """An earlier candidate as one of this space; None where it set something that this space cannot say.

    Knobs that this space does not have must stand where the earlier baseline had them.
    """
    knobs = space.knobs_of(candidate.engine)
    for name, value in candidate.values.items():
        known = knobs.get(name)
        if known is None and spell(value) != spell(start.values.get(name)):
            return None
        if known is not None and value is not None and not known.allows(value) and value != known.default:
            return None
    mine = Candidate.of(space, candidate.engine, {n: v for n, v in candidate.values.items() if n in knobs})
    return None if any(space.broken_rules(mine.engine, mine.values)) else mine


def _hints(
    record: StudyRecord,
    attempts: Sequence[AttemptRecord],
    space: Space,
    baselines: Mapping[str, Candidate],
    doubt: float,
    trust: float,
) -> Iterator[PriorObservation]:
    """One hint per configuration that was measured, and one per trial that failed by its own fault."""
    starts = baselines_of(attempts)
    last = {a.trial: a for a in attempts if a.state.finished and a.report is not None}
    groups: dict[str, list[AttemptRecord]] = {}
    for attempt in last.values():
        start = starts.get(attempt.candidate.engine)
        mine = _here(space, attempt.candidate, start) if start is not None and start.engine in baselines else None
        outcome = attempt.outcome
        if mine is None:
            continue
        if isinstance(outcome, Measured):
            groups.setdefault(mine.fingerprint, []).append(attempt)
        elif isinstance(outcome, Failure) and FAILURES[outcome.failure_class].teaches_sampler:
            yield PriorObservation(
                mine,
                (None,) * len(space.goals),
                doubt=doubt,
                failure=outcome.failure_class,
                trust=trust,
                seconds=attempt.ran_s,
                study=record.name,
                trial=attempt.trial,
            )
    levels = BaselineLevels(record.space, attempts)
    for group in groups.values():
        engine = group[0].candidate.engine
        start = starts[engine]
        at_start = _medians(space, _reference(groups, baselines[engine], attempts, start), levels)
        mine = _here(space, group[0].candidate, start)
        found = _medians(space, group, levels)
        ats = [goal.at for goal in space.goals]
        ratios = tuple(found[at] / at_start[at] if at in found and at_start.get(at) else None for at in ats)
        if mine is not None and any(ratio is not None for ratio in ratios):
            yield PriorObservation(
                mine, ratios, doubt=doubt, seconds=group[-1].ran_s, study=record.name, trial=group[0].trial
            )


def _reference(
    groups: Mapping[str, Sequence[AttemptRecord]],
    baseline: Candidate,
    attempts: Sequence[AttemptRecord],
    start: Candidate,
) -> Sequence[AttemptRecord]:
    """What gains are reckoned from: this study's baseline where it was measured there, else the baseline there."""
    same = groups.get(baseline.fingerprint)
    return same or [a for a in attempts if a.candidate.fingerprint == start.fingerprint]


def _medians(space: Space, attempts: Sequence[AttemptRecord], levels: BaselineLevels) -> dict[MetricAt, float]:
    """Where the machine drifted meanwhile, of what each launch would have measured at the end."""
    medians = {}
    for at in wanted_metrics(space):
        values = [
            levels.now(at, value, a.started_at)
            for a in attempts
            if (value := a.value(at)) is not None and 0 < value < math.inf
        ]
        if values:
            medians[at] = statistics.median(values)
    return medians


def _most_telling(hints: Sequence[PriorObservation], goals: Sequence[Objective]) -> list[PriorObservation]:
    """All failures, and of the measured ones as many as the models can take: the best of each objective, in turn."""
    failures = [hint for hint in hints if hint.failure is not None]
    measured = [hint for hint in hints if hint.failure is None]
    if len(measured) <= _MOST:
        return [*measured, *failures]

    def worth(hint: PriorObservation, k: int) -> float:
        ratio = hint.ratios[k]
        return -math.inf if ratio is None else ratio if goals[k].maximize else -ratio

    ranked = [sorted(measured, key=partial(worth, k=k), reverse=True) for k in range(len(goals))]
    in_turn = {id(hint): hint for turn in zip(*ranked, strict=True) for hint in turn}
    return [*list(in_turn.values())[:_MOST], *failures]
