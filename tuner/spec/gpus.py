"""Does what the space may launch fit on the GPUs of a launch?

Degrees of parallelism multiply. A server that is told to use more GPUs than it sees fails at once, one launch after
the other; so the baseline must fit, and what never can is left out of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from tuner.domain.candidate import active_knobs
from tuner.domain.catalogue import FlagCatalogue, GpuNeed
from tuner.domain.conditions import Comparison
from tuner.domain.knob import Knob
from tuner.domain.landing import landing_of
from tuner.domain.space import Rule, Space
from tuner.domain.values import Assignment, Value, counted, spell
from tuner.spec.baseline import BaselineSettings
from tuner.spec.findings import Findings
from tuner.spec.reach import MAX_WORLDS
from tuner.spec.settings import knob_place


def check_gpus(
    space: Space, engine: str, catalogue: FlagCatalogue, baseline: BaselineSettings, findings: Findings
) -> tuple[Rule, ...]:
    """Note an error where the baseline needs more GPUs than a launch has, and a warning for each value that does.

    Returns:
        Rules that keep such values, and combinations of values, out of the search.
    """
    if not space.hardware.gpus:
        return ()
    parallel = _Parallel(space, engine, catalogue, baseline)
    active = active_knobs(space.knobs_of(engine), baseline.values, engine)
    if (need := parallel.exceeding(active)) is not None:
        _note_baseline(space, engine, catalogue, parallel, need, active, findings)
        return ()
    if prod(len(knob.grid) for knob in parallel.knobs.values()) > MAX_WORLDS:
        return ()
    combinations = [dict(zip(parallel.knobs, row, strict=True)) for row in product(*parallel.grids)]
    return tuple(_left_out(space, engine, parallel, combinations, findings))


class _Parallel:
    """How many GPUs one engine of a space takes with which values of its knobs."""

    def __init__(self, space: Space, engine: str, catalogue: FlagCatalogue, baseline: BaselineSettings) -> None:
        self._gpus = space.hardware.gpus
        self._catalogue = catalogue
        self._fixed = {catalogue.canonical(flag): value for flag, value in baseline.flags.items()}
        self._needs = catalogue.gpu_needs
        flags = {flag for need in self._needs for flag in (*need.flags, *filter(None, [need.unless]))}
        landings = {name: landing_of(knob, catalogue) for name, knob in space.knobs_of(engine).items()}
        self.knob_of = {at.name: name for name, at in landings.items() if at.key is None and at.name in flags}
        self.knobs: Mapping[str, Knob] = {name: space.knobs_of(engine)[name] for name in self.knob_of.values()}

    @property
    def grids(self) -> Iterator[tuple[Value, ...]]:
        """The values of each knob."""
        return (tuple(knob.grid) for knob in self.knobs.values())

    def exceeding(self, values: Assignment) -> GpuNeed | None:
        """The need that these values drive beyond the GPUs of a launch, or None."""
        return next((need for need in self._needs if self.needed(need, values) > self._gpus), None)

    def needed(self, need: GpuNeed, values: Assignment) -> int:
        """GPUs for one need; 0 where it does not apply."""
        if need.unless is not None and self._is_on(need.unless, values):
            return 0
        return prod(self.degree(flag, values) for flag in need.flags)

    def degree(self, flag: str, values: Assignment) -> int:
        """What a flag says with these values, else its knob or its parser by default, else 1."""
        spec = self._catalogue.find(flag)
        name = self.knob_of.get(flag)
        told = self._fixed.get(flag) if name is None else values.get(name)
        if told is None and name is not None:
            told = self.knobs[name].default
        if told is None and spec is not None:
            told = spec.default
        text = str(told)
        return max(1, int(text)) if text.isdecimal() else 1

    def _is_on(self, flag: str, values: Assignment) -> bool:
        name = self.knob_of.get(flag)
        if name is None:
            return self._fixed.get(flag) is True
        value = values.get(name)
        return value is not None and self.knobs[name].given(value) is True


def _note_baseline(
    space: Space,
    engine: str,
    catalogue: FlagCatalogue,
    parallel: _Parallel,
    need: GpuNeed,
    active: Assignment,
    findings: Findings,
) -> None:
    """The error stands where the last of the degrees above one comes from."""
    degrees = {flag: parallel.degree(flag, active) for flag in need.flags}
    above = {flag: degree for flag, degree in degrees.items() if degree > 1}
    told = " × ".join(f"{flag} {degree}" for flag, degree in above.items())
    have = counted(space.hardware.gpus, "GPU")
    message = f"{told}: the baseline of {engine} needs {prod(above.values())} GPUs, and a launch has {have}"
    hint = "raise hardware.gpus (or --gpus), or lower what multiplies"
    flag, part = list(above)[-1], space.engines[engine]
    name = parallel.knob_of.get(flag)
    written = next((one for one in part.flags if catalogue.canonical(one) == flag), None)
    if written is not None:
        findings.error(("engines", engine, "flags", written), message, hint)
    elif name is not None and name in part.baseline.set:
        findings.error(("engines", engine, "baseline", "set", name), message, hint)
    elif part.baseline.command is not None:
        spec = catalogue.find(flag)
        spellings = (flag, *(spec.aliases if spec is not None else ()))
        word = next((one for one in spellings if one in part.baseline.command), flag)
        findings.error_at(("engines", engine, "baseline", "command"), word, message, hint)
    else:
        place = ("engines", engine) if name is None else knob_place(space, engine, name)
        findings.error(place, message, hint, key=True)


def _left_out(
    space: Space, engine: str, parallel: _Parallel, combinations: list[dict[str, Value]], findings: Findings
) -> Iterator[Rule]:
    fits = [one for one in combinations if parallel.exceeding(one) is None]
    never: dict[str, list[Value]] = {}
    for name, knob in parallel.knobs.items():
        possible = {spell(one[name]) for one in fits}
        never[name] = [value for value in knob.grid if spell(value) not in possible]
    too_many = f"more GPUs than the {space.hardware.gpus} that a launch has"
    for name, values in never.items():
        if values:
            place = knob_place(space, engine, name)
            told = f"{name} {', '.join(map(spell, values))}"
            findings.warn(place, f"{told}: needs {too_many}, and is left out of the search", key=True)
            yield Rule(forbid=str(Comparison(name, "in", tuple(values))), because=f"needs {too_many}")
    for one in combinations:
        alone = any(spell(one[name]) in map(spell, values) for name, values in never.items())
        if alone or (need := parallel.exceeding(one)) is None:
            continue
        names = [parallel.knob_of[flag] for flag in need.flags if flag in parallel.knob_of]
        told, needed = " and ".join(f"{name} {spell(one[name])}" for name in names), parallel.needed(need, one)
        message = f"{told}: together they need {needed} GPUs, and are left out of the search"
        findings.warn(knob_place(space, engine, names[-1]), message, key=True)
        forbid = " and ".join(str(Comparison(name, "==", (value,))) for name, value in one.items())
        yield Rule(forbid=forbid, because=f"needs {needed} GPUs, and a launch has {space.hardware.gpus}")
