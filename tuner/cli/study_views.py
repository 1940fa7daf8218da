"""What `tuner study list|status|trials|show` print: tables for people, documents for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.table import Table

from tuner.cli.output import console, out, print_json
from tuner.cli.probe_view import probe_document
from tuner.cli.stale import print_stale, stale_exports
from tuner.cli.wording import SIMULATED, changes, level_document, measurement_document, number, with_spread
from tuner.domain.front import OF_ITS_TIME
from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart
from tuner.domain.outcome import FAILURES, Failure
from tuner.domain.study import StudyRecord, StudyState, Tally
from tuner.domain.values import spell
from tuner.errors import StudyError
from tuner.probe.advice import advice
from tuner.store import Store
from tuner.study.looked_at import launches_looked_at
from tuner.study.stopping import ends_when
from tuner.study.summary import TrialSummary, summarise


def _when(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))


def study_document(record: StudyRecord, tally: Tally, coordinator: str | None) -> dict[str, Any]:
    """Keys: name, state, reason, simulated, engines, model, sampler, seed, created_at, budget_trials, ends, trials,
    beside_budget, measured, measured_in_part, verified, failed, running,
    interrupted, coordinator."""
    return {
        "name": record.name,
        "state": record.state.value,
        "reason": record.reason,
        "simulated": record.simulated,
        "engines": list(record.space.engines),
        "model": record.space.model,
        "sampler": record.sampler,
        "seed": record.seed,
        "created_at": _when(record.created_at),
        "budget_trials": record.space.budget.trials,
        "ends": ends_when(record.space.budget, record.space.goals[0].label),
        **asdict(tally),
        "coordinator": coordinator,
    }


def _rows(store: Store, record: StudyRecord) -> list[TrialSummary]:
    return summarise(record.space, launches_looked_at(store, record), store.expired(record.name))


def _document(store: Store, record: StudyRecord) -> dict[str, Any]:
    lease = store.coordinator(record.name)
    return study_document(record, store.tally(record.name), lease.owner if lease is not None else None)


def study_rows(store: Store) -> list[dict[str, Any]]:
    """One document per study, oldest first."""
    return [_document(store, record) for record in store.studies()]


def print_studies(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """The list of studies."""
    if as_json:
        print_json({"studies": list(rows)})
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("study", "state", "trials", "failed", "engines", "created"):
        table.add_column(column)
    for row in rows:
        name = f"{row['name']} ({SIMULATED})" if row["simulated"] else str(row["name"])
        progress = f"{row['trials'] - row['beside_budget']} of {row['budget_trials']}"
        if row["beside_budget"]:
            progress += f" and {row['beside_budget']} beside"
        engines = ", ".join(row["engines"])
        table.add_row(name, row["state"], progress, str(row["failed"]), engines, row["created_at"])
    out().print(table if rows else "no studies yet")
    for row in rows:
        if row["state"] == StudyState.INTERRUPTED:
            out().print(f"{row['name']}: {row['reason']}", style="yellow")


def print_status(store: Store, name: str, *, as_json: bool) -> None:
    """One study's state."""
    record = store.study(name)
    document, stale = _document(store, record), stale_exports(store, record)
    if as_json:
        print_json({**document, "stale_exports": [one.document for one in stale]})
        return
    for key, value in document.items():
        out().print(f"{_STATUS_WORDS.get(key, key.replace('_', ' '))}: {_status_value(value)}")
    print_stale(stale)


_STATUS_WORDS = {
    "created_at": "created",
    "budget_trials": "trials in the budget",
    "beside_budget": "beside the budget",
    "coordinator": "run by",
}
"""Keys of a study's document that say too little to people."""


def _status_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else "–" if value in (None, "") else str(value)


def failure_document(failure: Failure | None) -> dict[str, Any] | None:
    """Keys: class, phase, evidence, blames, detail, exit_code."""
    if failure is None:
        return None
    return {
        "class": failure.failure_class.value,
        "phase": failure.phase.value,
        "evidence": list(failure.evidence),
        "blames": list(failure.blames),
        "detail": failure.detail,
        "exit_code": failure.exit_code,
    }


def trial_document(record: StudyRecord, row: TrialSummary) -> dict[str, Any]:
    """Keys: trial, state, purpose, engine, settings, changes, objectives, broken_limits, limits_of_its_time, failure,
    cut_short, inactive, launches, seconds, simulated, run_dir, fingerprint."""
    pairs = zip(record.space.goals, row.values, strict=True)
    return {
        "trial": row.trial,
        "state": row.state,
        "purpose": row.last.purpose.value,
        "engine": row.last.candidate.engine,
        "settings": dict(row.last.candidate.values),
        "changes": {knob: {"baseline": old, "value": new} for knob, (old, new) in row.changes.items()},
        "objectives": {goal.label: measurement_document(value) for goal, value in pairs},
        "broken_limits": dict(row.broken),
        "limits_of_its_time": sorted(row.of_its_time),
        "failure": failure_document(row.failure),
        "cut_short": row.cut_short or None,
        "inactive": dict(row.inactive),
        "launches": row.launches,
        "seconds": row.seconds,
        "simulated": row.simulated,
        "run_dir": row.last.run_dir,
        "fingerprint": row.last.candidate.fingerprint,
    }


