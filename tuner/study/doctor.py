"""What would stop a study on this machine? Looks, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tuner.domain.denied import DENIED_ENV, DENIED_FLAGS, KEPT_ENV, REACHED_BY_DEFAULT
from tuner.domain.values import counted
from tuner.engines.definition import load_definitions
from tuner.engines.installed import find_engine
from tuner.errors import MachineUnfit, SpecError, TunerError
from tuner.resources import may_exist
from tuner.store import default_url, open_store
from tuner.store.urls import parse_url, sqlite_file
from tuner.study.runs import RUNS_VARIABLE, runs_folder
from tuner.trial.caches import engine_cache
from tuner.trial.denyfiles import host_denials, usual_files
from tuner.trial.machine import MachineFacts, machine_facts
from tuner.trial.ports import reserve_ports

_GIB = 2**30
_BUSY_MIB = 1024
_SHM_GIB = 1.0
_DISK_GIB = 5.0
_PORTS = 8


class State(StrEnum):
    """How a check ended: `fail` stops a study, `warn` may spoil its numbers."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at; `advice` says what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


def examine(storage: str | None = None) -> list[Check]:
    """Run every check.

    Args:
        storage: database URL to try; None takes the default.
    """
    machine = machine_facts()
    return [
        Check(
            "machine",
            State.OK,
            f"{machine.cpu}, {counted(machine.cores, 'core')}, {machine.memory_gib:.0f} GiB, {machine.kernel}",
        ),
        *_gpus(machine),
        _denied(),
        _denied_here(),
        *_environment(machine),
        *_engines(machine),
        _ports(),
        _shared_memory(),
        _disk(),
        _storage(storage),
    ]


def _gpus(machine: MachineFacts) -> Iterator[Check]:
    if not machine.gpus:
        yield Check("GPUs", State.WARN, "none found", "only CPU engines and the simulated engine can be studied here")
        return
    driver = f"driver {machine.driver}, CUDA {machine.cuda}"
    yield Check("driver", State.OK, driver)
    for gpu in machine.gpus:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        text = f"{gpu.name}, compute capability {gpu.compute_capability}, {used} of {total} MiB in use"
        if not gpu.counts_energy:
            text += ", tells no energy"
        busy = used > _BUSY_MIB
        advice = "another process holds memory: nvidia-smi names it" if busy else ""
        yield Check(f"GPU {gpu.index}", State.WARN if busy else State.OK, text, advice)
    if machine.links:
        yield Check("topology", State.OK, ", ".join(f"{pair} {link}" for pair, link in machine.links.items()))


def _denied() -> Check:
    """What no space, flag or default of a launch can turn on."""
    flags = sorted({entry.name for entries in DENIED_FLAGS.values() for entry in entries})
    variables = sorted({entry.name for entry in DENIED_ENV} - set(KEPT_ENV))
    kept = ", ".join(f"{name}={value}" for name, value in KEPT_ENV.items())
    denied = ", ".join((*variables, *flags))
    given = ", ".join(way.off for ways in REACHED_BY_DEFAULT.values() for way in ways)
    text = f"kept off: {kept}, and where an engine would reach it by itself {given}"
    return Check("NVLink multicast", State.OK, f"{text}; denied where they reach it: {denied}")


def _denied_here() -> Check:
    """What the operator of this host denies besides."""
    try:
        found = host_denials()
    except SpecError as error:
        return Check("denied on this host", State.FAIL, error.message, "nothing is launched until the file is right")
    usual = " and ".join(map(str, usual_files()))
    return Check("denied on this host", State.OK, "; ".join(found.lines) or f"nothing more (no entries in {usual})")


def _environment(machine: MachineFacts) -> Iterator[Check]:
    """Settings from outside that every launch would inherit without being asked."""
    stray = sorted(name for name in os.environ if name.startswith("NCCL_"))
    if stray:
        text = ", ".join(f"{name}={os.environ[name]}" for name in stray)
        yield Check("NCCL variables", State.OK, f"{text} (not passed on: a launch gets only what its space says)")
    if machine.nccl_files:
        advice = "they change the baseline of every launch; move them away, or say so with the results"
        yield Check("NCCL files", State.WARN, ", ".join(machine.nccl_files), advice)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.is_file() and (mode := governor.read_text().strip()) != "performance":
        yield Check("CPU governor", State.WARN, mode, "host-bound settings scatter less with `performance`")


def _engines(machine: MachineFacts) -> Iterator[Check]:
    for definition in load_definitions():
        name = f"engine {definition.name}"
        try:
            found = find_engine(definition)
        except MachineUnfit as error:
            yield Check(name, State.WARN, error.message.removeprefix(f"{name} is "), error.hint or "")
            continue
        beside = ", ".join(f"{name} {version}" for name, version in found.packages.items())
        text = f"{found.version or 'version unknown'} ({found.program[0]})" + (f"; {beside}" if beside else "")
        if definition.cache_env:
            text += f"; caches in {engine_cache(definition.name, found, machine)}"
        yield Check(name, State.OK, text)


def _ports() -> Check:
    try:
        with reserve_ports(_PORTS) as lease:
            return Check("ports", State.OK, f"free, e.g. {lease.ports[0]}")
    except MachineUnfit as error:
        return Check("ports", State.FAIL, error.message, error.hint or "")


def _shared_memory() -> Check:
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return Check("shared memory", State.WARN, "no /dev/shm", "engines with several ranks need it")
    size = shutil.disk_usage(shm).total / _GIB
    small = size < _SHM_GIB
    advice = "run the container with --ipc=host or a larger --shm-size" if small else ""
    return Check("shared memory", State.WARN if small else State.OK, f"/dev/shm has {size:.1f} GiB", advice)


def _disk() -> Check:
    runs = runs_folder()
    there = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free / _GIB
    low = free < _DISK_GIB
    advice = f"logs and raw records need room; free some, or set {RUNS_VARIABLE}" if low else ""
    return Check("disk", State.WARN if low else State.OK, f"{free:.0f} GiB free in {there}", advice)


def _storage(url: str | None) -> Check:
    chosen = url or default_url()
    try:
        file = sqlite_file(parse_url(chosen))
        if file is not None and not may_exist(file):
            return _storage_to_be(chosen, file)
        with open_store(chosen, create=False) as store:
            return Check("storage", State.OK, f"{store.url}: {counted(len(store.studies()), 'study')}")
    except TunerError as error:
        return Check("storage", State.FAIL, error.message, error.hint or "")


def _storage_to_be(url: str, file: Path) -> Check:
    if os.access(file.absolute().parent, os.W_OK | os.X_OK):
        return Check("storage", State.OK, f"{url} (will be made)")
    advice = "make the folder, or name another database with --storage"
    return Check("storage", State.FAIL, f"{url} cannot be made: its folder is missing or not writable", advice)
