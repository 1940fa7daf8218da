"""What a command prints: data on stdout, everything for people on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from tuner.secrets import redact

_FILE_WIDTH = 160
_WIDER_THAN_ANY = 10_000
# What is printed is not Rich's own language: `[red]` stays that, and `space.yaml:100:28`, which holds an emoji, too.
_Console = partial(Console, markup=False, emoji=False, highlight=False)


class _ForPeople:
    """Standard error, whoever reads it: a closed terminal, or a pipe whose reader ended, is no reason to fail."""

    def write(self, text: str) -> int:
        try:
            return sys.stderr.write(text)
        except OSError:
            self._forget()
            return len(text)

    def flush(self) -> None:
        try:
            sys.stderr.flush()
        except OSError:
            self._forget()

    def _forget(self) -> None:
        # Also what is still buffered, which would fail again when the program ends.
        sys.stderr = _nowhere()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@cache
def console() -> Console:
    """The console for people: stderr, so that stdout stays clean for data; tables are wide where no terminal is."""
    width = None if sys.stderr.isatty() else _FILE_WIDTH
    return _Console(file=cast(IO[str], _ForPeople()), soft_wrap=True, width=width)


def forget_stdout() -> None:
    """Nobody reads standard output any more: what it still buffers goes nowhere, instead of failing at the very end."""
    with contextlib.suppress(OSError):  # none of the system's files: there is nothing to fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def give_streams() -> None:
    """Have somewhere to write where whoever started the program closed its output, as some services do."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it lasts until the program ends


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


def print_numbers_and_words(table: Table, words: int) -> None:
    """A table of numbers whose last columns are words.

    Where a terminal has no room for both, the words stand in a table of their own below, behind the first column:
    squeezed to a few characters, no configuration can be read. Numbers that still do not fit have their intervals
    below them.

    Args:
        table: without a box; the cells are text.
        words: how many columns are words.
    """
    first, *numbers = table.columns[:-words]
    told = table.columns[-words:]
    unbounded = out().options.update_width(_WIDER_THAN_ANY)
    alone = Measurement.get(out(), unbounded, _part_of(table, [first, *numbers])).maximum
    beside = Measurement.get(out(), unbounded, _part_of(table, told)).minimum
    if alone + beside < out().width or not out().is_terminal:
        out().print(table)
        return
    out().print(_part_of(table, [first, *numbers], interval_at=" [" if alone <= out().width else "\n["))
    out().print(_part_of(table, [first, *told]))


def _part_of(table: Table, columns: Sequence[Column], *, interval_at: str = " [") -> Table:
    part = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        part.add_column(column.header, justify=column.justify, overflow=column.overflow)
    for row, *cells in zip(table.rows, *(column.cells for column in columns), strict=True):
        part.add_row(*(str(cell).replace(" [", interval_at) for cell in cells), style=row.style)
    return part


def print_json(document: Any) -> None:
    """Write one JSON document to stdout; NaN and infinities are refused, since JSON has none."""
    # Another encoding than UTF-8 may lack a character; JSON's own escapes never do.
    plain = sys.stdout.encoding.lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False) + "\n")


def print_error(message: str, hint: str | None = None) -> None:
    """One red line, and below it what to do."""
    print_redacted_error(redact(message))
    if hint:
        console().print(f"  → {redact(hint)}", style="yellow")


def print_redacted_error(message: str) -> None:
    """One red line for a message in which secrets are hidden already."""
    console().print(f"error: {message}", style="red")
