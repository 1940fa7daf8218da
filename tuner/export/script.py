"""The bash script that starts exactly the measured server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.export.base import Export
from tuner.export.templates import render
from tuner.export.words import Variable, Word, command_of

_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+")
_NAMED_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


def script(export: Export) -> str:
    """The script's text: bash 3.2 or newer, without secrets, clean for shellcheck."""
    command = command_of(export)
    return render(
        "export.sh.j2",
        export.plan.engine,
        export=export,
        required=[variable.name for variable in command.variables if variable.default is None],
        defaults=[(v.name, shell_quote(v.default)) for v in command.variables if v.default is not None],
        inherited=command.inherited,
        env=[shell_word((f"{name}=", *value)) for name, value in command.env.items()],
        argv=_lines([shell_word(word) for word in command.argv], export.program),
        cwd=None if export.plan.cwd is None else shell_quote(export.plan.cwd),
    )


def _lines(words: Sequence[str], program: int) -> list[str]:
    """The words as a person would break them: the program on one line, then each flag with its values."""
    lines = [" ".join(words[:program])]
    for word in words[program:]:
        if word.startswith("-") or len(lines) == 1:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def shell_word(word: Word) -> str:
    """One bash word for literals and variables in a row."""
    parts = [f'"${part.name}"' if isinstance(part, Variable) else shell_quote(part) for part in _joined(word)]
    return "".join(parts) or "''"


def _joined(word: Word) -> list[str | Variable]:
    """The word with neighbouring literals made one, so that each is quoted once."""
    joined: list[str | Variable] = []
    for part in word:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def shell_quote(text: str) -> str:
    """Any text (without NUL, which no argument can hold) as one literal bash word.

    Plain words stay as they are; others get single quotes; those with `$`, quotes, backslashes, control or non-ASCII
    characters get bash's `$'…'`, where control characters stay visible and other bytes do not depend on the locale.
    """
    if _PLAIN.fullmatch(text):
        return text
    if text.isascii() and text.isprintable() and not set(text) & set("'\\$`"):
        return f"'{text}'"
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if char.isascii() and char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape"))
