"""The plan that `tuner study start` shows before it begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.cli.output import console, print_json
from tuner.cli.wording import SIMULATED, duration, goal_document, limit_document, loads_in_words
from tuner.domain.space import Space
from tuner.domain.values import counted, spell
from tuner.spec.reach import reach_of
from tuner.study.extent import Extent, automatic_extent, no_extent_words
from tuner.study.preparing import Prepared
from tuner.study.stopping import ends_when
from tuner.study.warmstart import EarlierStudy, Teachers
from tuner.trial.script import launch_script

_OFFERS = 3
"""So many earlier studies are described; all of them are counted."""


def plan_document(prepared: Prepared, teachers: Teachers) -> dict[str, Any]:
    """What the plan says; its keys are listed in docs/json.md."""
    record, space = prepared.record, prepared.record.space
    budget = space.budget
    plan = prepared.first_plan()
    confirm = _confirmation(prepared)
    worst = budget.trials * (budget.launch_timeout_s + budget.benchmark_timeout_s)
    return {
        "study": record.name,
        "simulated": record.simulated,
        "model": space.model,
        "engines": {
            name: {
                "version": setup.installed.version,
                "flags_of": setup.catalogue.version,
                "program": list(setup.installed.program),
                "knobs": len(space.knobs_of(name)),
                "combinations": (reach := reach_of(space, name)).size,
                "combinations_exact": reach.exact,
            }
            for name, setup in prepared.setups.items()
        },
        "gpus": prepared.gpus,
        "levels": list(space.workload.levels),
        "rates": list(space.workload.rates),
        "objectives": [goal_document(goal) for goal in space.goals],
        "limits": [limit_document(limit) for limit in space.limits],
        "budget": budget.model_dump(mode="json"),
        "baseline_launches": budget.baseline_launches * len(space.engines),
        "confirmation": None
        if confirm is None
        else {"launches": confirm.launches, "finalists": confirm.finalists, "rounds": confirm.rounds},
        "why_no_confirmation": None if confirm else no_extent_words(budget, engines=len(space.engines)),
        "worst_case_s": worst if budget.hours is None else min(worst, budget.hours * 3600),
        "likely": {name: _likely(space, name) for name in prepared.setups},
        "warm_start": [teacher_document(earlier) for earlier in teachers.named],
        "warm_start_offers": [teacher_document(earlier) for earlier in teachers.offered],
        "first_launch": {"argv": list(plan.argv), "env": dict(plan.env)},
        "probe": space.probe,
        "warnings": list(prepared.warnings),
    }


def _confirmation(prepared: Prepared) -> Extent | None:
    """What is set aside for the confirmation when launches take no longer than planned."""
    space = prepared.record.space
    return automatic_extent(space.budget, engines=len(space.engines))


def _likely(space: Space, engine: str) -> dict[str, dict[str, Any]]:
    """Knob → the values that the space file expects to be good, and why."""
    priors = {name: knob.prior for name, knob in space.knobs_of(engine).items() if knob.prior is not None}
    return {name: {"values": list(prior.likely), "reason": prior.reason} for name, prior in priors.items()}


def teacher_document(earlier: EarlierStudy) -> dict[str, Any]:
    """Keys: study, configurations, failures, doubt (a share), differs."""
    return {
        "study": earlier.name,
        "configurations": earlier.measured,
        "failures": earlier.failures,
        "doubt": earlier.doubt,
        "differs": list(earlier.differs),
    }


def show(prepared: Prepared, teachers: Teachers, *, as_json: bool, script: bool) -> None:
    """Print the plan; with `script`, the baseline's launch script too (on stdout, since it was asked for)."""
    document = plan_document(prepared, teachers)
    if as_json:
        print_json({**document, "launch_script": launch_script(prepared.first_plan(), Path.cwd())})
        return
    label = f" ({SIMULATED})" if prepared.record.simulated else ""
    console().print(f"study {document['study']}{label}", style="bold")
    for line in (*_lines(prepared, document), *_search_lines(prepared, teachers)):
        console().print(f"  {line}")
    if prepared.record.space.probe:
        console().print("  before the first launch: an all-reduce probe, about two minutes")
    for warning in prepared.warnings:
        console().print(f"warning: {warning}", style="yellow")
    if script:
        sys.stdout.write(launch_script(prepared.first_plan(), Path.cwd()))


