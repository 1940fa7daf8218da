"""What `tuner study confirm` and `ablate` say of launches to come, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tuner.cli.wording import changes, duration
from tuner.domain.candidate import Candidate
from tuner.domain.study import StudyRecord
from tuner.domain.values import Value, counted
from tuner.study.planned import Planned, PlannedArm


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """Keys: engine, settings."""
    return {"engine": candidate.engine, "settings": dict(candidate.values)}


def changes_document(pairs: Mapping[str, tuple[Value, Value]]) -> dict[str, Any]:
    """Knob → from, to."""
    return {name: {"from": before, "to": after} for name, (before, after) in pairs.items()}


def planned_document(planned: Planned | None) -> dict[str, Any] | None:
    """Keys: launches, seconds, why, stages (see docs/json.md); None where nothing was asked for."""
    if planned is None:
        return None
    return {
        "launches": planned.launches,
        "seconds": planned.seconds,
        "why": planned.why,
        "stages": [
            {"title": stage.title, "arms": [_planned_arm_document(arm) for arm in stage.arms]}
            for stage in planned.stages
        ],
    }


def _planned_arm_document(arm: PlannedArm) -> dict[str, Any]:
    return {
        "role": arm.role,
        "trial": arm.trial,
        "candidate": None if arm.candidate is None else candidate_document(arm.candidate),
        "changes": changes_document(arm.changes),
        "launches": arm.launches,
        "seconds": arm.seconds,
    }


def print_planned(record: StudyRecord, planned: Planned, to: Console, *, will: bool) -> None:
    """What would be launched, or `will` be, stage by stage, and how long all of it takes."""
    launched = "will be launched" if will else "would be launched"
    if not planned.stages:
        to.print(f"nothing {launched}: {planned.why}")
        return
    for stage in planned.stages:
        to.print(f"{launched}: {stage.title}", style="bold")
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("trial", justify="right")
        table.add_column("launches", justify="right")
        table.add_column("what", overflow="fold")
        table.add_column("configuration", overflow="fold")
        for arm in stage.arms:
            shown = "known after the stage above" if arm.candidate is None else changes(arm.changes)
            engine = f"{arm.candidate.engine}: " if arm.candidate is not None and len(record.space.engines) > 1 else ""
            table.add_row("" if arm.trial is None else str(arm.trial), str(arm.launches), arm.role, engine + shown)
        to.print(table)
    time = "for an unknown time" if planned.seconds is None else f"about {duration(planned.seconds)}"
    to.print(f"at most {counted(planned.launches, 'launch')}, {time} by the study's own so far", style="bold")
