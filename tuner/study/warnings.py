"""What a sceptic should know about a study's result, from what is stored."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from tuner.domain.candidate import Candidate
from tuner.domain.front import DEFAULT_PICK, Front
from tuner.domain.knob import Knob
from tuner.domain.machine import changes, differences, gpu_use_before
from tuner.domain.proof import Confirmation
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import BASELINE_PURPOSES
from tuner.domain.values import Value, counted, same, spell
from tuner.domain.warnings import Caution, WarningCode
from tuner.study.drift import machine_drift
from tuner.study.silence import inactive_knobs
from tuner.study.summary import baselines_of
from tuner.study.warmth import warm_difference
from tuner.trial.conditions import POWER_CAP
from tuner.trial.gpu import SLACK_MIB
from tuner.trial.statistics import pooled_scatter

_NOISY = 0.03
_ENOUGH_LAUNCHES = 3
_ENOUGH_ROUNDS = 2
_DIRTY_MIB = 1024
_STABLE_SHARE = 0.9
_UNDECIDED_NATS = 0.01
_FEW_VALUES = 2


def warnings_of(
    space: Space, attempts: Sequence[AttemptRecord], front: Front, confirmation: Confirmation | None = None
) -> tuple[Caution, ...]:
    """Every warning that the stored data give rise to, the gravest first.

    Args:
        space: of the study.
        attempts: all of its launches.
        front: what they came to.
        confirmation: of the study; without one, the front's default pick is the winner.
    """
    chosen = None if confirmation is None else confirmation.chosen.candidate
    if chosen is None and front.members:
        chosen = front.pick(DEFAULT_PICK).candidate
    measured = [a for a in attempts if a.measured is not None]
    found = [
        *_baseline_failed(space, attempts),
        *_output(space, measured),
        *_machine(measured),
        *_noise(space, measured),
        *machine_drift(space, measured),
        *warm_difference(space, measured),
        *_few_launches(front, confirmation),
        *(() if chosen is None else _winner_at_edge(space, attempts, chosen)),
        *_inactive(attempts, front),
        *_levels(measured),
    ]
    return tuple(found)


def _baseline_failed(space: Space, attempts: Sequence[AttemptRecord]) -> Iterator[Caution]:
    for engine in space.engines:
        launches = [a for a in attempts if a.purpose in BASELINE_PURPOSES and a.candidate.engine == engine]
        ended = [a for a in launches if a.state.finished]
        if ended and not any(a.state is AttemptState.MEASURED for a in ended):
            yield Caution(WarningCode.BASELINE_FAILED, engine, _trials(ended))


def _output(space: Space, measured: Sequence[AttemptRecord]) -> Iterator[Caution]:
    if not space.output_check.enabled:
        yield Caution(WarningCode.OUTPUT_UNCHECKED, "output_check.enabled is off")
        return
    unstable = []
    for attempt in measured:
        output = attempt.report.output if attempt.report is not None else None
        if attempt.purpose in BASELINE_PURPOSES and output is not None:
            shares = [found.share for found in (output.alone, output.loaded) if found is not None]
            if shares and min(shares) < _STABLE_SHARE:
                unstable.append((min(shares), attempt))
    if (gap := _median_gap(measured)) is not None and gap < _UNDECIDED_NATS:
        yield Caution(WarningCode.OUTPUT_UNDECIDED, f"half of the tokens lead by less than {_UNDECIDED_NATS} nats")
    if unstable:
        least = min(share for share, _ in unstable)
        detail = f"only {least:.0%} of its tokens are the same"
        yield Caution(WarningCode.OUTPUT_UNSTABLE, detail, _trials([a for _, a in unstable]))


def _median_gap(measured: Sequence[AttemptRecord]) -> float | None:
    """How far the likeliest token leads the second (nats), over all tokens of the baselines' answers."""
    outputs = [a.report.output for a in measured if a.report is not None and a.report.output is not None]
    rivals = [sorted(top.values()) for output in outputs for answer in output.answers for top in answer.rivals]
    gaps = [values[-1] - values[-2] for values in rivals if len(values) > 1]
    return statistics.median(gaps) if gaps else None


def _machine(measured: Sequence[AttemptRecord]) -> Iterator[Caution]:
    if not measured:
        return
    facts = [(a, a.report.machine) for a in measured if a.report is not None]
    others = [(a, changed) for a in measured if (changed := _other_machine(measured, a))]
    if others:
        names = ", ".join(dict.fromkeys(name for _, changed in others for name in changed))
        yield Caution(WarningCode.OTHER_MACHINE, f"different: {names}", _trials([a for a, _ in others]))
    slowed = [(a, _slow_downs(machine.get("gpu_slowed_by", ""))) for a, machine in facts]
    if any(reasons for _, reasons in slowed):
        told = ", ".join(dict.fromkeys(reason for _, reasons in slowed for reason in reasons))
        yield Caution(WarningCode.THROTTLED, told, _trials([a for a, reasons in slowed if reasons]))
    used = [(a, max(gpu_use_before(machine), default=0)) for a, machine in facts]
    dirty = [(a, mib) for a, mib in used if mib > _DIRTY_MIB + SLACK_MIB]
    if dirty:
        most = max(mib for _, mib in dirty)
        yield Caution(WarningCode.DIRTY_GPU, f"up to {most} MiB", _trials([a for a, _ in dirty]))


