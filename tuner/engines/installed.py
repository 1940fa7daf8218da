"""Is an engine installed here, and which version? Asked of its own interpreter; the engine is never imported."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tuner.engines.definition import EngineDefinition
from tuner.errors import MachineUnfit
from tuner.resources import checkout_dir

_ASK = """\
import importlib.metadata as metadata, sys
for name in sys.argv[1:]:
    try:
        print(metadata.version(name)); break
    except metadata.PackageNotFoundError:
        continue
"""
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Installed:
    """A usable engine: the full path of its program and its version (None if it does not say)."""

    program: tuple[str, ...]
    version: str | None


def _resolve(program: str) -> str | None:
    """Full path of a program: as given, from the current folder, from the checkout, or from PATH."""
    if "/" not in program:
        return shutil.which(program)
    for base in (Path.cwd(), checkout_dir()):
        if base is not None and (path := base / Path(program).expanduser()).is_file():
            return str(path.absolute())
    return None


def _interpreter(program: str) -> str | None:
    """The Python that a program belongs to: itself, or the one beside it."""
    path = Path(program)
    if path.name.startswith("python"):
        return program
    beside = path.parent / "python"
    return str(beside) if beside.is_file() else None


def _version(definition: EngineDefinition, program: str) -> str | None:
    python = _interpreter(program)
    if python is None or not definition.distributions:
        return None
    try:
        answer = subprocess.run(
            [python, "-c", _ASK, *definition.distributions],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def find_engine(definition: EngineDefinition, command: tuple[str, ...] | None = None) -> Installed:
    """Locate an engine's program and ask for its version.

    Args:
        definition: which engine.
        command: replaces the definition's own command, e.g. with a program of another environment.

    Raises:
        MachineUnfit: when the program is not there, or its interpreter does not know the engine.
    """
    program, *rest = definition.program(command)
    found = _resolve(program)
    where = f"engines.{definition.name}.command"
    if found is None:
        raise MachineUnfit(
            f"engine {definition.name} is not installed: {program} was not found",
            hint=f"install it in an environment of its own and set {where} in the space file to its program",
        )
    version = definition.version or _version(definition, found)
    if version is None and definition.distributions and _interpreter(found) is not None:
        raise MachineUnfit(
            f"engine {definition.name} is not installed in the environment of {found}",
            hint=f"install {definition.distributions[0]} there, or set {where} in the space file",
        )
    return Installed((found, *rest), version)
