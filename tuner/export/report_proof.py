"""The report's parts about what relaunches prove: the confirmation and the ablation."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front
from tuner.domain.proof import Ablation, Confirmation, Effect
from tuner.domain.values import readable, spell
from tuner.export.report_facts import Figure, Table


def configuration(front: Front, candidate: Candidate) -> str:
    """What a configuration changes; all of it where it runs another engine than the baseline."""
    if front.baseline is None:
        return str(candidate)
    if candidate.engine != front.baseline.candidate.engine:
        return f"{candidate.engine}: {candidate}"
    pairs = candidate.differs_from(front.baseline.candidate).items()
    return ", ".join(f"{name}={spell(now)}" for name, (_, now) in pairs) or "baseline"


def percent(share: float) -> str:
    """`+12.3 %`."""
    return f"{share * 100:+.1f} %"


def estimate(value: Estimate) -> str:
    """`2,320 ±12`, with the larger half of the interval; the centre alone without one."""
    half = max(value.below, value.above)
    digits = f"{half:.2g}" if half < 10 else readable(half)
    return f"{readable(value.center)} ±{digits}" if half else readable(value.center)


def _effect(effect: Effect) -> tuple[str, str]:
    if effect.change is None:
        return "–", effect.finding.value
    interval = "" if effect.low is None or effect.high is None else f" [{percent(effect.low)}, {percent(effect.high)}]"
    return percent(effect.change) + interval, effect.finding.value


def confirmation_parts(front: Front, found: Confirmation) -> Iterator[str | Table]:
    """Baseline and finalists with their effects, and the engines side by side where there are several."""
    yield (
        f"{found.rounds} rounds, each launching every configuration once in random order; effects against the baseline "
        f"with 95 % intervals over launches. A difference of {found.asked:.0%} was asked for."
    )
    rows = []
    for arm in found.arms:
        note = "chosen" if arm is found.chosen else ""
        if arm.yields_to is not None:
            note = f"not better than the simpler trial {arm.yields_to}"
        for index, goal in enumerate(front.goals):
            value = arm.values[index] if index < len(arm.values) else None
            shown = "–" if value is None else f"{estimate(value)} {goal.metric.unit}"
            effect = arm.effects[index] if index < len(arm.effects) else None
            change, finding = _effect(effect) if effect is not None else ("", "baseline")
            better = "" if effect is None or effect.better is None else f"{effect.better:.1%}"
            smallest = "" if effect is None or effect.smallest is None else f"{effect.smallest:.1%}"
            name = configuration(front, arm.candidate)
            rows.append((str(arm.trial), name, goal.label, shown, change, better, smallest, finding, note))
    columns = ("trial", "configuration", "objective", "value", "effect", "P(better)", "smallest", "finding", "note")
    yield Table(columns, tuple(rows), numbers=(3, 4, 5, 6))
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


def ablation_parts(front: Front, found: Ablation) -> Iterator[str | Table | Figure]:
    """What each setting contributes, and the minimal configuration."""
    state = "" if found.complete else " Not every configuration had its launches yet."
    yield f"Each row compares two configurations that differ in the named setting alone; {found.rounds} rounds.{state}"
    yield Figure("ablation")
    rows = [
        (
            row.setting,
            ", ".join(f"{spell(before)} → {spell(now)}" for before, now in row.values.values()),
            row.kind.value,
            *(_effect(effect)[0] for effect in row.effects),
            *("–" for _ in range(len(front.goals) - len(row.effects))),
            row.words,
        )
        for row in found.rows
    ]
    columns = ("setting", "values", "how", *(f"Δ {goal.label}" for goal in front.goals), "minimal configuration")
    yield Table(columns, tuple(rows), numbers=tuple(range(3, 3 + len(front.goals))))
    minimal = ", ".join(f"{name}={spell(now)}" for name, (_, now) in found.minimal.differs_from(found.baseline).items())
    yield f"Minimal configuration: {minimal or 'the baseline'}."
