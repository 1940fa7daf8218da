"""What `tuner study confirm`, `ablate` and `compare` print, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tuner.cli.output import out, print_json, print_numbers_and_words
from tuner.cli.planned_view import candidate_document, changes_document, planned_document, print_planned
from tuner.cli.stale import StaleExport, print_stale
from tuner.cli.wording import SIMULATED, changes, estimated
from tuner.domain.front import Estimate, broken_words
from tuner.domain.proof import Ablation, AblationKind, AblationRow, ArmResult, Confirmation, Effect, Finding
from tuner.domain.space import Space
from tuner.domain.study import StudyRecord
from tuner.domain.values import chance, counted, spell
from tuner.study.planned import Planned

_STYLES = {Finding.FASTER: "green", Finding.SLOWER: "red"}


# ---- JSON


def _effect_document(effect: Effect) -> dict[str, Any]:
    return {
        "objective": effect.objective,
        "change": effect.change,
        "low": effect.low,
        "high": effect.high,
        "rounds": effect.rounds,
        "better": effect.better,
        "smallest": effect.smallest,
        "finding": effect.finding.value,
    }


def _value_document(label: str, value: Estimate | None) -> dict[str, Any]:
    if value is None:
        return {"objective": label, "center": None, "low": None, "high": None, "launches": 0}
    return {
        "objective": label,
        "center": value.center,
        "low": value.low,
        "high": value.high,
        "launches": value.launches,
    }


def _arm_document(space: Space, arm: ArmResult) -> dict[str, Any]:
    return {
        "trial": arm.trial,
        "trials": list(arm.trials),
        **candidate_document(arm.candidate),
        "changes": changes_document(arm.changes),
        "is_baseline": arm.is_baseline,
        "launches": arm.launches,
        "failures": arm.failures,
        "values": [_value_document(g.label, v) for g, v in zip(space.goals, arm.values, strict=True)],
        "effects": [_effect_document(effect) for effect in arm.effects],
        "broken": dict(arm.broken),
        "yields_to": arm.yields_to,
    }


def confirmation_document(
    record: StudyRecord, found: Confirmation | None, planned: Planned | None = None
) -> dict[str, Any]:
    """Keys: see docs/json.md; `rounds` is 0 and `arms` empty when nothing was confirmed."""
    if found is None:
        nothing = {"rounds": 0, "asked": record.space.budget.smallest_gain, "arms": [], "chosen": None, "engines": []}
        return {
            "study": record.name,
            "simulated": record.simulated,
            **nothing,
            "planned": planned_document(planned),
        }
    return {
        "study": record.name,
        "simulated": found.simulated,
        "rounds": found.rounds,
        "asked": found.asked,
        "arms": [_arm_document(record.space, arm) for arm in found.arms],
        "chosen": found.chosen.trial,
        "engines": [
            {
                "engine": one.best.candidate.engine,
                "best": one.best.trial,
                "reference": one.reference,
                "effects": [_effect_document(effect) for effect in one.effects],
            }
            for one in found.engines
        ],
        "planned": planned_document(planned),
    }


def _row_document(row: AblationRow) -> dict[str, Any]:
    return {
        "setting": row.setting,
        "values": changes_document(row.values),
        "kind": row.kind.value,
        "without": None if row.without is None else candidate_document(row.without),
        "with": candidate_document(row.with_it),
        "effects": [_effect_document(effect) for effect in row.effects],
        "kept": row.kept,
        "note": row.note,
    }


def ablation_document(record: StudyRecord, found: Ablation | None, planned: Planned | None = None) -> dict[str, Any]:
    """Keys: see docs/json.md; `rounds` is 0 and `winner` None where there is nothing to take apart."""
    if found is None:
        return {
            "study": record.name,
            "simulated": record.simulated,
            "complete": False,
            "rounds": 0,
            **dict.fromkeys(("baseline", "winner", "minimal")),
            **{part: [] for part in ("total", "rows", "minimal_effects")},
            "undecided": False,
            "planned": planned_document(planned),
        }
    return {
        "study": record.name,
        "simulated": found.simulated,
        "complete": found.complete,
        "rounds": found.rounds,
        "baseline": candidate_document(found.baseline),
        "winner": candidate_document(found.winner),
        "total": [_effect_document(effect) for effect in found.total],
        "rows": [_row_document(row) for row in found.rows],
        "minimal": candidate_document(found.minimal),
        "minimal_effects": [_effect_document(effect) for effect in found.minimal_effects],
        "undecided": found.is_undecided,
        "planned": planned_document(planned),
    }


# ---- for people


def _percent(share: float) -> str:
    return f"{share * 100:+.1f}"


def _effect_text(effect: Effect) -> str:
    if effect.change is None:
        return "–"
    middle = f"{_percent(effect.change)} %"
    if effect.low is None or effect.high is None:
        return middle
    return f"{middle} [{_percent(effect.low)}, {_percent(effect.high)}]"


def _verdict(arm: ArmResult) -> str:
    said = ["baseline"] if arm.is_baseline else [f"{e.objective}: {e.finding.value}" for e in arm.effects]
    return "; ".join((*said, *arm.objections))


def _notes(found: Confirmation) -> str:
    smallest: dict[str, float] = {}
    for effect in (effect for arm in found.arms for effect in arm.effects):
        if effect.smallest is not None:
            smallest[effect.objective] = max(effect.smallest, smallest.get(effect.objective, 0.0))
    said = [f"[ ] are 95 % intervals over launches, {counted(found.rounds, 'round')}"]
    if smallest:
        changed = " and ".join(f"{share * 100:.1f} % in {label}" for label, share in smallest.items())
        said.append(f"a change of {changed} would have shown (80 % power)")
    if found.simulated:
        said.append(f"{SIMULATED}: a model's numbers, not a measurement")
    return "; ".join(said)


def print_confirmation(
    record: StudyRecord,
    found: Confirmation | None,
    planned: Planned | None,
    stale: Sequence[StaleExport],
    *,
    as_json: bool,
) -> None:
    """Baseline and finalists with what their launches show, after what is planned where that was asked for.

    Last come the exported files that were overtaken by what was found.
    """
    if as_json:
        document = confirmation_document(record, found, planned)
        print_json({**document, "stale_exports": [one.document for one in stale]})
        return
    if planned is not None:
        print_planned(record, planned, out(), will=False)
    if found is None:
        out().print("nothing was confirmed yet" if planned is not None else "nothing was confirmed")
        return
    goals = record.space.goals
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("trial", justify="right")
    table.add_column("launches\n(trials)", justify="right", overflow="fold")
    for goal in goals:
        table.add_column(f"{goal.label}\n{goal.metric.unit}", justify="right")
        table.add_column("against the baseline", justify="right")
    table.add_column("configuration", overflow="fold")
    table.add_column("finding", overflow="fold")
    for arm in found.arms:
        cells = []
        for index, value in enumerate(arm.values):
            cells += [estimated(value), _effect_text(arm.effects[index]) if arm.effects else ""]
        style = "cyan" if arm.is_baseline else ("bold" if arm is found.chosen else "")
        launches = f"{arm.launches} ({', '.join(map(str, arm.trials))})"
        table.add_row(str(arm.trial), launches, *cells, _configuration(record.space, arm), _verdict(arm), style=style)
    print_numbers_and_words(table, words=2)
    out().print(_notes(found), style="dim")
    for line in _chosen_lines(found):
        out().print(line, style="bold")
    if found.engines:
        print_engines(record, found, as_json=False)
    print_stale(stale)


def _configuration(space: Space, arm: ArmResult) -> str:
    engine = f"{arm.candidate.engine}: " if len(space.engines) > 1 else ""
    return engine + changes(arm.changes)


def _chosen_lines(found: Confirmation) -> Sequence[str]:
    chosen = found.chosen
    if chosen.is_baseline:
        broken = f", though it breaks {broken_words(chosen.broken)}" if chosen.broken else ""
        return [f"chosen: the baseline; no finalist is shown to gain and to lose nothing{broken}"]
    lines = [f"chosen: trial {chosen.trial}: {changes(chosen.changes)}"]
    for effect in chosen.effects:
        better = "" if effect.better is None else f", better with probability {chance(effect.better)}"
        lines.append(f"  {effect.objective}: {_effect_text(effect)}{better}")
    return lines


def print_engines(record: StudyRecord, found: Confirmation, *, as_json: bool) -> None:
    """Each engine's best, side by side."""
    if as_json:
        document = confirmation_document(record, found)
        print_json({key: document[key] for key in ("study", "simulated", "rounds", "asked", "arms", "engines")})
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("engine")
    for goal in record.space.goals:
        table.add_column(f"{goal.label}\n{goal.metric.unit}", justify="right")
        table.add_column("over its baseline", justify="right")
        table.add_column(f"over {found.engines[0].reference}", justify="right")
    table.add_column("configuration", overflow="fold")
    for one in found.engines:
        cells = []
        for index, value in enumerate(one.best.values):
            own = _effect_text(one.best.effects[index]) if one.best.effects else ""
            cells += [estimated(value), own, _effect_text(one.effects[index]) if one.effects else ""]
        table.add_row(one.best.candidate.engine, *cells, changes(one.best.changes))
    print_numbers_and_words(table, words=1)


