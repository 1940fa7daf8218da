"""systemd units: the words of `ExecStart=` and the variables of `Environment=`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

_EXEC = re.compile(r"^\s*ExecStart\s*=", re.MULTILINE)
_CONTINUED = re.compile(r"\\\s*\n\s*")
_PREFIXES = "-@:+!|"
_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE = re.compile(r"^\$([A-Za-z_][A-Za-z0-9_]*)$")


@dataclass
class Unit:
    """What a unit starts.

    Attributes:
        words: the command of `ExecStart=`.
        env: variables of `Environment=`.
        unresolved: variables without a value, in order of appearance.
        files: `EnvironmentFile=`s, which are not read.
        folder: `WorkingDirectory=`.
    """

    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    folder: str | None = None


def is_unit(text: str) -> bool:
    """Whether a text is a unit or a part of one."""
    return _EXEC.search(text) is not None


def read_unit(text: str) -> Unit:
    """Read a unit. `${X}` is one word whatever its value; a bare `$X` is split at blanks (systemd.service(5)).

    Raises:
        ValueError: for a quote without its end; it names the key.
    """
    unit, command = Unit(), ""
    for line in _CONTINUED.sub(" ", text).splitlines():
        key, equals, value = line.strip().partition("=")
        if not equals or key.startswith(("#", ";")):
            continue
        key, value = key.strip(), value.strip()
        if key == "ExecStart":
            command = value
        elif key == "Environment":
            for item in _words(key, value):
                name, _, text_of = item.partition("=")
                unit.env[name] = text_of
        elif key == "EnvironmentFile":
            unit.files.append(value.lstrip("-"))
        elif key == "WorkingDirectory":
            unit.folder = value
    unit.words = tuple(word for part in _words("ExecStart", command.lstrip(_PREFIXES)) for word in _expand(unit, part))
    return unit


def _words(key: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"a quote in {key}= has no end") from error


def _expand(unit: Unit, word: str) -> list[str]:
    bare = _BARE.match(word)
    if bare is not None:
        value = _value(unit, bare[1])
        return [word] if value is None else value.split()

    def put(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        value = _value(unit, match[1])
        return match[0] if value is None else value

    return [_REFERENCE.sub(put, word)]


def _value(unit: Unit, name: str) -> str | None:
    if name not in unit.env and name not in unit.unresolved:
        unit.unresolved.append(name)
    return unit.env.get(name)
