"""Does the engine take what the space would give it? Flags, values, variables, and what may never be set."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tuner.domain.catalogue import FlagCatalogue, FlagSpec, leaves
from tuner.domain.denied import REACHED_BY_DEFAULT, DenyList
from tuner.domain.knob import Knob
from tuner.domain.landing import Landing, landing_of, refusal, resolve_flag
from tuner.domain.space import Space
from tuner.domain.values import FlagValue, Value, spell
from tuner.spec.findings import Findings, Place
from tuner.spec.nccl import remarks_on
from tuner.spec.reach import Reach
from tuner.spec.secrecy import holds_secret, knob_holds_secret, secret_in_file

OWN_FLAGS = frozenset({"--host", "--port", "--model", "--model-path", "--model-tag", "--served-model-name"})
"""Flags that tuner itself gives every launch."""


def knob_place(space: Space, engine: str, name: str) -> Place:
    """Where a knob of an engine stands in the file: among its own knobs, or among the shared ones."""
    if name in space.engines[engine].knobs:
        return ("engines", engine, "knobs", name)
    return ("knobs", name)


def check_settings(
    space: Space, engine: str, catalogue: FlagCatalogue, reach: Reach | None, findings: Findings, deny: DenyList
) -> None:
    """Check every knob and fixed setting of one engine against its catalogue.

    Args:
        reach: see `possible_knobs`.
        deny: what may not be set.
    """
    possible = possible_knobs(space, engine, reach)
    for name, knob in possible.items():
        place = knob_place(space, engine, name)
        for value_place, value in _values(knob, place):
            if knob_holds_secret(name, knob, value, catalogue):
                findings.error(value_place, *secret_in_file(name))
        if knob.env is not None:
            for value_place, value in _values(knob, place):
                _check_variable(space, knob.env, knob.given(value), value_place, findings, deny)
        else:
            _check_flag_knob(engine, catalogue, knob, place, findings, deny)
    _check_fixed(space, engine, catalogue, findings, deny)
    _check_program(space, engine, catalogue, findings, deny)
    _check_reached_by_default(space, engine, catalogue, possible, findings)
    _check_collisions(space, engine, catalogue, possible, reach, findings)
    _check_kept(space, engine, catalogue, possible, findings, deny)


def possible_knobs(space: Space, engine: str, reach: Reach | None) -> dict[str, Knob]:
    """The knobs of an engine that can be active.

    Args:
        reach: tells which; None when the conditions themselves are wrong, then all count as active.
    """
    knobs = space.knobs_of(engine)
    return {name: knob for name, knob in knobs.items() if reach is None or _can_be_active(reach, name)}


def _can_be_active(reach: Reach, name: str) -> bool:
    worlds = reach.group_of[name].worlds
    return worlds is None or any(name in world.classes for world in worlds)


def _values(knob: Knob, place: Place) -> Iterator[tuple[Place, Value]]:
    """Each value that the knob may take (the ends of a range), with its place in the file."""
    if knob.values is not None:
        for index, value in enumerate(knob.values):
            yield (*place, "values", index), value
    elif knob.numeric_range is not None:
        kind = "int" if knob.int_range is not None else "float"
        yield (*place, kind, "low"), knob.numeric_range.low
        yield (*place, kind, "high"), knob.numeric_range.high
    else:
        yield (*place, "switch"), True
        yield (*place, "switch"), False


def _check_flag_knob(
    engine: str, catalogue: FlagCatalogue, knob: Knob, place: Place, findings: Findings, deny: DenyList
) -> None:
    spec, landing = resolve_flag(catalogue, str(knob.flag), knob.key)
    if not _check_name(engine, catalogue, str(knob.flag), (*place, "flag"), findings) or spec is None:
        return
    if catalogue.negates(str(knob.flag)):
        # Baseline commands and servers speak of the toggle itself; they would give the opposite value to this knob.
        hint = f"write `flag: {spec.name}`, and `inverted: true` where the knob means the opposite"
        findings.error((*place, "flag"), f"{knob.flag} only turns {spec.name} off", hint)
        return
    if landing.key is not None and spec.kind != "json" and spec.type not in (None, "str", "json"):
        findings.error((*place, "key"), f"{spec.name} takes no JSON value, so it has no key {landing.key}")
        return
    if landing.key is not None and (reason := spec.refuses_key(landing.key)) is not None:
        findings.error((*place, "key" if knob.key is not None else "flag"), f"{spec.name} {reason}")
        return
    for value_place, raw in _values(knob, place):
        value = knob.given(raw)
        if value is None:
            continue
        if (denied := deny.refuses_flag(engine, spec.name, value)) is not None:
            findings.error(value_place, f"{spec.name} {spell(value)} is not allowed: {denied.reason}", denied.hint)
        elif value is False and not spec.takes_value:
            continue
        elif (reason := refusal(spec, landing, value)) is not None:
            findings.error(value_place, f"{spec.name} {reason}")
        elif spec.kind == "list" and isinstance(value, str) and " " in value and not knob.split:
            findings.error(value_place, f"{spec.name} takes several words; this would be one", "add `split: true`")


def _check_name(
    engine: str, catalogue: FlagCatalogue, flag: str, place: Place, findings: Findings, *, key: bool = False
) -> bool:
    """Whether a flag is known and free to use; `key` points at the place's key instead of its value."""
    spec, landing = resolve_flag(catalogue, flag)
    if (short := catalogue.abbreviation(flag.partition(".")[0])) is not None:
        findings.error(place, short, key=key)
        return False
    if spec is None:
        what = "was removed" if flag in catalogue.removed else "is unknown"
        findings.error(place, f"{flag} {what} in {engine} {catalogue.version}", catalogue.advice(flag), key=key)
        return False
    if spec.name in OWN_FLAGS:
        hint = "the space's `model` and `served_model` name the model"
        findings.error(place, f"tuner sets {spec.name} itself", hint, key=key)
        return False
    reason = catalogue.why_dead(landing.name)
    if reason is not None:
        findings.warn(place, f"{flag} has no effect in {engine} {catalogue.version}: {reason}", key=key)
    return True


