"""The front: what a study found, against where the user started."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tuner.cli.choice import CONFIRMED, confirmation, resolved_pick
from tuner.cli.front_plot import front_plot
from tuner.cli.output import console, out, print_json, print_numbers_and_words
from tuner.cli.stale import print_stale, stale_exports
from tuner.cli.wording import SIMULATED, changes, estimated, goal_document
from tuner.domain.front import OF_ITS_TIME, PICKS, Estimate, Front, Gain, Standing
from tuner.domain.measurement import SpreadKind
from tuner.domain.proof import Confirmation
from tuner.domain.study import StudyRecord
from tuner.domain.values import counted, spell
from tuner.domain.warnings import Caution
from tuner.export.base import Number, numbers_of
from tuner.export.standings import front_of
from tuner.store import Store
from tuner.study.agenda import StudyEnd
from tuner.study.looked_at import launches_looked_at
from tuner.study.warnings import warnings_of


def _estimate_document(value: Estimate, gain: Gain | None) -> dict[str, Any]:
    """Keys: center, low, high (95 % interval or null), spread_kind, launches, gain (ratio − 1, low, high; or null)."""
    return {
        "center": value.center,
        "low": value.low,
        "high": value.high,
        "spread_kind": value.spread_kind.value,
        "launches": value.launches,
        "gain": None
        if gain is None
        else {
            "center": gain.ratio - 1,
            "low": None if gain.low is None else gain.low - 1,
            "high": None if gain.high is None else gain.high - 1,
        },
    }


def _standing_document(front: Front, standing: Standing, found: Confirmation | None) -> dict[str, Any]:
    """Keys: trials, engine, settings, changes, objectives (label → estimate, over all launches), confirmed (the same
    over the confirmation's launches alone; null for what took no part), broken_limits, limits_of_its_time
    (judged by the baseline at the time of each launch), is_baseline, simulated.
    """
    pairs = zip(front.goals, standing.values, front.gains(standing), strict=True)
    told = numbers_of(front, standing, found)
    alone = {one.goal.label: _estimate_document(one.estimate, one.gain) for one in told if one.confirmed}
    return {
        "trials": list(standing.trials),
        "engine": standing.candidate.engine,
        "settings": dict(standing.candidate.values),
        "changes": {knob: spell(new) for knob, (_, new) in front.changes(standing).items()},
        "objectives": {goal.label: _estimate_document(value, gain) for goal, value, gain in pairs},
        "confirmed": alone or None,
        "broken_limits": dict(standing.broken),
        "limits_of_its_time": sorted(standing.of_its_time),
        "is_baseline": standing.is_baseline,
        "simulated": standing.simulated,
    }


def caution_document(caution: Caution) -> dict[str, Any]:
    """Keys: code, meaning, detail, advice, trials."""
    return {
        "code": caution.code.value,
        "meaning": caution.code.meaning,
        "detail": caution.detail,
        "advice": caution.code.advice,
        "trials": list(caution.trials),
    }


def front_document(
    record: StudyRecord, front: Front, cautions: Sequence[Caution], found: Confirmation | None = None
) -> dict[str, Any]:
    """Keys: study, simulated, objectives (see `goal_document`), baseline, front, beaten, over_limit,
    warnings.

    Baseline to over_limit hold standings (see `_standing_document`).
    """
    return {
        "study": record.name,
        "simulated": record.simulated,
        "objectives": [goal_document(goal) for goal in front.goals],
        "baseline": None if front.baseline is None else _standing_document(front, front.baseline, found),
        "front": [_standing_document(front, standing, found) for standing in front.members],
        "beaten": [_standing_document(front, standing, found) for standing in front.beaten],
        "over_limit": [_standing_document(front, standing, found) for standing in front.infeasible],
        "warnings": [caution_document(caution) for caution in cautions],
    }


def _gain(gain: Gain | None) -> str:
    if gain is None:
        return ""
    middle = f"{(gain.ratio - 1) * 100:+.1f} %"
    if gain.low is None or gain.high is None:
        return middle
    return f"{middle} [{(gain.low - 1) * 100:+.1f}, {(gain.high - 1) * 100:+.1f}]"


def front_table(record: StudyRecord, front: Front, found: Confirmation | None = None) -> Table:
    """Members first, below them the engines' baselines that are no members themselves.

    What took part in the confirmation has the confirmation's numbers here as everywhere.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("trials", justify="right", overflow="fold")
    table.add_column("launches", justify="right")
    for goal in front.goals:
        table.add_column(f"{goal.label}\n{goal.metric.unit}", justify="right")
        table.add_column("against the baseline", justify="right")
    table.add_column("configuration", overflow="fold")
    rest = (*front.beaten, *front.infeasible)
    for standing in (*front.members, *filter(front.is_start, rest)):
        told = numbers_of(front, standing, found)
        cells = [_launches(told)]
        for one in told:
            cells += [estimated(one.estimate), _gain(one.gain)]
        trials = ", ".join(map(str, standing.trials))
        shown = _configuration(record, front, standing)
        table.add_row(trials, *cells, shown, style="cyan" if front.is_start(standing) else "")
    return table


def _launches(told: Sequence[Number]) -> str:
    """`5`, or `3 to confirm`."""
    fewest = min(one.estimate.launches for one in told)
    return f"{fewest} to confirm" if any(one.confirmed for one in told) else str(fewest)


def _configuration(record: StudyRecord, front: Front, standing: Standing) -> str:
    """What it changes of its engine's baseline, and which engine where there are several."""
    engine = f"{standing.candidate.engine}: " if len(record.space.engines) > 1 else ""
    known = standing.candidate.engine in front.starts
    return engine + (changes(front.changes(standing)) if known else str(standing.candidate))


def front_notes(record: StudyRecord, front: Front, found: Confirmation | None) -> list[str]:
    """What the numbers of a front's table are, below it."""
    shown = [value for standing in front.members for value in standing.values]
    notes = ["± and [ ] are 95 % intervals"]
    if any(value.spread_kind is SpreadKind.WITHIN_LAUNCH for value in shown):
        notes[0] += " within a launch, since too few were made again: the next one may differ by more"
    if shown and min(value.launches for value in shown) < 2:
        notes.append("configurations with one launch are candidates, not proof")
    if found is not None:
        notes.append("what was confirmed has the numbers of its launches `to confirm` alone")
    if any(standing.of_its_time for standing in front.members):
        notes.append(f"limits of the baseline's share are judged {OF_ITS_TIME}")
    if record.simulated:
        notes.append(f"{SIMULATED}: a model's numbers, not a measurement")
    return notes


def print_front(store: Store, name: str, *, as_json: bool) -> None:
    """The front of a study."""
    record = store.study(name)
    attempts = launches_looked_at(store, record)
    front = front_of(record.space, attempts)
    found = confirmation(record, attempts)
    cautions = warnings_of(record.space, attempts, front, found)
    if as_json:
        print_json(front_document(record, front, cautions, found))
        return
    if not front.members:
        error = front.nothing_feasible()
        out().print(f"{error}\n  → {error.hint}")
    else:
        print_numbers_and_words(front_table(record, front, found), words=1)
        out().print("; ".join(front_notes(record, front, found)), style="dim")
        if (plot := front_plot(front)) is not None:
            out().print(f"\n{plot}\n", soft_wrap=True)
    print_cautions(cautions)


def print_cautions(cautions: Sequence[Caution]) -> None:
    """Each warning on a line of its own: what was seen, and what to do."""
    for caution in cautions:
        out().print(f"warning: {caution}", style="yellow")


def _print_end_cautions(name: str, cautions: Sequence[Caution]) -> None:
    """What is to be done at a study's end; remarks on single measurements go to the log, and are told on demand."""
    remarks = [caution for caution in cautions if caution.code.is_remark]
    print_cautions([caution for caution in cautions if not caution.code.is_remark])
    for caution in remarks:
        logging.getLogger("tuner").info("study %s: remark %s: %s", name, caution.code.value, caution)
    if remarks:
        many = counted(len(remarks), "remark")
        out().print(f"{many} on single measurements: tuner study front {name}", style="dim")


def conclude(store: Store, name: str, end: StudyEnd, *, as_json: bool) -> Front:
    """What a study that just ended found: front, gain over the baseline, and the exported script's path."""
    from tuner.cli.export import write_default_export

    record, attempts = store.study(name), store.attempts(name)
    front = front_of(record.space, attempts)
    found = confirmation(record, attempts)
    cautions = warnings_of(record.space, attempts, front, found)
    script = write_default_export(store, record) if front.members else None
    if as_json:
        document = front_document(record, front, cautions, found)
        print_json({**document, "state": end.state.value, "reason": end.reason, "script": script and str(script)})
        return front
    console().print(f"{name}: {end.state.value}: {end.reason}", style="bold")
    if not front.members:
        _print_end_cautions(name, cautions)
        return front
    print_numbers_and_words(front_table(record, front, found), words=1)
    out().print("; ".join(front_notes(record, front, found)), style="dim")
    _print_end_cautions(name, cautions)
    rule = resolved_pick(record, attempts, CONFIRMED)
    chosen = front.pick(rule)
    label = f" ({SIMULATED})" if chosen.simulated else ""
    how = f" by `{rule}`" if rule in PICKS else " and confirmed"
    if chosen.is_baseline:
        what = "the baseline itself"
        if rule not in PICKS:
            how, what = "", "the baseline; no finalist is shown to gain and to lose nothing"
    else:
        what = _configuration(record, front, chosen)
    out().print(f"chosen{how}{label}: {what}", style="bold")
    for one in numbers_of(front, chosen, found):
        against = "" if one.gain is None else f", {_gain(one.gain)} against the baseline"
        alone = f" ({counted(one.estimate.launches, 'launch')} of the confirmation)" if one.confirmed else ""
        out().print(f"  {one.goal.label}: {estimated(one.estimate)} {one.goal.metric.unit}{against}{alone}")
    out().print(f"script: {script}", soft_wrap=True)
    print_stale(stale_exports(store, record))
    return front
