"""What a command prints: data on stdout, everything for people on stderr."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

from rich.console import Console

from tuner.secrets import redact

_FILE_WIDTH = 160


@cache
def console() -> Console:
    """The console for people: stderr, so that stdout stays clean for data; tables are wide where no terminal is."""
    return Console(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _FILE_WIDTH)


@cache
def out() -> Console:
    """Stdout for tables that are the command's answer; wide when nobody's terminal limits it."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_FILE_WIDTH)


def print_json(document: Any) -> None:
    """Write one JSON document to stdout; NaN and infinities are refused, since JSON has none."""
    # Another encoding than UTF-8 may lack a character; JSON's own escapes never do.
    plain = sys.stdout.encoding.lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False) + "\n")


def print_error(message: str, hint: str | None = None) -> None:
    """One red line, and below it what to do."""
    console().print(f"error: {redact(message)}", style="red", markup=False)
    if hint:
        console().print(f"  → {redact(hint)}", style="yellow", markup=False)