def _check_variable(space: Space, name: str, value: Value, place: Place, findings: Findings, deny: DenyList) -> None:
    if (denied := deny.refuses_env(name, value)) is not None:
        findings.error(place, f"{name}={spell(value)} is not allowed: {denied.reason}", denied.hint)
        return
    for remark in remarks_on(name, value, space.hardware):
        note = findings.error if remark.fatal else findings.warn
        note(place, f"{name}={spell(value)}: {remark.message}", remark.hint)


def _check_fixed(space: Space, engine: str, catalogue: FlagCatalogue, findings: Findings, deny: DenyList) -> None:
    seen: set[str] = set()
    for flag, value in space.engines[engine].flags.items():
        place = ("engines", engine, "flags", flag)
        spec, landing = resolve_flag(catalogue, flag)
        if not _check_name(engine, catalogue, flag, place, findings, key=True) or spec is None:
            continue
        if spec.name in seen and "." not in flag:
            findings.error(place, f"{spec.name} is given twice", key=True)
        seen.add(spec.name)
        if any(holds_secret(spec.name, one) for one in (value if isinstance(value, tuple) else (value,))):
            findings.error(place, *secret_in_file(spec.name))
        for one in value if isinstance(value, tuple) else (value,):
            _check_fixed_value(engine, spec, landing, one, isinstance(value, tuple), place, findings, deny)
    for name, text in space.engines[engine].env.items():
        place = ("engines", engine, "env", name)
        if holds_secret(name, str(text)):
            findings.error(place, *secret_in_file(name))
        _check_variable(space, name, text, place, findings, deny)


def _check_program(space: Space, engine: str, catalogue: FlagCatalogue, findings: Findings, deny: DenyList) -> None:
    command = space.engines[engine].command
    if command is not None and (why := deny.refuses_program(engine, catalogue, command)) is not None:
        findings.error(("engines", engine, "command"), f"not allowed: {why}")