def _lines(prepared: Prepared, document: dict[str, Any]) -> Iterator[str]:
    space = prepared.record.space
    for name, engine in document["engines"].items():
        version = engine["version"] or f"of unknown version (flags of {engine['flags_of']})"
        size = counted(engine["combinations"], "combination")
        size = size if engine["combinations_exact"] else f"at most {size}"
        yield f"{name} {version}: {counted(engine['knobs'], 'knob')}, {size}"
    gpus = f"{counted(prepared.gpus, 'GPU')} each" if prepared.gpus else "no GPU"
    measured = f"measured at {loads_in_words(space.workload.levels, space.workload.rates)}"
    yield f"{counted(space.budget.trials, 'launch')} ({gpus}), {measured}: {_parts(prepared, document)}"
    worst = duration(document["worst_case_s"])
    yield f"at the very worst {worst}, if every launch takes as long as it may; an estimate follows when one has ended"
    yield from (f"objective: {_named(goal)}" for goal in document["objectives"])
    yield from (f"limit: {limit['words']}" for limit in document["limits"])


def _search_lines(prepared: Prepared, teachers: Teachers) -> Iterator[str]:
    """What the search knows beforehand, and when it ends by itself."""
    space = prepared.record.space
    yield from _likely_lines(space)
    yield from (f"warm start: {earlier}" for earlier in teachers.named)
    if teachers.offered:
        many = len(teachers.offered)
        fit = f"{counted(many, 'earlier study')} {'fits' if many == 1 else 'fit'}"
        yield f"{fit}: --warm-start {teachers.offered[0].name}"
        yield from (f"  {earlier}" for earlier in teachers.offered[:_OFFERS])
    budget = space.budget
    yield f"ends {ends_when(budget, space.goals[0].label)}"
    if budget.stop_below_gain is None:
        yield "(--stop-below 1% would end the search once too little is left to win)"
    if budget.cut_short and any(goal.load < space.workload.loads[-1] for goal in space.goals):
        yield "a launch that an earlier one beats beyond noise on every objective is not measured at its last loads"


def _likely_lines(space: Space) -> Iterator[str]:
    """What the space expects to be good, once where all engines share it, else with the engine's name."""
    engines: dict[str, list[str]] = {}
    for engine in space.engines:
        for knob, prior in _likely(space, engine).items():
            said = f"{knob} = {', '.join(map(spell, prior['values']))}: {prior['reason']}"
            engines.setdefault(said, []).append(engine)
    for said, names in engines.items():
        of = "" if len(names) == len(space.engines) else f" with {' and '.join(names)}"
        yield f"likely, tried first{of}: {said}"


def _named(goal: dict[str, Any]) -> str:
    return f"{goal['label']}: {goal['direction']} {goal['words']}"


def _parts(prepared: Prepared, document: dict[str, Any]) -> str:
    """What the launches are for: `3 of the baseline first, 28 to search, at most 9 to confirm 2 finalists`."""
    launches, several = prepared.record.space.budget.trials, "s" if len(document["engines"]) > 1 else ""
    first = min(document["baseline_launches"], launches)
    confirm = document["confirmation"] or {"launches": 0}
    search = max(0, launches - first - confirm["launches"])
    begin = f"{first} of the baseline{several} first, {search} to search"
    if not confirm["launches"]:
        return f"{begin}, none to confirm what was found: {document['why_no_confirmation']}"
    finalists = counted(confirm["finalists"], "finalist")
    ends = f"at most {confirm['launches']} to confirm {finalists} against the baseline{several}"
    return f"{begin}, {ends} ({counted(confirm['rounds'], 'round')})"
