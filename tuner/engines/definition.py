"""Engine definitions: `launchers/<name>/engine.yaml`, data that an operator can edit without knowing Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from tuner import yamlfile
from tuner.domain.faults import problems_of
from tuner.domain.knob import EnvName, FlagName
from tuner.domain.numbers import WHOLE
from tuner.domain.written import FILE_MODEL
from tuner.errors import SpecError, UserError
from tuner.resources import launchers_dir

PYTHON_PLACEHOLDER = "{python}"

_PCIE_RANKS = 2


class SidePort(BaseModel):
    """A port that a launch needs besides HTTP, and how it is told: by flag or by variable."""

    model_config = FILE_MODEL

    flag: FlagName | None = None
    env: EnvName | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.flag is None) == (self.env is None):
            raise ValueError("give exactly one of flag, env")
        return self


class Request(BaseModel):
    """One HTTP call."""

    model_config = FILE_MODEL

    method: Literal["GET", "POST"] = "POST"
    path: str


class Endpoints(BaseModel):
    """Paths beyond the OpenAI ones; `server_info` is tried in order."""

    model_config = FILE_MODEL

    server_info: tuple[str, ...] = ()
    flush: Request | None = None
    metrics: str | None = None


class Warm(BaseModel):
    """How an engine's servers are forked from a process that has imported it already.

    Attributes:
        modules: what that process imports; what a version does not have is left out. Only what a plain server imports
            as well: modules for another platform may replace parts of torch.
        modules_gpu: the same for servers on GPUs.
        modules_cpu: the same for servers without.
        ask: functions that keep their answer and that each server would ask, such as hashes of source files; called
            there without arguments, where their module was imported.
        env: variables that forked servers get besides.
        fork_workers: processes that the engine asks to be spawned are forked too, or they would import all again.
        spawn_when_set: variables that libraries read when they are loaded; a process for which the engine sets one is
            spawned after all.
        reads_late: part of a library's path → beginning of variables whose names it holds, but which it reads only
            after the fork.
        lists: module that looks at all variables while it is imported → beginning of those that it looks for.
        ready_threads: names of native threads, left by importing, whose library takes care of forks.
        answer_devices: a child of the process that imports asks the driver about the GPUs, since the engine's imports
            and arguments would, which initialises CUDA.
    """

    model_config = FILE_MODEL

    modules: Annotated[tuple[str, ...], Field(min_length=1)]
    modules_gpu: tuple[str, ...] = ()
    modules_cpu: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    env: Mapping[EnvName, str] = {}
    fork_workers: bool = False
    spawn_when_set: tuple[EnvName, ...] = ()
    reads_late: Mapping[str, str] = {}
    lists: Mapping[str, str] = {}
    ready_threads: tuple[str, ...] = ()
    answer_devices: bool = False

    def modules_for(self, *, gpus: bool) -> tuple[str, ...]:
        """What is imported for servers on GPUs, or for those without."""
        return self.modules + (self.modules_gpu if gpus else self.modules_cpu)


class OwnAllReduce(BaseModel):
    """The engine's own all-reduce, which takes small messages away from NCCL.

    Attributes:
        switch: flag that turns it off.
        up_to_bytes: it carries messages up to this size.
        ranks: numbers of GPUs with which it works over NVLink; over PCIe it works with two only.
    """

    model_config = FILE_MODEL

    switch: FlagName
    up_to_bytes: Annotated[int, Field(gt=0), WHOLE]
    ranks: Annotated[tuple[Annotated[int, WHOLE], ...], Field(min_length=1)]

    def reaches(self, ranks: int, *, nvlink: bool) -> int:
        """Bytes up to which it carries messages between so many GPUs; 0 where it steps aside."""
        return self.up_to_bytes if ranks in self.ranks and (nvlink or ranks == _PCIE_RANKS) else 0


class Gpus(BaseModel):
    """Degrees of parallelism whose product an engine cannot run with fewer GPUs than; `unless` a switch is on."""

    model_config = FILE_MODEL

    flags: Annotated[tuple[FlagName, ...], Field(min_length=1)]
    unless: FlagName | None = None


class EngineDefinition(BaseModel):
    """How one engine is started and asked.

    Attributes:
        name: folder name and name in space files.
        title: name for people.
        simulated: True when no real engine stands behind it.
        command: default program; `{python}` is the interpreter that runs tuner.
        model_flag: flag that takes the model; None when it is the first positional argument.
        extra_ports: further ports that each launch reserves.
        distributions: Python distributions that tell the installed version.
        version: fixed version, for an engine that is part of tuner.
        env: variables of every launch.
        trial_env: variables of measured launches only, left out of exports.
        cache_env: variables that say where the engine caches what it compiles → folder below tuner's cache.
        shared_temp: names in the temporary folder that outlast launches; `{user}` stands for the user's name. All else
            that a launch leaves there is removed with it.
        gpus: how many GPUs a launch takes: the largest of these products.
        pass_env: names taken from the caller's environment.
        warm: how launches are made faster; None where nobody has tried.
        own_all_reduce: see `OwnAllReduce`; None where the engine has none.
        codes: name of a setting in the server's own answer → word → the number or numbers that it answers instead.
    """

    model_config = FILE_MODEL

    name: str
    title: str
    simulated: bool = False
    command: Annotated[tuple[str, ...], Field(min_length=1)]
    model_flag: FlagName | None = None
    served_model_flag: FlagName | None = None
    host_flag: FlagName = "--host"
    port_flag: FlagName = "--port"
    extra_ports: tuple[SidePort, ...] = ()
    distributions: tuple[str, ...] = ()
    version: str | None = None
    endpoints: Endpoints = Endpoints()
    env: Mapping[EnvName, str] = {}
    trial_env: Mapping[EnvName, str] = {}
    cache_env: Mapping[EnvName, str] = {}
    shared_temp: tuple[str, ...] = ()
    gpus: tuple[Gpus, ...] = ()
    pass_env: tuple[EnvName, ...] = ()
    warm: Warm | None = None
    own_all_reduce: OwnAllReduce | None = None
    codes: Mapping[str, Mapping[str, int | tuple[int, ...]]] = {}

    def program(self, override: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """The command to run, with `{python}` filled in."""
        return tuple(sys.executable if part == PYTHON_PLACEHOLDER else part for part in override or self.command)


def engine_names() -> tuple[str, ...]:
    """Names of all engines that have a definition, sorted."""
    return tuple(sorted(path.parent.name for path in launchers_dir().glob("*/engine.yaml")))


@cache
def _load(path: Path) -> EngineDefinition:
    document = yamlfile.load(path)
    try:
        return EngineDefinition.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(problems_of(document, document.data, error, EngineDefinition)) from error


def load_definition(name: str) -> EngineDefinition:
    """The definition of one engine.

    Raises:
        UserError: when there is no such engine; the message lists the known ones.
        SpecError: when its file is wrong.
    """
    path = launchers_dir() / name / "engine.yaml"
    if name not in engine_names():
        raise UserError(f"unknown engine {name!r}", hint=f"known engines: {', '.join(engine_names())}")
    return _load(path)


def load_definitions() -> tuple[EngineDefinition, ...]:
    """Every engine definition, by name."""
    return tuple(load_definition(name) for name in engine_names())
