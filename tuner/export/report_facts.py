"""Tables of what launches left behind: failures, knob activity, output check, machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.front import Standing
from tuner.domain.measurement import Measured
from tuner.domain.outcome import FAILURES, Failure, FailureClass
from tuner.domain.output import Agreement, OutputCheck
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity, TrialReport
from tuner.domain.values import counted

_CONDITIONS = {
    "gpu_clock_mhz": "SM clock (MHz)",
    "gpu_temperature_c": "temperature (°C)",
    "gpu_power_w": "power (W)",
    "gpu_slowed_by": "slowed by",
    "gpu_used_before_mib": "in use before (MiB)",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing's place: `front`, `ablation` or `load`."""

    name: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be shown letter by letter."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; `numbers` are the columns to be set flush right; `empty` is said when there is no row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    empty: str = "nothing"


def failure_table(attempts: Sequence[AttemptRecord]) -> Table:
    """Failures by class: how many, in which phases, one line of evidence, what to do."""
    found: dict[FailureClass, list[tuple[AttemptRecord, Failure]]] = {}
    for attempt in attempts:
        if isinstance(attempt.outcome, Failure):
            found.setdefault(attempt.outcome.failure_class, []).append((attempt, attempt.outcome))
    rows = []
    for kind, failures in sorted(found.items(), key=lambda item: -len(item[1])):
        first = failures[0][1]
        phases = ", ".join(dict.fromkeys(failure.phase.value for _, failure in failures))
        trials = ", ".join(str(trial) for trial in dict.fromkeys(attempt.trial for attempt, _ in failures))
        evidence = first.evidence[0] if first.evidence else first.detail
        rows.append((kind.value, str(len(failures)), phases, trials, evidence, FAILURES[kind].words))
    columns = ("class", "launches", "phase", "trials", "evidence", "what it means, what to do")
    return Table(columns, tuple(rows), numbers=(1,), empty="no launch failed")


def _reports(attempts: Sequence[AttemptRecord], standing: Standing) -> list[TrialReport]:
    """Reports of a configuration's measured launches."""
    return [
        a.report
        for a in attempts
        if a.trial in standing.trials and a.report is not None and isinstance(a.report.outcome, Measured)
    ]


def activity_table(attempts: Sequence[AttemptRecord], finalists: Sequence[Standing]) -> Table:
    """What the running servers said about each finalist's settings, verification launches among them."""
    rows = []
    for standing in finalists:
        same = standing.candidate.fingerprint
        reports = [a.report for a in attempts if a.report is not None and a.candidate.fingerprint == same]
        for item in _worst_activity(reports):
            rows.append((str(standing.trial), item.knob, item.state.value, item.reason))
    return Table(("trial", "knob", "state", "reason"), tuple(rows), empty="no finalist sets a knob")


def _worst_activity(reports: Sequence[TrialReport]) -> Iterator[KnobActivity]:
    """One entry per knob over several launches: inactive before unknown before active."""
    order = [Activity.INACTIVE, Activity.UNKNOWN, Activity.ACTIVE]
    found: dict[str, KnobActivity] = {}
    for item in (item for report in reports for item in report.activity):
        known = found.get(item.knob)
        if known is None or order.index(item.state) < order.index(known.state):
            found[item.knob] = item
    return iter(found.values())


def wrong_answers(attempts: Sequence[AttemptRecord]) -> str:
    """Which trials answered wrongly and so are no part of the result; empty for none."""
    wrong = [
        a.trial
        for a in attempts
        if isinstance(a.outcome, Failure) and a.outcome.failure_class is FailureClass.WRONG_OUTPUT
    ]
    trials = ", ".join(str(trial) for trial in dict.fromkeys(wrong))
    return (
        f"Wrong answers, excluded whatever the speed: {counted(len(wrong), 'launch')} (trials {trials})."
        if wrong
        else ""
    )


def output_table(attempts: Sequence[AttemptRecord], finalists: Sequence[Standing], check: OutputCheck) -> Table:
    """How far each finalist's answers agree with the baseline's: of all its launches the one that agrees least."""
    columns = ("trial", "launches", "same tokens alone", "under load", "drift (nats)", "needed", "own questions")
    if not check.enabled:
        return Table(columns, (), empty="switched off in the space: answers were not checked")
    rows = []
    for standing in finalists:
        outputs = [report.output for report in _reports(attempts, standing) if report.output is not None]
        alone = [output.alone for output in outputs if output.alone is not None]
        loaded = [output.loaded for output in outputs if output.loaded is not None]
        needed = next((o for o in outputs if o.least_share is not None), None)
        tasks = [output.task for output in outputs if output.task is not None]
        rows.append(
            (
                f"{standing.trial}{' (baseline)' if standing.is_baseline else ''}",
                str(len(outputs)),
                _least(alone),
                _least(loaded),
                _most_drift([*alone, *loaded]),
                "–" if needed is None else f"{needed.least_share or 0:.0%}, drift {needed.most_drift or 0:.2f}",
                f"{sum(t.right for t in tasks)} of {sum(t.asked for t in tasks)} right" if tasks else "–",
            )
        )
    return Table(columns, tuple(rows), numbers=(1, 2, 3, 4), empty="no finalist was checked")


def _least(found: Sequence[Agreement]) -> str:
    """The launch that agrees least: `97.0 % of 230`, the tokens that could be compared."""
    worst = min(found, key=lambda agreement: agreement.share, default=None)
    return "reference" if worst is None else f"{worst.share * 100:.1f} % of {worst.compared:,}"


def _most_drift(found: Sequence[Agreement]) -> str:
    drifts = [agreement.drift for agreement in found if agreement.drift is not None]
    return f"{max(drifts):.3f}" if drifts else "–"


def machine_table(attempts: Sequence[AttemptRecord]) -> Table:
    """Fingerprint of the machine and versions; several values where launches differ."""
    facts: dict[str, list[str]] = {}
    for report in (a.report for a in attempts if a.report is not None):
        for name, value in {**report.machine, **_versions(report.versions)}.items():
            if name not in _CONDITIONS:
                facts.setdefault(name, []).append(value)
    rows = [(name.replace("_", " "), " | ".join(dict.fromkeys(values))) for name, values in facts.items()]
    return Table(("fact", "value"), tuple(rows), empty="no launch reported its machine")


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    return {f"version of {name}": value for name, value in versions.items()}


def conditions_table(attempts: Sequence[AttemptRecord], finalists: Sequence[Standing]) -> Table:
    """Clocks, temperature and power while each finalist was measured: one row per launch."""
    rows = []
    for standing in finalists:
        for report in _reports(attempts, standing):
            seen = [report.machine.get(name, "–") for name in _CONDITIONS]
            if any(cell != "–" for cell in seen):
                rows.append((str(standing.trial), *seen))
    empty = "no GPU was watched while measuring"
    return Table(("trial", *_CONDITIONS.values()), tuple(rows), numbers=(1, 2, 3), empty=empty)
