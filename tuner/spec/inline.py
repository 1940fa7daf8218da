"""A space that needs no other file: what a baseline command takes from `--config FILE` is written into the command.

A study keeps its space and reads it again on other machines and later days, where that file may be gone or changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.space import EngineSpace, Space
from tuner.spec.command import LaunchCommand, import_command

_PROGRAMS = {"vllm": "vllm serve", "sglang": "python3 -m sglang.launch_server"}


def without_config_files(space: Space, catalogues: Mapping[str, FlagCatalogue], folder: Path) -> Space:
    """The space with every `--config FILE` of its baseline commands written out.

    Args:
        catalogues: engine → its catalogue.
        folder: where relative files are looked up.
    """
    engines = {
        name: _inlined(part, name, catalogues[name], folder) if name in catalogues else part
        for name, part in space.engines.items()
    }
    return space if engines == space.engines else space.model_copy(update={"engines": engines})


def _inlined(part: EngineSpace, engine: str, catalogue: FlagCatalogue, folder: Path) -> EngineSpace:
    text = part.baseline.command
    if text is None or engine not in _PROGRAMS:
        return part
    as_written = import_command(text, engine=engine, catalogue=catalogue)
    followed = import_command(text, engine=engine, catalogue=catalogue, folder=folder)
    if not followed.importable or followed.flags == as_written.flags:
        return part
    baseline = part.baseline.model_copy(update={"command": command_text(followed, engine)})
    return part.model_copy(update={"baseline": baseline})


def command_text(command: LaunchCommand, engine: str) -> str:
    """A shell command that means the same; unresolved variables stay as they are written."""
    words = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    words += [_PROGRAMS[engine], *(shlex.quote(word) for word in command.positional)]
    for name, value in command.flags.items():
        if isinstance(value, bool):
            words.append(name)
        elif isinstance(value, tuple):
            words += [name, *map(shlex.quote, value)]
        else:
            words.append(f"{name}={shlex.quote(value)}")
    return " ".join(words)