def _check_reached_by_default(
    space: Space, engine: str, catalogue: FlagCatalogue, knobs: dict[str, Knob], findings: Findings
) -> None:
    """What reaches multicast without being asked may not be turned on, unless a harmless way is fixed."""
    # Place in the file, canonical flag, value as the engine gets it.
    given: list[tuple[Place, str, FlagValue]] = [
        (("engines", engine, "flags", flag), catalogue.canonical(flag), value)
        for flag, value in space.engines[engine].flags.items()
    ]
    for way in REACHED_BY_DEFAULT.get(engine, ()):
        if space.hardware.gpus < 2 or not way.concerns(space.hardware.compute_capability):
            continue
        if any(flag == way.unless and value is not None for _, flag, value in given):
            continue
        for name, knob in knobs.items():
            if landing_of(knob, catalogue).name == way.off:
                where = knob_place(space, engine, name)
                given += [(place, way.off, knob.given(value)) for place, value in _values(knob, where)]
        for place, flag, value in given:
            if flag == way.off and value is False:
                findings.error(place, f"{way.off} off is not allowed: {way.reason}", way.hint)


def _check_fixed_value(
    engine: str,
    spec: FlagSpec,
    landing: Landing,
    value: Value,
    listed: bool,
    place: Place,
    findings: Findings,
    deny: DenyList,
) -> None:
    if value is None:
        return
    if landing.key is not None:
        if (reason := spec.refuses_key(landing.key, value)) is not None:
            findings.error(place, f"{spec.name} {reason}")
    elif (denied := deny.refuses_flag(engine, spec.name, value)) is not None:
        findings.error(place, f"{spec.name} {spell(value)} is not allowed: {denied.reason}", denied.hint)
    elif listed and spec.kind != "list":
        findings.error(place, f"{spec.name} takes one value, not a list")
    elif (reason := spec.refuses(value)) is not None:
        findings.error(place, f"{spec.name} {reason}")


# ---------------------------------------------------------------- two settings for one place


def _check_collisions(
    space: Space,
    engine: str,
    catalogue: FlagCatalogue,
    knobs: dict[str, Knob],
    reach: Reach | None,
    findings: Findings,
) -> None:
    landings = {name: landing_of(knob, catalogue) for name, knob in knobs.items()}
    names = list(landings)
    for index, name in enumerate(names):
        knob, place = knobs[name], knob_place(space, engine, name)
        where = (*place, "env" if knob.env is not None else "flag")
        for fixed in _fixed_landings(space, engine, catalogue):
            if landings[name].overlaps(fixed):
                shown = fixed.name if fixed.key is None else f"{fixed.name} {fixed.key}"
                findings.error(where, f"{shown} is also fixed for {engine}", "remove one of the two")
        for other in names[:index]:
            if landings[name].overlaps(landings[other]) and (reach is None or _meet(reach, name, other)):
                message = f"sets the same place as knob {other}, and both can be active at once"
                findings.error(where, message, "give them `when` conditions that exclude each other")


def _check_kept(
    space: Space, engine: str, catalogue: FlagCatalogue, knobs: dict[str, Knob], findings: Findings, deny: DenyList
) -> None:
    """What every launch keeps is no knob."""
    flags = {catalogue.canonical(name): value for name, value in deny.kept_flags.get(engine, {}).items()}
    for name, knob in knobs.items():
        landing = landing_of(knob, catalogue)
        kept = deny.kept_env.get(landing.name) if knob.env is not None else flags.get(landing.name)
        if kept is not None:
            place = (*knob_place(space, engine, name), "env" if knob.env is not None else "flag")
            findings.error(place, f"{landing.name} is kept at {spell(kept)} in every launch")


def _fixed_landings(space: Space, engine: str, catalogue: FlagCatalogue) -> Iterator[Landing]:
    for flag, value in space.engines[engine].flags.items():
        spec, landing = resolve_flag(catalogue, flag)
        keys = _json_keys(value) if spec is not None and spec.kind == "json" and landing.key is None else None
        if keys is None:
            yield landing
        else:
            yield from (Landing(landing.name, key) for key in keys)
    yield from (Landing(name) for name in space.engines[engine].env)


def _json_keys(value: object) -> list[str] | None:
    """Dotted keys of a fixed JSON object: knobs may fill in others of the same flag."""
    try:
        tree = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if not isinstance(tree, dict):
        return None
    return [key for key, _ in leaves(tree)]


def _meet(reach: Reach, one: str, other: str) -> bool:
    """Whether two knobs can be active in the same launch."""
    group = reach.group_of[one]
    if other not in group.knobs or group.worlds is None:
        return True
    return any(one in world.classes and other in world.classes for world in group.worlds)
