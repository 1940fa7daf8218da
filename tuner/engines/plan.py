"""Candidate → LaunchPlan: every setting put where its knob says, in the engine's own spelling.

The argument list is built here, item by item; no shell ever sees a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.denied import BUILT_IN, KEPT_ENV, REACHED_BY_DEFAULT, DenyList
from tuner.domain.launch import LaunchPlan
from tuner.domain.space import Space
from tuner.domain.values import FlagValue, Scalar
from tuner.engines.definition import EngineDefinition
from tuner.engines.jsonflags import FlagSetting, in_one_object
from tuner.errors import UserError


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """Flags and variables of every launch of a study: the space's own and those of the baseline that are no knobs."""

    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens and on which devices."""

    host: str
    port: int
    extra_ports: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


def argument_text(value: Scalar) -> str:
    """A value as the engines' parsers read it: `true`/`false` for booleans, the shortest exact form for floats."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _flag_arguments(name: str, value: FlagValue, catalogue: FlagCatalogue, *, split: bool = False) -> list[str]:
    """The arguments that give one flag its value or values; none at all for unset."""
    if value is None:
        return []
    if isinstance(value, tuple):
        return [name, *map(argument_text, value)]
    spec = catalogue.find(name)
    kind = spec.kind if spec is not None else "switch" if isinstance(value, bool) else "value"
    if isinstance(value, bool) and kind == "switch":
        return [name] if value else []
    if isinstance(value, bool) and spec is not None and kind == "toggle":
        if value:
            return [name]
        # The opposite of a spelling that turns the toggle off (`--no-x`, `--disable-x`) is the toggle itself.
        return [spec.name if catalogue.negates(name) else f"--no-{spec.name.removeprefix('--')}"]
    text = argument_text(value)
    if split:
        return [name, *text.split()]
    # A value that looks like a flag would be taken for one when it stands alone.
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def env_text(value: Scalar) -> str:
    """A variable's text; switches are 1 and 0, the form that NCCL and both engines read."""
    return str(int(value)) if isinstance(value, bool) else argument_text(value)


_Flags = dict[str, tuple[FlagValue, bool]]
"""Flag → its value, and whether a text is several words."""


def _close_defaults(engine: str, catalogue: FlagCatalogue, capability: str | None, flags: _Flags) -> None:
    """Turn off what the engine would reach multicast by without being asked.

    Raises:
        UserError: the space turns it on, and names no harmless way.
    """
    given = {catalogue.canonical(name): value for name, (value, _) in flags.items() if value is not None}
    for way in REACHED_BY_DEFAULT.get(engine, ()):
        if not way.concerns(capability) or way.unless in given or catalogue.find(way.off) is None:
            continue
        if given.get(way.off) is False:
            raise UserError(f"{way.off} off is not launched: {way.reason}", hint=way.hint)
        flags[way.off] = (True, False)


def _keep_flags(engine: str, catalogue: FlagCatalogue, deny: DenyList, flags: _Flags) -> None:
    """Give a launch the flags that this host keeps.

    Raises:
        UserError: the engine's version has no such flag, so nothing can be kept.
    """
    given = {catalogue.canonical(name) for name, (value, _) in flags.items() if value is not None}
    for name, value in deny.kept_flags.get(engine, {}).items():
        if catalogue.find(name) is None:
            message = f"this host keeps {name}, which {engine} {catalogue.version} does not have"
            raise UserError(message, hint="tuner doctor names the file that says so")
        if catalogue.canonical(name) not in given:
            flags[catalogue.canonical(name)] = (value, False)


