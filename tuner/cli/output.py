"""What a command prints: data on stdout, everything for people on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.secrets import redact

_FILE_WIDTH = 160
# What is printed is not Rich's own language: `[red]` stays that, and `space.yaml:100:28`, which holds an emoji, too.
_Console = partial(Console, markup=False, emoji=False, highlight=False)


@cache
def console() -> Console:
    """The console for people: stderr, so that stdout stays clean for data; tables are wide where no terminal is."""
    return _Console(stderr=True, soft_wrap=True, width=None if sys.stderr.isatty() else _FILE_WIDTH)


@cache
def out() -> Console:
    """Stdout for what is the command's answer.

    A terminal's lines break between words. Where there is none, tables are wide and lines of text stay whole.
    """
    if sys.stdout.isatty():
        return _Console()
    return _Console(width=_FILE_WIDTH, soft_wrap=True)


def print_hanging(head: Text, lines: Sequence[str]) -> None:
    """Lines of text behind a short head; where a terminal breaks them, they go on below their own beginning."""
    if out().is_terminal:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for index, line in enumerate(lines):
            grid.add_row(head if index == 0 else "", Text(line))
        out().print(grid)
        return
    for index, line in enumerate(lines):
        out().print(f"{head.plain if index == 0 else ' ' * len(head)}  {line}")


def print_json(document: Any) -> None:
    """Write one JSON document to stdout; NaN and infinities are refused, since JSON has none."""
    # Another encoding than UTF-8 may lack a character; JSON's own escapes never do.
    plain = sys.stdout.encoding.lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False) + "\n")


def print_error(message: str, hint: str | None = None) -> None:
    """One red line, and below it what to do."""
    console().print(f"error: {redact(message)}", style="red")
    if hint:
        console().print(f"  → {redact(hint)}", style="yellow")
