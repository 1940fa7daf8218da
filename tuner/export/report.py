"""The report of a study: every section as text and tables, which the formats only draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tuner.domain.front import DEFAULT_PICK, Front, Gain, Standing
from tuner.domain.probe import ProbeReport
from tuner.domain.proof import Ablation, ArmResult, Confirmation, Effect
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord
from tuner.domain.trial import Purpose
from tuner.domain.values import counted, spell
from tuner.domain.warnings import Caution
from tuner.export.base import numbers_of
from tuner.export.report_commands import command_parts
from tuner.export.report_facts import (
    Code,
    Figure,
    Table,
    activity_table,
    conditions_table,
    failure_table,
    machine_table,
    output_table,
    wrong_answers,
)
from tuner.export.report_front import front_parts, trial_list
from tuner.export.report_load import Curve, curves_of, load_table, load_words
from tuner.export.report_probe import probe_parts
from tuner.export.report_proof import (
    ablation_parts,
    confirmation_parts,
    estimate,
    minimal_words,
    percent,
    standing_of,
)
from tuner.export.standings import front_of

MOST_FINALISTS = 4


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a report is made of.

    Attributes:
        study: the study.
        attempts: all of its launches.
        cautions: warnings about it.
        confirmation: what interleaved launches proved; None when there were none.
        ablation: which settings carry the gain; None when that was not asked.
        probe: what its all-reduce probe measured; None when there was none.
    """

    study: StudyRecord
    attempts: Sequence[AttemptRecord]
    cautions: Sequence[Caution] = ()
    confirmation: Confirmation | None = None
    ablation: Ablation | None = None
    probe: ProbeReport | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report."""

    title: str
    parts: tuple[str | Table | Figure | Code, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """One objective: the baseline's value, the chosen one's, and the change."""

    label: str
    unit: str
    baseline: str
    chosen: str
    change: str
    interval: str
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says.

    Attributes:
        study: study name.
        simulated: whether the numbers are a model's.
        verdict: the result in one sentence.
        settings: what the chosen configuration changes.
        headlines: one per objective.
        sections: the rest, in order.
        front: for the drawings.
        chosen: the configuration that the report recommends; None when nothing could be measured.
        curves: configurations drawn against load, baseline first.
        confirmation: whose numbers are drawn for what took part in it; None without one.
        facts: short facts under the title.
    """

    study: str
    simulated: bool
    verdict: str
    settings: tuple[str, ...]
    headlines: tuple[Headline, ...]
    sections: tuple[Section, ...]
    front: Front
    chosen: Standing | None
    curves: tuple[Curve, ...]
    confirmation: Confirmation | None = None
    facts: tuple[str, ...] = field(default=())


def report_of(findings: Findings) -> Report:
    """Put the report together."""
    study, front = findings.study, front_of(findings.study.space, findings.attempts)
    chosen = _chosen(front, findings.confirmation)
    finalists = _finalists(front, chosen, findings.confirmation)
    curves = curves_of(findings.attempts, finalists, findings.confirmation)
    return Report(
        study=study.name,
        simulated=study.simulated,
        verdict=_verdict(front, chosen, findings.confirmation, findings.ablation),
        settings=tuple(_changes(_base(front, chosen, findings.confirmation), chosen)) if chosen is not None else (),
        headlines=tuple(_headlines(front, chosen, findings.confirmation)),
        sections=tuple(_sections(findings, front, chosen, finalists, curves)),
        front=front,
        chosen=chosen,
        curves=curves,
        confirmation=findings.confirmation,
        facts=tuple(_facts(findings)),
    )


def _facts(findings: Findings) -> Iterator[str]:
    study, attempts = findings.study, findings.attempts
    yield f"model {study.space.model}"
    yield f"engines {', '.join(study.space.engines)}"
    yield f"{counted(len({a.trial for a in attempts}), 'trial')}, {counted(len(attempts), 'launch')}"
    if part := sum(a.state is AttemptState.PARTIAL and a.purpose is not Purpose.VERIFY for a in attempts):
        yield f"{part} of them measured in part: beaten beyond noise before their last loads"
    if study.reason:
        yield f"{study.state.value}: {study.reason}"
    yield f"started {datetime.fromtimestamp(study.created_at, UTC):%Y-%m-%d %H:%M} UTC"
    yield f"tuner {study.tuner_version}"


def _chosen(front: Front, confirmation: Confirmation | None) -> Standing | None:
    if confirmation is not None and (found := standing_of(front, confirmation.chosen.candidate)) is not None:
        return found
    return front.pick(DEFAULT_PICK) if front.members else None


def _finalists(front: Front, chosen: Standing | None, confirmation: Confirmation | None) -> tuple[Standing, ...]:
    """Baseline, chosen, then the others that were confirmed or stand on the front."""
    arms = [standing_of(front, arm.candidate) for arm in confirmation.arms] if confirmation is not None else []
    ordered = [front.baseline, chosen, *(arms or front.members)]
    unique = {s.candidate.fingerprint: s for s in ordered if s is not None}
    return tuple(unique.values())[:MOST_FINALISTS]


