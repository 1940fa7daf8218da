"""The report's parts about what relaunches prove: the confirmation and the ablation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front, Standing
from tuner.domain.proof import Ablation, AblationRow, ArmResult, Confirmation, Effect
from tuner.domain.values import chance, counted, readable, spell
from tuner.export.report_facts import Figure, Table


def configuration(front: Front, candidate: Candidate) -> str:
    """What a configuration changes; all of it where it runs another engine than the baseline."""
    if front.baseline is None:
        return str(candidate)
    if candidate.engine != front.baseline.candidate.engine:
        return str(candidate)
    pairs = candidate.differs_from(front.baseline.candidate).items()
    return ", ".join(f"{name}={spell(now)}" for name, (_, now) in pairs) or "baseline"


def standing_of(front: Front, candidate: Candidate) -> Standing | None:
    """Where a configuration stands; None when it was never measured."""
    standings = (*front.members, *front.beaten, *front.infeasible)
    return next((s for s in standings if s.candidate.fingerprint == candidate.fingerprint), None)


def percent(share: float) -> str:
    """`+12.3 %`."""
    return f"{share * 100:+.1f} %"


def estimate(value: Estimate) -> str:
    """`2,320 ±12`, with the larger half of the interval; both ends where that is more than the value; the centre alone
    without one.
    """
    half = max(value.below, value.above)
    if value.low is not None and value.high is not None and half > value.center:
        return f"{readable(value.center)} [{readable(value.low)}, {readable(value.high)}]"
    digits = f"{half:.2g}" if half < 1 else f"{half:,.1f}" if half < 1000 else readable(half)
    return f"{readable(value.center)} ±{digits}" if half else readable(value.center)


def _effect(effect: Effect) -> tuple[str, str]:
    if effect.change is None:
        return "–", effect.finding.value
    interval = "" if effect.low is None or effect.high is None else f" [{percent(effect.low)}, {percent(effect.high)}]"
    return percent(effect.change) + interval, effect.finding.value


def confirmation_parts(front: Front, found: Confirmation) -> Iterator[str | Table]:
    """Baseline and finalists with their effects, and the engines side by side where there are several."""
    yield (
        f"{counted(found.rounds, 'round')}, each launching every configuration once in random order; effects against "
        f"the baseline with 95 % intervals over these launches. {found.asked * 100:.3g} % was asked for; 'would show' "
        "says which one so many launches with this noise show (80 % power)."
    )
    rows = []
    for arm in found.arms:
        name, launches = str(arm.trial), f"{arm.launches} ({', '.join(map(str, arm.trials))})"
        for index, goal in enumerate(front.goals):
            value = arm.values[index] if index < len(arm.values) else None
            shown = "–" if value is None else estimate(value)
            effect = arm.effects[index] if index < len(arm.effects) else None
            change, finding = _effect(effect) if effect is not None else ("", "baseline")
            better = "" if effect is None or effect.better is None else chance(effect.better)
            smallest = "" if effect is None or effect.smallest is None else f"{effect.smallest * 100:.1f} %"
            about = (name, configuration(front, arm.candidate), launches) if index == 0 else ("", "", "")
            label = f"{goal.label} [{goal.metric.unit}]"
            rows.append((*about, label, shown, change, finding, better, smallest))
    columns = ("trial", "configuration", "launches (trials)", "objective", "value", "effect", "finding")
    yield Table((*columns, "P(better)", "would show"), tuple(rows), numbers=(4, 5, 7, 8))
    yield " ".join(
        f"{'Baseline' if arm.is_baseline else f'Trial {arm.trial}'}: {said}."
        for arm in found.arms
        if (said := _said(found, arm))
    )
    if found.engines:
        yield "Engines side by side, each with its own best configuration."
        sides = [
            (
                engine.best.candidate.engine,
                configuration(front, engine.best.candidate),
                *("–" if value is None else estimate(value) for value in engine.best.values),
                "; ".join(f"{effect.objective}: {' '.join(_effect(effect))}" for effect in engine.effects)
                or "reference",
            )
            for engine in found.engines
        ]
        yield Table(("engine", "configuration", *(g.label for g in front.goals), "against the first"), tuple(sides))


def _said(found: Confirmation, arm: ArmResult) -> str:
    """Why it was chosen, or could not be."""
    return "; ".join((*(["chosen"] if arm is found.chosen else []), *arm.objections))


def ablation_parts(front: Front, found: Ablation) -> Iterator[str | Table | Figure]:
    """What each setting contributes, and the minimal configuration."""
    state = "" if found.complete else " Not every configuration had its launches yet."
    yield (
        "Each row compares two configurations that differ in the named setting alone: taken out of the winner, or put "
        "into the baseline on top of the rows above it. Positive: the setting adds. 95 % intervals over launches; "
        f"'rounds' hold both configurations.{state}"
    )
    yield Figure("ablation")
    rows = [
        (
            row.setting,
            _values(row),
            row.kind.value,
            str(max((effect.rounds for effect in row.effects), default=0)),
            *(_effect(effect)[0] for effect in row.effects),
            *("–" for _ in range(len(front.goals) - len(row.effects))),
            row.words,
        )
        for row in found.rows
    ]
    columns = ("setting", "values", "how", "rounds", *(f"Δ {goal.label}" for goal in front.goals), "what became of it")
    yield Table(columns, tuple(rows), numbers=tuple(range(3, 4 + len(front.goals))))
    yield f"All settings together, in the same rounds: {_told(found.total)}."
    against = f" Against the full winner: {_told(found.minimal_effects)}." if found.minimal_effects else ""
    undecided = " Undecided: noise hides whether it is as good; more launches can say." if found.is_undecided else ""
    yield f"Minimal configuration: {_numbered(front, found.minimal)}.{against}{undecided}"


def minimal_words(front: Front, found: Ablation | None, chosen: Standing) -> str:
    """That the chosen configuration can do with fewer settings; empty where its ablation does not say so."""
    if found is None or not found.complete or not found.minimal_effects or found.is_undecided:
        return ""
    if found.winner.fingerprint != chosen.candidate.fingerprint:
        return ""
    return f"As far as launches can tell, less is enough: {_numbered(front, found.minimal)}."


def _numbered(front: Front, candidate: Candidate) -> str:
    """`decode_steps=4 (trial 18)`."""
    standing = standing_of(front, candidate)
    which = "" if standing is None or standing.is_baseline else f" (trial {standing.trial})"
    return f"{configuration(front, candidate)}{which}"


def _values(row: AblationRow) -> str:
    """`1 → 4`; with names where several knobs are one setting."""
    changes = {knob: f"{spell(before)} → {spell(now)}" for knob, (before, now) in row.values.items()}
    return ", ".join(change if len(changes) == 1 else f"{knob}: {change}" for knob, change in changes.items())


def _told(effects: Sequence[Effect]) -> str:
    """`single_stream +41.5 % [+40.5 %, +42.5 %] (faster)`, one objective after the other."""
    return ", ".join(
        f"{effect.objective} {change} ({word})" for effect in effects for change, word in [_effect(effect)]
    )
