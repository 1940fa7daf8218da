"""The exported command, word by word: literal text, and the few variables that its user may or must set.

Nothing here knows a format: each one writes literals and variables by its own rules of quoting.

A trial listens on ports that were free while it ran. An export listens on the port that the engine takes by itself, as
its flag catalogue says, and leaves side ports (where ranks meet) to the engine: nothing else of the launch changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.domain.launch import LaunchPlan
from tuner.engines.catalogue import load_catalogue, usual_port
from tuner.engines.definition import EngineDefinition, load_definition
from tuner.errors import InternalError
from tuner.export.base import Export
from tuner.secrets import HIDDEN
from tuner.trial.environment import fixed_variables, inherited_names

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that whoever starts the server may set; without default they must (a secret)."""

    name: str
    default: str | None = None


Word = tuple[str | Variable, ...]
"""One argument or value: its parts, written one after the other."""


@dataclass(frozen=True, slots=True)
class Command:
    """A launch without secrets.

    Attributes:
        argv: program and arguments.
        env: name → value.
        inherited: names taken from the caller's environment when they exist there.
        variables: everything that the caller may or must set, without repetition.
        port: where the server listens unless PORT says otherwise.
    """

    argv: tuple[Word, ...]
    env: Mapping[str, Word]
    inherited: tuple[str, ...]
    variables: tuple[Variable, ...]
    port: int


HOST, PORT, GPUS = "HOST", "PORT", "CUDA_VISIBLE_DEVICES"


def command_of(export: Export) -> Command:
    """The words of an export's launch, with host, port and GPUs as variables and each hidden secret as one to be set.

    Raises:
        UserError: the engine of the plan has no definition here.
        InternalError: the plan sets a variable that no environment can hold.
    """
    plan = export.plan
    words = _Words(plan, load_definition(plan.engine))
    argv = words.arguments()
    env = words.environment()
    used = [part for word in (*argv, *env.values()) for part in word if isinstance(part, Variable)]
    return Command(
        argv=argv,
        env=env,
        inherited=tuple(name for name in inherited_names(plan) if name not in env),
        variables=tuple(dict.fromkeys(used)),
        port=words.port,
    )


class _Words:
    def __init__(self, plan: LaunchPlan, definition: EngineDefinition) -> None:
        self._plan = plan
        self.port = usual_port(definition, load_catalogue(plan.engine, plan.engine_version)) or plan.port
        self._places = {
            (definition.host_flag, plan.host): Variable(HOST, plan.host),
            (definition.port_flag, str(plan.port)): Variable(PORT, str(self.port)),
        }
        sides = [(side, str(port)) for side, port in zip(definition.extra_ports, plan.extra_ports, strict=False)]
        self._side_flags = {(side.flag, port) for side, port in sides if side.flag is not None}
        self._side_variables = {(side.env, port) for side, port in sides if side.env is not None}
        self._secrets = 0

    def arguments(self) -> tuple[Word, ...]:
        before = ""
        words: list[Word] = []
        for argument in self._plan.argv:
            place = self._places.get((before, argument))
            if place is not None:
                words.append((place,))
            elif (before, argument) in self._side_flags:
                words.pop()
            else:
                words.append(self._parts(argument, _name_of(argument, before)))
            before = argument
        return tuple(words)

    def environment(self) -> dict[str, Word]:
        env: dict[str, Word] = {}
        for name, value in fixed_variables(self._plan).items():
            if not _NAME.fullmatch(name):
                raise InternalError(f"no name of an environment variable: {name!r}")
            if name in self._plan.trial_only_env or (name, value) in self._side_variables:
                continue
            env[name] = (Variable(GPUS, value),) if name == GPUS and value else self._parts(value, name)
        return env

    def _parts(self, text: str, name: str) -> Word:
        """The text as a word; what the store hid becomes a variable called `name`."""
        if HIDDEN not in text:
            return (text,)
        parts: list[str | Variable] = []
        for index, literal in enumerate(text.split(HIDDEN)):
            if index:
                parts.append(Variable(name or self._nameless()))
            if literal:
                parts.append(literal)
        return tuple(parts)

    def _nameless(self) -> str:
        self._secrets += 1
        return f"TUNER_SECRET_{self._secrets}"


def _name_of(argument: str, before: str) -> str:
    """`API_KEY` for the value of `--api-key VALUE` or `--api-key=VALUE`; empty for other arguments."""
    flag = argument.partition("=")[0] if argument.startswith("-") else before
    name = flag.strip("-").replace("-", "_").upper()
    return name if flag.startswith("-") and _NAME.fullmatch(name) else ""