def _verdict(
    front: Front, chosen: Standing | None, confirmation: Confirmation | None, ablation: Ablation | None
) -> str:
    if chosen is None:
        return "No configuration was measured that keeps every limit."
    if chosen.is_baseline:
        return "No configuration is shown to be better than the baseline: keep it."
    if confirmation is not None:
        arm = confirmation.arm_of(chosen.candidate)
        if arm is not None and arm.gains:
            rounds = f"in {counted(confirmation.rounds, 'interleaved round')}"
            whose = f"{arm.candidate.engine}'s baseline" if confirmation.engines else "the baseline"
            said = f"Trial {chosen.trial} against {whose}, {rounds}: {_told(arm)}."
            return f"{said} {minimal_words(front, ablation, chosen)}".rstrip()
        return f"Trial {chosen.trial} is the best found; interleaved launches do not show that it is faster."
    return f"Trial {chosen.trial} is the best found; its gain was not confirmed by interleaved launches yet."


def _told(arm: ArmResult) -> str:
    """`single_stream faster (+41.5 %), throughput slower (-2.0 %)`."""
    return ", ".join(
        f"{effect.objective} {effect.finding.value} ({percent(effect.change)})"
        for effect in arm.effects
        if effect.change is not None
    )


def _base(front: Front, chosen: Standing, confirmation: Confirmation | None) -> Standing | None:
    """What the chosen configuration is compared with: a confirmation compares each engine with its own baseline."""
    arms = confirmation.arms if confirmation is not None else ()
    own = next((arm for arm in arms if arm.is_baseline and arm.candidate.engine == chosen.candidate.engine), None)
    found = None if own is None else standing_of(front, own.candidate)
    return front.baseline if found is None else found


def _changes(base: Standing | None, chosen: Standing) -> Iterator[str]:
    if base is not None:
        for name, (before, now) in chosen.candidate.differs_from(base.candidate).items():
            yield f"{name}: {spell(before)} → {spell(now)}"


def _headlines(front: Front, chosen: Standing | None, confirmation: Confirmation | None) -> Iterator[Headline]:
    start = None if chosen is None else _base(front, chosen, confirmation)
    if chosen is None or start is None:
        return
    arm = None if confirmation is None else confirmation.arm_of(chosen.candidate)
    values = numbers_of(front, chosen, confirmation)
    baseline = numbers_of(front, start, confirmation if values[0].confirmed else None)
    gains = front.gains(chosen)
    for index, goal in enumerate(front.goals):
        effect = arm.effects[index] if arm is not None and index < len(arm.effects) else None
        change, interval, better = _change(goal.maximize, effect, gains[index], is_baseline=chosen.is_baseline)
        yield Headline(
            label=goal.name.replace("_", " ") if goal.name else goal.label,
            unit=f"{goal.metric.unit} ({goal.at})",
            baseline=estimate(baseline[index].estimate),
            chosen=estimate(values[index].estimate),
            change=change,
            interval=interval,
            better=better,
        )


def _change(
    maximize: bool, effect: Effect | None, gain: Gain | None, *, is_baseline: bool
) -> tuple[str, str, bool | None]:
    """Change and interval in words, and whether it is for the better (None: not beyond noise)."""
    if is_baseline:
        return "±0 %", "the baseline itself", None
    if effect is not None and effect.change is not None:
        middle, low, high, how = effect.change, effect.low, effect.high, counted(effect.rounds, "interleaved round")
    elif gain is not None:
        middle, how = gain.ratio - 1, "from all launches, not interleaved"
        low, high = (None if end is None else end - 1 for end in (gain.low, gain.high))
    else:
        return "–", "not comparable", None
    if low is None or high is None:
        return percent(middle), f"no interval; {how}", None
    beyond = low > 0 or high < 0
    return (
        percent(middle),
        f"{percent(low)} to {percent(high)}, 95 %; {how}",
        (middle > 0) == maximize if beyond else None,
    )


def _sections(
    findings: Findings,
    front: Front,
    chosen: Standing | None,
    finalists: tuple[Standing, ...],
    curves: tuple[Curve, ...],
) -> Iterator[Section]:
    attempts = findings.attempts
    if findings.cautions:
        yield Section("Warnings", (_caution_table(findings.cautions),))
    if findings.confirmation is not None:
        yield Section("Confirmation", tuple(confirmation_parts(front, findings.confirmation)))
    yield Section("Front", front_parts(front, chosen, findings.confirmation))
    if findings.ablation is not None:
        yield Section("What each setting contributes", tuple(ablation_parts(front, findings.ablation)))
    if curves:
        yield Section("Load", (load_words(curves), Figure("load"), load_table(curves)))
    yield Section("Failures", (failure_table(attempts),))
    if finalists:
        yield Section("Knob activity", (activity_table(attempts, finalists),))
        checked = output_table(attempts, finalists, findings.study.space.output_check)
        yield Section("Output check", tuple(filter(None, (wrong_answers(attempts), checked))))
    if findings.probe is not None:
        yield Section("All-reduce probe", probe_parts(findings.probe))
    yield Section("Machine", (machine_table(attempts), conditions_table(attempts, finalists)))
    yield Section(
        "Commands", tuple(command_parts(findings.study, findings.attempts, front, chosen, findings.confirmation))
    )


def _caution_table(cautions: Sequence[Caution]) -> Table:
    rows = [
        (c.code.value, f"{c.code.meaning}: {c.detail}", c.code.advice, trial_list(c.trials) or "study")
        for c in cautions
    ]
    return Table(("code", "what was seen", "what to do", "trials"), tuple(rows))
