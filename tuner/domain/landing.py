"""Where a setting ends: in a variable, in a flag under its canonical spelling, or in a key of a flag's JSON value."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.domain.catalogue import FlagCatalogue, FlagSpec
from tuner.domain.knob import Knob
from tuner.domain.values import Scalar


@dataclass(frozen=True, slots=True)
class Landing:
    """One place.

    Attributes:
        name: variable, or flag in its canonical spelling.
        key: dotted key of the flag's JSON value; None for the whole of it.
    """

    name: str
    key: str | None = None

    def overlaps(self, other: Landing) -> bool:
        """Whether two settings write to the same place, or one inside the other."""
        if self.name != other.name:
            return False
        mine, theirs = (self.key or "").split("."), (other.key or "").split(".")
        return self.key is None or other.key is None or all(a == b for a, b in zip(mine, theirs, strict=False))


def resolve_flag(catalogue: FlagCatalogue, flag: str, key: str | None = None) -> tuple[FlagSpec | None, Landing]:
    """The catalogue's entry for a flag and where it lands; `-cc.mode` is key `mode` of the flag `-cc`."""
    spec = catalogue.find(flag)
    if spec is None and "." in flag:
        base, _, inner = flag.partition(".")
        spec = catalogue.find(base)
        if spec is not None and spec.kind == "json":
            return spec, Landing(spec.name, f"{inner}.{key}" if key else inner)
        return None, Landing(flag, key)
    return spec, Landing(spec.name if spec is not None else flag, key)


def landing_of(knob: Knob, catalogue: FlagCatalogue) -> Landing:
    """Where a knob lands."""
    return Landing(knob.env) if knob.env is not None else resolve_flag(catalogue, str(knob.flag), knob.key)[1]


def refusal(spec: FlagSpec, landing: Landing, value: Scalar) -> str | None:
    """Why the engine does not take a value where it lands; None when it does, or when nobody knows."""
    return spec.refuses(value) if landing.key is None else spec.refuses_key(landing.key, value)
