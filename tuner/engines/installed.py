"""Is an engine installed here, and which version? Asked of its own interpreter; the engine is never imported."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tuner.engines.definition import EngineDefinition
from tuner.errors import MachineUnfit
from tuner.resources import checkout_dir, named_path
from tuner.secrets import redact

_ASK = """\
import importlib.metadata as metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
# Packages whose version changes what a setting does; NCCL's comes with torch's wheel, not with the engine.
_COMPANIONS = (
    "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "flashinfer-python", "sgl-kernel", "sglang-kernel",
    "triton", "transformers",
)  # fmt: skip
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Installed:
    """A usable engine.

    Attributes:
        program: full path of its program, and arguments that belong to it.
        version: its version, None if it does not say.
        packages: versions of the packages beside it that matter (torch, NCCL …).
    """

    program: tuple[str, ...]
    version: str | None
    packages: Mapping[str, str] = field(default_factory=dict)


def _resolve(program: str) -> str | None:
    """Full path of a program: as given, from the current folder, from the checkout, or from PATH."""
    if "/" not in program:
        return shutil.which(program)
    for base in (Path.cwd(), checkout_dir()):
        if base is not None and (path := base / named_path(program)).is_file():
            return str(path.absolute())
    return None


def interpreter_of(program: str) -> str | None:
    """The Python that a program belongs to: itself, or the one beside it."""
    path = Path(program)
    if path.name.startswith("python"):
        return program
    beside = path.parent / "python"
    return str(beside) if beside.is_file() else None


@cache
def _packages(python: str, names: tuple[str, ...]) -> Mapping[str, str]:
    """Versions of distributions in an interpreter's environment; those that are not there are left out.

    Raises:
        MachineUnfit: it does not say. Not remembered: what was slow once may answer the next time.
    """
    try:
        answer = subprocess.run(
            [python, "-c", _ASK, *names], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        found: dict[str, str] = json.loads(answer.stdout)
    except subprocess.TimeoutExpired as error:
        raise _silent(python, f"no answer within {_TIMEOUT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = redact(error.stderr.strip().rpartition("\n")[2])
        raise _silent(python, last or f"it ended with {error.returncode}") from error
    except OSError as error:
        raise _silent(python, error.strerror or str(error)) from error
    except ValueError as error:
        raise _silent(python, "its answer is no JSON") from error
    return found


def _silent(python: str, why: str) -> MachineUnfit:
    said = f"{python} does not say which packages are installed beside it: {why}"
    return MachineUnfit(said, hint="run it by hand: an interpreter that works answers at once")


def find_engine(definition: EngineDefinition, command: tuple[str, ...] | None = None) -> Installed:
    """Locate an engine's program and ask for its version.

    Args:
        definition: which engine.
        command: replaces the definition's own command, e.g. with a program of another environment.

    Raises:
        MachineUnfit: when the program is not there, or its interpreter does not know the engine, or does not answer.
        UserError: no program can have this name.
    """
    program, *rest = definition.program(command)
    found = _resolve(program)
    named = f"engines.{definition.name}.command: [{', '.join([f'/PATH/TO/{Path(program).name}', *rest])}]"
    hint = f"install it in an environment of its own, and name that in the space file: {named}"
    if found is None:
        raise MachineUnfit(f"engine {definition.name} is not installed: {program} was not found", hint=hint)
    python = interpreter_of(found)
    if python is None or not definition.distributions:
        # A wrapper script or a container command: nobody to ask, the log and the server will tell.
        return Installed((found, *rest), definition.version)
    packages = _packages(python, (*definition.distributions, *_COMPANIONS))
    version = next((packages[name] for name in definition.distributions if name in packages), None)
    if version is None:
        raise MachineUnfit(f"engine {definition.name} is not installed in the environment of {found}", hint=hint)
    return Installed((found, *rest), version, {n: v for n, v in packages.items() if n not in definition.distributions})