def _refuse_denied(
    engine: str,
    catalogue: FlagCatalogue,
    deny: DenyList,
    program: Sequence[str],
    flags: _Flags,
    env: Mapping[str, str],
) -> None:
    """The last place where every setting of a launch is known, whichever file or default it came from."""
    if (why := deny.refuses_program(engine, catalogue, program)) is not None:
        raise UserError(f"{' '.join(program)} is not launched: {why}", hint=f"engines.{engine}.command")
    for name, (value, _) in flags.items():
        # Of a flag with a key (`-cc.mode`), the flag counts.
        spec = catalogue.find(name) or catalogue.find(name.partition(".")[0])
        if (entry := deny.refuses_flag(engine, spec.name if spec is not None else name, value)) is not None:
            raise UserError(f"{name} is not launched: {entry.reason}", hint=entry.hint)
    refuse_denied_env(deny, env)


def refuse_denied_env(deny: DenyList, env: Mapping[str, str]) -> None:
    """Refuse variables of a launch.

    Raises:
        UserError: one is denied.
    """
    for name, text in env.items():
        if (entry := deny.refuses_env(name, text)) is not None:
            raise UserError(f"{name}={text} is not launched: {entry.reason}", hint=entry.hint)


def kept_env(deny: DenyList, env: Mapping[str, str], *, gpus: bool) -> dict[str, str]:
    """Variables that a launch gets besides its own; multicast is between GPUs only."""
    return {name: value for name, value in deny.kept_env.items() if name not in env and (gpus or name not in KEPT_ENV)}


def build_plan(
    definition: EngineDefinition,
    catalogue: FlagCatalogue,
    space: Space,
    candidate: Candidate,
    fixed: FixedSettings,
    place: Place,
    *,
    version: str | None = None,
    deny: DenyList = BUILT_IN,
) -> LaunchPlan:
    """The launch of one candidate.

    Knobs win over fixed settings of the same name; an unset knob removes nothing that the space fixes.

    Raises:
        UserError: a setting is denied (`domain/denied.py`), wherever it comes from.
    """
    engine_space = space.engines[candidate.engine]
    knobs = space.knobs_of(candidate.engine)
    settings = [FlagSetting(flag, value) for flag, value in fixed.flags.items()]
    env = {**definition.env, **{name: env_text(value) for name, value in fixed.env.items()}}
    for name, value in candidate.values.items():
        knob = knobs[name]
        if value is None:
            continue
        if knob.env is not None:
            env[knob.env] = env_text(knob.given(value))
        elif knob.flag is not None:
            settings.append(FlagSetting(knob.flag, knob.given(value), knob.key, knob.split))
    flags: _Flags = {one.flag: (one.value, one.split) for one in in_one_object(settings, catalogue)}

    program = definition.program(engine_space.command)
    argv = list(program)
    argv += [definition.model_flag, space.model] if definition.model_flag else [space.model]
    if space.served_model is not None and definition.served_model_flag is not None:
        argv += [definition.served_model_flag, space.served_model]
    argv += [definition.host_flag, place.host, definition.port_flag, str(place.port)]
    for side, port in zip(definition.extra_ports, place.extra_ports, strict=True):
        if side.env is not None:
            env[side.env] = str(port)
        elif side.flag is not None:
            argv += [side.flag, str(port)]
    if len(place.gpus) > 1:
        _close_defaults(candidate.engine, catalogue, space.hardware.compute_capability, flags)
    _keep_flags(candidate.engine, catalogue, deny, flags)
    for name, (given, split) in flags.items():
        argv += _flag_arguments(name, given, catalogue, split=split)
    _refuse_denied(candidate.engine, catalogue, deny, program, flags, {**env, **definition.trial_env})
    env |= kept_env(deny, env, gpus=bool(place.gpus))
    if place.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.gpus))
    return LaunchPlan(
        engine=candidate.engine,
        argv=tuple(argv),
        env={**env, **definition.trial_env},
        trial_only_env=tuple(definition.trial_env),
        pass_env=definition.pass_env,
        unset_env=tuple(dict.fromkeys(entry.name for entry in deny.env if entry.name not in deny.kept_env)),
        host=place.host,
        port=place.port,
        extra_ports=place.extra_ports,
        gpus=place.gpus,
        simulated=definition.simulated,
        model=space.model,
        served_model=space.served_model or space.model,
        engine_version=version,
    )
