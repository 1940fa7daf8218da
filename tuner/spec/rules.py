"""Do the conditions and rules make sense: known names, possible values, no circles, something left to try?"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.domain.catalogue import closest
from tuner.domain.conditions import Comparison, comparisons
from tuner.domain.knob import Knob
from tuner.domain.space import Rule, Space
from tuner.domain.values import Value, same, spell
from tuner.spec.findings import Findings, Place
from tuner.spec.reach import CyclicConditions, Reach, reach_of
from tuner.spec.settings import knob_place
from tuner.spec.shape import NO_RULE


def check_rules(space: Space, dropped: frozenset[str], findings: Findings) -> dict[str, Reach | None]:
    """Check every condition and rule.

    Args:
        dropped: knobs that the file has but that could not be read; nothing is said about conditions on them.

    Returns:
        For each engine what can happen, or None when that cannot be told because of errors.
    """
    before = len(findings.errors)
    for place, text, offered in _conditions(space):
        for comparison in offered:
            _check_comparison(space, comparison, place, text, dropped, findings)
    sound = len(findings.errors) == before and not dropped
    for place, name, knob, _ in _declared(space):
        _check_prior(place, name, knob, findings)
    found: dict[str, Reach | None] = {}
    for engine in space.engines:
        found[engine] = None
        try:
            reach = reach_of(space, engine)
        except CyclicConditions as error:
            for name in dict.fromkeys(error.circle):
                place = (*knob_place(space, engine, name), "when")
                findings.error(place, f"conditions depend on each other in a circle: {error}")
            continue
        if sound:
            found[engine] = reach
    if sound:
        _check_possible(space, {name: reach for name, reach in found.items() if reach is not None}, findings)
    return found


def rule_place(space: Space, engine: str, index: int) -> Place:
    """Where the rule stands that has this position in `space.rules_of(engine)`."""
    shared = len(space.rules)
    return ("rules", index, "forbid") if index < shared else ("engines", engine, "rules", index - shared, "forbid")


def _conditions(space: Space) -> Iterator[tuple[Place, str, list[Comparison]]]:
    def of_knob(place: Place, knob: Knob) -> Iterator[tuple[Place, str, list[Comparison]]]:
        if knob.condition is not None:
            yield (*place, "when"), str(knob.when), list(comparisons(knob.condition))

    def of_rules(place: Place, rules: tuple[Rule, ...]) -> Iterator[tuple[Place, str, list[Comparison]]]:
        for index, rule in enumerate(rules):
            if rule.forbid != NO_RULE:
                yield (*place, index, "forbid"), rule.forbid, list(comparisons(rule.condition))

    for name, knob in space.knobs.items():
        yield from of_knob(("knobs", name), knob)
    yield from of_rules(("rules",), space.rules)
    for engine, part in space.engines.items():
        for name, knob in part.knobs.items():
            yield from of_knob(("engines", engine, "knobs", name), knob)
        yield from of_rules(("engines", engine, "rules"), part.rules)


def _check_comparison(
    space: Space, comparison: Comparison, place: Place, text: str, dropped: frozenset[str], findings: Findings
) -> None:
    name = comparison.name
    if name == "engine":
        for value in comparison.values:
            if value not in space.engines:
                guess = closest(spell(value), tuple(space.engines))
                hint = f"did you mean {guess}?" if guess else f"engines: {', '.join(space.engines)}"
                message = f"this space has no engine {spell(value)}"
                findings.error(place, message, hint, offset=comparison.offset)
        return
    if name in dropped:
        return
    own = place[1] if place[0] == "engines" else None
    engines = [str(own)] if own is not None else list(space.engines)
    knobs = [space.knobs_of(engine)[name] for engine in engines if name in space.knobs_of(engine)]
    if not knobs:
        known = {name for engine in engines for name in space.knobs_of(engine)}
        near = closest(name, (*sorted(known), "engine"))
        advice = f"did you mean {near}?" if near else None
        findings.error(place, f"there is no knob {name}", advice, offset=comparison.offset)
        return
    if comparison.op in ("<", "<=", ">", ">="):
        _check_order(comparison, knobs, place, findings)
        return
    for value in comparison.values:
        if value is not None and not any(knob.allows(value) for knob in knobs):
            _report_impossible(comparison, value, knobs, place, findings)


def _check_order(comparison: Comparison, knobs: list[Knob], place: Place, findings: Findings) -> None:
    value = comparison.values[0]
    comparable = [
        v for knob in knobs for v in knob.grid if v is not None and isinstance(v, str) == isinstance(value, str)
    ]
    if value is None or isinstance(value, bool) or not comparable:
        message = f"{comparison.name} {comparison.op} {spell(value)} never holds: its values have no such order"
        findings.error(place, message, offset=comparison.offset)


def _report_impossible(
    comparison: Comparison, value: Value, knobs: list[Knob], place: Place, findings: Findings
) -> None:
    choices = [spell(choice) for choice in knobs[0].grid if choice is not None]
    guess = closest(spell(value), tuple(choices))
    shown = ", ".join(choices[:10]) + (" …" if len(choices) > 10 else "")
    hint = f"did you mean {guess}?" if guess else f"its values: {shown}"
    findings.error(place, f"{comparison.name} is never {spell(value)}", hint, offset=comparison.offset)


# ---------------------------------------------------------------- is there anything left?


def _check_possible(space: Space, reaches: dict[str, Reach], findings: Findings) -> None:
    for engine, reach in reaches.items():
        _check_contradictions(space, engine, reach, findings)
    for index, rule in enumerate(space.rules):
        if rule.forbid != NO_RULE and not any(_ever_holds(reach, index) for reach in reaches.values()):
            findings.warn(("rules", index, "forbid"), "this rule never applies")
    for engine, reach in reaches.items():
        for index in range(len(space.rules), len(reach.rules)):
            if reach.rules[index].forbid != NO_RULE and not _ever_holds(reach, index):
                findings.warn(rule_place(space, engine, index), "this rule never applies")
    for place, name, knob, engines in _declared(space):
        _check_knob_lives(place, name, knob, [reaches[engine] for engine in engines if engine in reaches], findings)


def _ever_holds(reach: Reach, index: int) -> bool:
    return any(group.worlds is None or any(index in world.broken for world in group.worlds) for group in reach.groups)


def _check_contradictions(space: Space, engine: str, reach: Reach, findings: Findings) -> None:
    for group in reach.groups:
        if group.worlds is None or any(group.allowed):
            continue
        always = set.intersection(*(set(world.broken) for world in group.worlds))
        involved = sorted(always) or sorted({index for world in group.worlds for index in world.broken})
        message = "forbids every combination" if always else "with the other rules, forbids every combination"
        for index in involved:
            findings.error(rule_place(space, engine, index), f"{message} of {engine}")


def _declared(space: Space) -> Iterator[tuple[Place, str, Knob, list[str]]]:
    """Every knob where it is written, with the engines that use that very entry."""
    for name, knob in space.knobs.items():
        yield ("knobs", name), name, knob, [e for e, part in space.engines.items() if name not in part.knobs]
    for engine, part in space.engines.items():
        for name, knob in part.knobs.items():
            yield ("engines", engine, "knobs", name), name, knob, [engine]


def _check_prior(place: Place, name: str, knob: Knob, findings: Findings) -> None:
    for index, value in enumerate(knob.prior.likely if knob.prior is not None else ()):
        if not knob.allows(value):
            findings.error((*place, "prior", "likely", index), f"{name} is never {spell(value)}")


def _check_knob_lives(place: Place, name: str, knob: Knob, reaches: list[Reach], findings: Findings) -> None:
    groups = [reach.group_of[name] for reach in reaches]
    if not groups or any(group.worlds is None for group in groups):
        return
    if not any(name in world.classes for group in groups for world in group.worlds or ()):
        findings.error((*place, "when"), f"this condition never holds, so {name} can never be active")
        return
    possible = [value for group in groups for world in group.allowed for value in world.classes.get(name, ())]
    if not possible:
        # Every combination is forbidden; that is said at the rules.
        return
    for index, value in enumerate(knob.values or ()):
        if not any(same(value, seen) for seen in possible):
            findings.error((*place, "values", index), f"{name}={spell(value)} is forbidden in every combination")
