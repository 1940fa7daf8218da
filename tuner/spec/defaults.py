"""Can a knob's `default` be what the engine itself takes?

It may lie beside the values that are searched, since it says what leaving the setting out means. It may not lie beside
what the knob or the engine's parser can hold at all.
"""

from __future__ import annotations

from types import UnionType

from tuner.domain.catalogue import FlagCatalogue, closest
from tuner.domain.knob import Knob
from tuner.domain.landing import refusal, resolve_flag
from tuner.domain.space import Hardware, Space
from tuner.domain.values import Value, same, spell
from tuner.spec.findings import Findings
from tuner.spec.nccl import remarks_on
from tuner.spec.reach import Reach
from tuner.spec.secrecy import knob_holds_secret, secret_in_file
from tuner.spec.settings import knob_place, possible_knobs


def check_defaults(
    space: Space, engine: str, catalogue: FlagCatalogue, reach: Reach | None, findings: Findings
) -> None:
    """Check the `default` of every knob that can be active; see `possible_knobs` for `reach`."""
    for name, knob in possible_knobs(space, engine, reach).items():
        place = (*knob_place(space, engine, name), "default")
        if knob_holds_secret(name, knob, knob.default, catalogue):
            findings.error(place, *secret_in_file(name))
        elif (fault := default_fault(knob, catalogue, space.hardware)) is not None:
            findings.error(place, *fault)
        elif (meant := _perhaps_meant(knob, catalogue)) is not None:
            said = f"{spell(knob.default)} is not among the knob's values"
            findings.warn(place, f"{said}, and nothing here tells what {knob.target} takes", f"did you mean {meant}?")


def default_fault(knob: Knob, catalogue: FlagCatalogue, hardware: Hardware) -> tuple[str, str | None] | None:
    """Message and hint when a knob's `default` is wrong for sure; None when it is not, or when nobody knows."""
    value = knob.default
    if value is None or any(same(value, choice) for choice in knob.values or ()):
        return None  # a choice that the engine does not take is reported where it stands
    if knob.switch:
        return None if isinstance(value, bool) else ("must be on or off: the knob is a switch", None)
    if knob.int_range is not None and not _is_number(value, int):
        return f"must be a whole number, not {spell(value)}: the knob is a range of integers", None
    on_scale = knob.float_range is not None or _is_scale(knob)
    if on_scale and not _is_number(value, int | float):
        return f"must be a number, not {spell(value)}: the knob is a scale of numbers", None
    if knob.env is not None:
        fatal = (remark for remark in remarks_on(knob.env, value, hardware) if remark.fatal)
        return next(((f"{knob.env}={spell(value)}: {remark.message}", remark.hint) for remark in fatal), None)
    spec, landing = resolve_flag(catalogue, str(knob.flag), knob.key)
    if spec is None or not spec.takes_value or (landing.key is None and spec.default == value):
        return None
    reason = refusal(spec, landing, value)
    return None if reason is None else (f"{spec.name} {reason}", None)


def _perhaps_meant(knob: Knob, catalogue: FlagCatalogue) -> str | None:
    """The value of the knob that its `default` looks like a slip of, where nobody knows what the engine takes."""
    choices = tuple(value for value in knob.values or () if isinstance(value, str))
    if not isinstance(knob.default, str) or knob.default in choices or (knob.env or "").startswith("NCCL_"):
        return None
    if knob.flag is not None:
        spec, landing = resolve_flag(catalogue, knob.flag, knob.key)
        if spec is None or landing.key is not None or spec.choices or spec.default == knob.default:
            return None
    return closest(knob.default, choices)


def outside(knob: Knob, value: Value) -> str:
    """In which way a value is none of those that a knob searches: `outside 1…8`, `not among its values LL, Simple`."""
    if knob.numeric_range is None:
        return f"not among its values {', '.join(map(spell, knob.grid))}"
    low, high = knob.numeric_range.low, knob.numeric_range.high
    inside = isinstance(value, int | float) and low <= value <= high
    return f"{'between the steps of' if inside else 'outside'} {low}…{high}"


def _is_scale(knob: Knob) -> bool:
    steps = [value for value in knob.values or () if value is not None]
    return knob.ordered and bool(steps) and all(_is_number(step, int | float) for step in steps)


def _is_number(value: Value, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
