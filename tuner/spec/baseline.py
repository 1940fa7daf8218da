"""The user's present server as knob values and fixed settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.domain.catalogue import FlagCatalogue, FlagSpec
from tuner.domain.denied import BUILT_IN, DenyList
from tuner.domain.knob import Knob
from tuner.domain.landing import Landing, landing_of, refusal, resolve_flag
from tuner.domain.space import Space
from tuner.domain.values import Assignment, FlagValue, Scalar, Value, spell
from tuner.errors import Problem, SpecError
from tuner.secrets import is_secret_name
from tuner.spec.command import import_command
from tuner.spec.command.model import FlagText, LaunchCommand
from tuner.spec.defaults import default_fault, outside
from tuner.spec.findings import Findings, Place
from tuner.spec.fitting import Unfit, fit, means_off, pop_key
from tuner.spec.secrecy import holds_secret, secret_in_file
from tuner.spec.settings import OWN_FLAGS, knob_place
from tuner.yamlfile import Document

_NODE_COUNTS = frozenset({"--nnodes"})


@dataclass(frozen=True, slots=True)
class BaselineSettings:
    """The baseline of one engine.

    Attributes:
        values: a value for every knob of the engine (inactive ones too), None for unset.
        flags: flags of every launch: the space's fixed ones and those of the baseline command that are no knobs.
        env: variables of every launch, likewise.
        written: knobs that the baseline itself gives a value; the others are left to the engine.
    """

    values: Assignment
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, Scalar] = field(default_factory=dict)
    written: frozenset[str] = frozenset()


def baseline_of(space: Space, engine: str, catalogue: FlagCatalogue, *, folder: Path | None = None) -> BaselineSettings:
    """The baseline of one engine of a space.

    With `baseline: {command: …}` every knob gets the value that the command gives it; what is no knob becomes a fixed
    setting; the address is dropped, since tuner chooses it. Otherwise `set:` decides, then unset where the knob allows
    it, then the knob's `default`, then the engine's.

    Args:
        folder: where files named by the command (`--config FILE`) are looked up; None does not follow them.

    Raises:
        SpecError: when a knob has no baseline value, or the command cannot be imported.
    """
    findings = Findings(Document(f"space {space.name}", "", None))
    settings = derive_baseline(space, engine, catalogue, findings, folder=folder)
    if findings.errors:
        # The file is not at hand, so its lines cannot be named.
        raise SpecError([Problem(p.file, 0, 0, p.path, p.message, hint=p.hint) for p in findings.errors])
    return settings


def derive_baseline(
    space: Space,
    engine: str,
    catalogue: FlagCatalogue,
    findings: Findings,
    *,
    folder: Path | None = None,
    deny: DenyList = BUILT_IN,
) -> BaselineSettings:
    """As `baseline_of`, but notes what is wrong; the settings are then incomplete."""
    part = space.engines[engine]
    place = ("engines", engine, "baseline")
    if part.baseline.command is not None:
        here = (*place, "command")
        command = import_command(part.baseline.command, engine=engine, catalogue=catalogue, folder=folder)
        if not _usable(space, engine, command, here, findings):
            return BaselineSettings({}, part.flags, part.env)
        return _Split(space, engine, catalogue, command, here, findings, deny).settings()
    values: dict[str, Value] = {}
    knobs = space.knobs_of(engine)
    for name in part.baseline.set:
        if name not in knobs:
            findings.error((*place, "set", name), f"{engine} has no knob {name}", key=True)
    for name, knob in knobs.items():
        if name not in part.baseline.set:
            values[name] = _left_alone(space, engine, name, catalogue, findings)
            continue
        values[name] = value = knob.own(part.baseline.set[name])
        if not knob.allows(value):
            findings.error((*place, "set", name), f"{name} cannot be {spell(value)}", _values_of(knob))
    return BaselineSettings(values, part.flags, part.env, frozenset(part.baseline.set))


def _values_of(knob: Knob) -> str:
    if knob.numeric_range is not None:
        return f"it goes from {knob.numeric_range.low} to {knob.numeric_range.high}" + (
            f" in steps of {knob.numeric_range.step}" if knob.numeric_range.step else ""
        )
    return f"its values: {', '.join(map(spell, knob.grid))}"


def _left_alone(space: Space, engine: str, name: str, catalogue: FlagCatalogue, findings: Findings) -> Value:
    """The value of a knob that the baseline leaves to the engine."""
    knob = space.knobs_of(engine)[name]
    if knob.allows(None):
        return None
    told = knob.default
    if told is None and knob.flag is not None and knob.key is None:
        spec, _ = resolve_flag(catalogue, knob.flag)
        if spec is None:
            # An unknown flag is reported as such; it has no value to ask for.
            return None
        if not spec.takes_value and knob.switch:
            # A switch that is left out is off; a toggle is what its parser says, if it says.
            landed = spec.default if isinstance(spec.default, bool) else None if spec.kind == "toggle" else False
            if landed is not None:
                return (not landed) if knob.inverted else landed
        told = spec.default
    if told is None:
        message = f"say what the baseline of {engine} is: nothing tells the value of this knob when it is left out"
        hint = f"give it a `default`, {_instead(engine, name)}"
        findings.error(knob_place(space, engine, name), message, hint, key=True)
        return None
    for value in (told, str(told)):
        if knob.allows(value):
            return knob.own(value)
    _note_outside(space, engine, name, told, catalogue, findings)
    return None


def _note_outside(
    space: Space, engine: str, name: str, told: Scalar, catalogue: FlagCatalogue, findings: Findings
) -> None:
    """The baseline leaves a knob at a value that is not searched; a `default` that cannot be is reported as such."""
    knob, place = space.knobs_of(engine)[name], knob_place(space, engine, name)
    message = f"the baseline of {engine} leaves this knob at {spell(told)}, which is {outside(knob, told)}"
    hint = f"let the knob take {spell(told)}, {_instead(engine, name)}"
    if knob.default is None:
        findings.error(place, message, hint, key=True)
    elif default_fault(knob, catalogue, space.hardware) is None:
        findings.error((*place, "default"), message, f"correct it, {hint}")


def _instead(engine: str, name: str) -> str:
    return f"add `unset` to its values, or write `baseline: {{set: {{{name}: …}}}}` for {engine}"


def _usable(space: Space, engine: str, command: LaunchCommand, place: Place, findings: Findings) -> bool:
    if command.refusal is not None:
        findings.error(place, command.refusal)
        return False
    if command.engine not in (engine, None):
        findings.error(place, f"starts {command.engine}, not {engine}")
        return False
    if command.model is not None and command.model != space.model and command.model not in command.unresolved:
        findings.warn_at(place, command.model, f"serves {command.model}; the space's model {space.model} is used")
    for note in command.notes:
        findings.warn(place, note)
    return True


class _Split:
    """Deals a command's settings out to knobs and fixed settings."""

    def __init__(
        self,
        space: Space,
        engine: str,
        catalogue: FlagCatalogue,
        command: LaunchCommand,
        place: Place,
        findings: Findings,
        deny: DenyList,
    ) -> None:
        self._space, self._engine, self._catalogue = space, engine, catalogue
        self._command, self._place, self._findings, self._deny = command, place, findings, deny
        self._knobs = space.knobs_of(engine)
        self._landings = {name: landing_of(knob, catalogue) for name, knob in self._knobs.items()}
        self._values: dict[str, Value] = {}

    def settings(self) -> BaselineSettings:
        flags = self._deal_flags()
        env = self._deal_env()
        written = frozenset(self._values)
        for name in self._knobs:
            if name not in self._values:
                self._values[name] = _left_alone(self._space, self._engine, name, self._catalogue, self._findings)
        part = self._space.engines[self._engine]
        ordered = {name: self._values[name] for name in self._knobs}
        return BaselineSettings(ordered, {**flags, **part.flags}, {**env, **part.env}, written)

    def _error(self, word: str, message: str, hint: str | None = None) -> None:
        """Note an error at a word of the command."""
        self._findings.error_at(self._place, word, message, hint)

    def _deal_flags(self) -> dict[str, FlagValue]:
        fixed: dict[str, FlagValue] = {}
        given = {self._catalogue.canonical(flag) for flag in self._space.engines[self._engine].flags}
        for flag, text in self._command.flags.items():
            spec, landing = resolve_flag(self._catalogue, flag)
            if landing.name in OWN_FLAGS or landing.name in given:
                continue
            if text is not True and holds_secret(flag, str(text)):
                self._error(flag, *secret_in_file(flag))
                continue
            if spec is None and (short := self._catalogue.abbreviation(flag)) is not None:
                # The beginning of one flag alone is a command's own affair: SGLang's users write `--tp 8`.
                self._error(flag, short)
                continue
            if spec is None:
                what = "was removed" if flag in self._catalogue.removed else "is unknown"
                where = f"{self._engine} {self._catalogue.version}"
                self._error(flag, f"{flag} {what} in {where}", self._catalogue.advice(flag))
                continue
            if not self._resolved(flag, text):
                continue
            if spec.name in _NODE_COUNTS and text != "1":
                self._error(flag, f"{flag} {text}: it spans several nodes, and tuner launches on one host")
                continue
            value = self._flag_value(flag, spec, text)
            if (denied := self._deny.refuses_flag(self._engine, spec.name, value)) is not None:
                self._error(flag, f"{flag} is not allowed: {denied.reason}", denied.hint)
                continue
            rest = self._to_knobs(flag, landing, value)
            if rest is not None and (reason := self._refusal(spec, landing, rest)) is not None:
                self._error(flag, f"{spec.name} {reason}")
            elif rest is not None:
                fixed[spec.name if landing.key is None else flag] = rest
        return fixed

    def _refusal(self, spec: FlagSpec, landing: Landing, value: FlagValue) -> str | None:
        words = value if isinstance(value, tuple) else () if value is None else (value,)
        return next((why for word in words if (why := refusal(spec, landing, word)) is not None), None)

    def _resolved(self, name: str, text: FlagText) -> bool:
        words = text if isinstance(text, tuple) else (str(text),)
        missing = [gap for gap in self._command.unresolved if any(gap in word for word in words)]
        if missing:
            self._error(name, f"{name} depends on {', '.join(missing)}, which has no value", "write the value instead")
        return not missing

    def _flag_value(self, flag: str, spec: FlagSpec, text: FlagText) -> FlagValue:
        if self._catalogue.negates(flag):
            return False
        if isinstance(text, tuple):
            return text
        if not spec.takes_value:
            return not means_off(str(text))
        return text

    def _to_knobs(self, flag: str, landing: Landing, value: FlagValue) -> FlagValue | None:
        """Give the knobs that land here their part of what `flag` says; returns what is left to be fixed, or None."""
        takers = [name for name, own in self._landings.items() if own.name == landing.name]
        whole = next((name for name in takers if self._landings[name] == landing), None)
        if whole is not None:
            self._give(whole, value, flag)
            return None
        if not takers or landing.key is not None or not isinstance(value, str):
            return value
        try:
            tree = json.loads(value)
        except ValueError:
            tree = None
        if not isinstance(tree, dict):
            self._error(flag, f"{landing.name} is no JSON object here, but knob {takers[0]} is a key of it")
            return None
        for name in takers:
            found, part = pop_key(tree, str(self._landings[name].key).split("."))
            if found:
                self._give(name, part if isinstance(part, bool | int | float | str) else json.dumps(part), flag)
        return json.dumps(tree) if tree else None

    def _deal_env(self) -> dict[str, Scalar]:
        fixed: dict[str, Scalar] = {}
        takers = {landing.name: name for name, landing in self._landings.items() if self._knobs[name].env is not None}
        for variable, text in self._command.env.items():
            if is_secret_name(variable):
                if text and "$" not in text:
                    self._error(variable, *secret_in_file(variable))
                else:
                    said = f"{variable} is left out: secrets come from your environment"
                    self._findings.warn_at(self._place, variable, said)
            elif holds_secret(variable, text):
                self._error(variable, *secret_in_file(variable))
            elif variable in self._deny.kept_env:
                if text != (kept := self._deny.kept_env[variable]):
                    self._error(variable, f"{variable}={text} is not allowed; every launch keeps {kept}")
            elif not self._resolved(variable, text):
                continue
            elif (denied := self._deny.refuses_env(variable, text)) is not None:
                self._error(variable, f"{variable}={text} is not allowed: {denied.reason}", denied.hint)
            elif variable in takers:
                self._give(takers[variable], text, variable)
            else:
                fixed[variable] = text
        return fixed

    def _give(self, name: str, value: FlagValue, word: str) -> None:
        """Give a knob its value, which the command sets with `word`."""
        knob = self._knobs[name]
        fitting = fit(knob, value)
        if isinstance(fitting, Unfit):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else spell(value)
            said = f"sets {name} ({knob.target}) to {shown}, which the knob does not allow"
            self._error(word, said, _values_of(knob))
            self._values[name] = None
            return
        self._values[name] = fitting