def _other_machine(measured: Sequence[AttemptRecord], attempt: AttemptRecord) -> list[str]:
    """What is not as in the study's first launch; libraries and versions not as in the first of the same engine."""
    own = next(a for a in measured if a.candidate.engine == attempt.candidate.engine)
    first = measured[0].report
    before, now = own.report, attempt.report
    if first is None or before is None or now is None:
        return []
    changed = [*differences(first.machine, now.machine, same_engine=False), *differences(before.machine, now.machine)]
    changed += [f"{name} version" for name in changes(before.versions, now.versions)]
    return list(dict.fromkeys(changed))


def _slow_downs(text: str) -> list[str]:
    """Reasons other than the power limit, which is usual under full load."""
    names = [part.split()[0] for part in text.split(", ") if part]
    return [name for name in names if name not in (POWER_CAP, "nothing")]


def _noise(space: Space, measured: Sequence[AttemptRecord]) -> Iterator[Caution]:
    noisy = []
    for goal in space.goals:
        groups: dict[str, list[float]] = {}
        for attempt in measured:
            value = attempt.value(goal.at)
            if value is not None and value > 0:
                groups.setdefault(attempt.candidate.fingerprint, []).append(math.log(value))
        deviation = _pooled_deviation(list(groups.values()))
        if deviation is not None and deviation > _NOISY:
            noisy.append(f"{goal.label}: {deviation:.1%}")
    if noisy:
        yield Caution(WarningCode.NOISY, ", ".join(noisy))


def _pooled_deviation(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of logarithms from launch to launch, over all configurations launched more than once."""
    found, df = pooled_scatter(groups)
    return math.sqrt(found) if df >= _FEW_VALUES else None


def _few_launches(front: Front, confirmation: Confirmation | None) -> Iterator[Caution]:
    """What was compared in rounds has intervals of its own that tell how much so few launches can show."""
    arms = () if confirmation is None else confirmation.arms
    compared = {arm.candidate.fingerprint for arm in arms if arm.launches >= _ENOUGH_ROUNDS}
    few = [
        standing
        for standing in front.members
        if min((value.launches for value in standing.values), default=_ENOUGH_LAUNCHES) < _ENOUGH_LAUNCHES
        and standing.candidate.fingerprint not in compared
    ]
    if few:
        detail = f"{len(few)} of {len(front.members)}"
        yield Caution(WarningCode.TOO_FEW_LAUNCHES, detail, tuple(s.trial for s in few))


def _winner_at_edge(space: Space, attempts: Sequence[AttemptRecord], winner: Candidate) -> Iterator[Caution]:
    """Ordered knobs that the winner moved to the first or last of their values."""
    baseline = baselines_of(attempts).get(winner.engine)
    if baseline is None:
        return
    knobs = space.knobs_of(winner.engine)
    moved = {name: now for name, (_, now) in winner.differs_from(baseline).items() if name in knobs}
    edges = [f"{name}={spell(now)}" for name, now in moved.items() if _is_edge(knobs[name], now)]
    if edges:
        trial = min(a.trial for a in attempts if a.candidate.fingerprint == winner.fingerprint)
        yield Caution(WarningCode.WINNER_AT_EDGE, ", ".join(edges), (trial,))


def _is_edge(knob: Knob, value: Value) -> bool:
    points = [point for point in knob.grid if point is not None]
    if not knob.ordinal or len(points) <= _FEW_VALUES or value is None:
        return False
    return same(value, points[0]) or same(value, points[-1])


def _inactive(attempts: Sequence[AttemptRecord], front: Front) -> Iterator[Caution]:
    """What does nothing in a configuration on the front, by any of its launches; verification launches count."""
    launches: dict[str, list[AttemptRecord]] = {}
    for attempt in attempts:
        launches.setdefault(attempt.candidate.fingerprint, []).append(attempt)
    seen: dict[tuple[str, str], list[int]] = {}
    for standing in front.members:
        own = launches[standing.candidate.fingerprint]
        for item in inactive_knobs(own, standing.candidate).items():
            seen.setdefault(item, []).append(standing.trial)
    for (knob, reason), trials in seen.items():
        yield Caution(WarningCode.INACTIVE_KNOB, f"{knob}: {reason}", tuple(sorted(trials)))


def _levels(measured: Sequence[AttemptRecord]) -> Iterator[Caution]:
    """What was seen at single loads, summed up over launches."""
    seen: dict[WarningCode, dict[str, list[AttemptRecord]]] = {}
    known = set(WarningCode)
    for attempt in measured:
        for level in attempt.measured.levels if attempt.measured is not None else ():
            for code in level.warnings:
                # A database may hold codes of another version.
                if code in known:
                    seen.setdefault(WarningCode(code), {}).setdefault(str(level.load), []).append(attempt)
    for code, places in seen.items():
        told = ", ".join(
            f"{where} in {len(launches)} of {counted(len(measured), 'launch')}" for where, launches in places.items()
        )
        yield Caution(code, told, _trials([a for launches in places.values() for a in launches]))


def _trials(attempts: Sequence[AttemptRecord]) -> tuple[int, ...]:
    return tuple(sorted({attempt.trial for attempt in attempts}))
