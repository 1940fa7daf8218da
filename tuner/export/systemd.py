"""A systemd service that starts the measured server.

Quoting follows systemd.service(5), "Command lines", and systemd.syntax(7): double quotes with C escapes, `%%` for a
per cent sign; on the command line also `$$` for a dollar sign and `${NAME}` for a variable, which stays one argument.
"""

from __future__ import annotations

import re

from tuner.export.base import Export
from tuner.export.templates import one_line, render
from tuner.export.words import Variable, Word, command_of

_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", '"': r"\""}
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def systemd(export: Export) -> str:
    """The unit's text. Secrets are read from `/etc/tuner/STUDY.env`, which only root may read."""
    command = command_of(export)
    defaults = [(v.name, v.default) for v in command.variables if v.default is not None]
    return render(
        "export.service.j2",
        export.plan.engine,
        export=export,
        file=_NOT_IN_A_FILE_NAME.sub("_", export.study),
        required=[variable.name for variable in command.variables if variable.default is None],
        defaults=[unit_quote(f"{name}={default}") for name, default in defaults],
        environment=[_assignment(name, word) for name, word in command.env.items() if _is_literal(word)],
        description=one_line(f"{export.plan.engine}, study {export.study}, trial {export.trial}").replace("%", "%%"),
        argv=[_argument(word) for word in command.argv],
        cwd=None if export.plan.cwd is None else export.plan.cwd.replace("%", "%%"),
    )


def unit_quote(text: str) -> str:
    """Any text as one double-quoted word of a unit file."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == "%":
        return "%%"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode())


def _is_literal(word: Word) -> bool:
    """Variables of the environment come from `defaults` or the secrets' file under their own names."""
    return all(isinstance(part, str) for part in word)


def _assignment(name: str, word: Word) -> str:
    return unit_quote(f"{name}={''.join(map(str, word))}")


def _argument(word: Word) -> str:
    parts = [f"${{{p.name}}}" if isinstance(p, Variable) else unit_quote(p.replace("$", "$$"))[1:-1] for p in word]
    return f'"{"".join(parts)}"'