def print_trials(store: Store, name: str, *, as_json: bool) -> None:
    """Every trial of a study."""
    record = store.study(name)
    rows = _rows(store, record)
    if as_json:
        print_json({"study": name, "trials": [trial_document(record, row) for row in rows]})
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("trial", justify="right")
    table.add_column("state")
    for goal in record.space.goals:
        table.add_column(f"{goal.label} {goal.metric.unit}", justify="right")
    table.add_column("configuration", overflow="fold")
    for row in rows:
        state = f"{row.state}: {row.failure.failure_class.value}" if row.failure is not None else row.state
        engine = f"{row.last.candidate.engine}: " if len(record.space.engines) > 1 else ""
        table.add_row(str(row.trial), state, *map(with_spread, row.values), engine + changes(row.changes))
    out().print(table)
    note = "± is half the 95 % interval within one launch"
    if any(row.of_its_time for row in rows):
        note += f"; limits of the baseline's share are judged {OF_ITS_TIME}"
    out().print(f"{note}; {SIMULATED}, not measured" if record.simulated else note, style="dim")


def _level_document(level: LevelResult) -> dict[str, Any]:
    return {**level_document(level), "metrics": [measurement_document(row) for row in level.measurements]}


def _find(rows: Sequence[TrialSummary], name: str, trial: int) -> TrialSummary:
    for row in rows:
        if row.trial == trial:
            return row
    raise StudyError(f"study {name} has no trial {trial}", hint=f"tuner study trials {name} lists them")


def print_one(store: Store, name: str, trial: int | None, *, as_json: bool) -> None:
    """One trial in full, or the study's space file."""
    record = store.study(name)
    if trial is None:
        probe = store.probe(name)
        if as_json:
            document = {**_document(store, record), "space": record.space_text, "space_hash": record.space_hash}
            print_json({**document, "probe": None if probe is None else probe_document(probe)})
            return
        out().print(record.space_text, soft_wrap=True)
        for sentence in () if probe is None else advice(probe):
            console().print(f"all-reduce probe: {sentence}")
        return
    row = _find(_rows(store, record), name, trial)
    row = replace(row, last=store.attempts(name, trial=trial)[-1])  # with everything that it measured
    report = row.last.report
    outcome = report.outcome if report is not None else None
    measured = outcome if isinstance(outcome, Measured | MeasuredInPart) else None
    if as_json:
        print_json(
            {
                **trial_document(record, row),
                "argv": list(report.plan.argv) if report is not None and report.plan is not None else None,
                "phase_seconds": {k.value: v for k, v in report.phase_seconds.items()} if report is not None else {},
                "levels": [_level_document(level) for level in measured.levels] if measured is not None else [],
                "versions": dict(report.versions) if report is not None else {},
                "machine": dict(report.machine) if report is not None else {},
                "artifacts": dict(report.artifacts) if report is not None else {},
                "notes": list(report.notes) if report is not None else [],
            }
        )
        return
    _print_trial(record, row, measured)


def _print_trial(record: StudyRecord, row: TrialSummary, measured: Measured | MeasuredInPart | None) -> None:
    label = f" ({SIMULATED})" if row.simulated else ""
    out().print(f"trial {row.trial} of {record.name}{label}: {row.state}", style="bold")
    for knob, value in row.last.candidate.values.items():
        note = f"   inactive: {row.inactive[knob]}" if knob in row.inactive else ""
        mark = " *" if knob in row.changes else ""
        out().print(f"  {knob}: {spell(value)}{mark}{note}")
    if row.changes:
        out().print("  * differs from the baseline", style="dim")
    if row.failure is not None:
        words = FAILURES[row.failure.failure_class].words
        out().print(f"failed: {row.failure.failure_class.value} at {row.failure.phase.value}: {words}")
        for line in row.failure.evidence:
            out().print(f"  {line}", style="dim")
    if row.cut_short:
        out().print(f"not measured any further: {row.cut_short}")
    limits = {limit.label: limit.words for limit in record.space.limits}
    for broken, amount in row.broken.items():
        against = f", {OF_ITS_TIME}" if broken in row.of_its_time else ""
        said = f"over its limit by {amount * 100:.1f} %{against}: {limits.get(broken, broken)}"
        out().print(said, style="yellow")
    if measured is not None:
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("metric")
        for level in measured.levels:
            table.add_column(str(level.load), justify="right")
        for metric in dict.fromkeys(m.metric for level in measured.levels for m in level.measurements):
            cells = [
                next((with_spread(m) for m in lv.measurements if m.metric is metric), "–") for lv in measured.levels
            ]
            table.add_row(f"{metric.value} ({metric.unit})", *cells)
        out().print(table)
    report = row.last.report
    if report is not None:
        phases = ", ".join(f"{phase.value} {number(seconds)} s" for phase, seconds in report.phase_seconds.items())
        out().print(f"phases: {phases}")
        for note in report.notes:
            out().print(f"note: {note}")
    out().print(f"files: {row.last.run_dir}")