def print_ablation(record: StudyRecord, found: Ablation, planned: Planned | None = None, *, as_json: bool) -> None:
    """Setting → what it adds on each objective, and the minimal configuration; before it what is planned."""
    if as_json:
        print_json(ablation_document(record, found, planned))
        return
    if planned is not None:
        print_planned(record, planned, out(), will=False)
        if not found.rounds:
            return
    for kind, title in (
        (AblationKind.LEAVE_ONE_OUT, "each setting alone taken out of the winner: what it adds there"),
        (AblationKind.ADD_ONE_IN, "put into the baseline one by one: what each adds to those above it"),
    ):
        rows = [row for row in found.rows if row.kind is kind]
        if rows:
            out().print(title, style="bold")
            out().print(_ablation_table(record.space, rows))
    out().print(f"together: {'; '.join(_labelled(e) for e in found.total)}")
    minimal = changes(found.minimal.differs_from(found.baseline))
    if found.is_undecided:
        minimal += " (undecided: noise hides whether it is as good as the winner)"
    out().print(f"minimal configuration: {minimal}", style="bold")
    if found.minimal_effects:
        out().print(f"  against the winner: {'; '.join(_labelled(e) for e in found.minimal_effects)}")
    said = [f"[ ] are 95 % intervals over launches, {counted(found.rounds, 'round')}"]
    if not found.complete:
        said.append("not every configuration had its launches: run the command again")
    if found.simulated:
        said.append(f"{SIMULATED}: a model's numbers, not a measurement")
    out().print("; ".join(said), style="dim")


def _labelled(effect: Effect) -> str:
    return f"{effect.objective} {_effect_text(effect)} ({effect.finding.value})"


def _ablation_table(space: Space, rows: Sequence[AblationRow]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("setting", overflow="fold")
    for goal in space.goals:
        table.add_column(f"Δ {goal.label}", justify="right")
    table.add_column("finding", overflow="fold")
    for row in rows:
        setting = ", ".join(f"{name}: {spell(a)} → {spell(b)}" for name, (a, b) in row.values.items())
        cells = [_effect_text(e) for e in row.effects] or ["–"] * len(space.goals)
        best = next((e.finding for e in row.effects if e.finding in _STYLES), None)
        table.add_row(setting, *cells, row.words, style=_STYLES[best] if best is not None else "")
    return table
