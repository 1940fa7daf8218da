"""Asking before something is launched or lost."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tuner.errors import Stopped

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def ask(question: str, *, yes: bool, refused: str = "nothing was started") -> None:
    """Ask on a terminal; without one, go on (scripts say what they want by calling).

    Raises:
        Stopped: the answer is no.
    """
    if yes or not sys.stdin.isatty():
        return
    if not typer.confirm(question, default=True, err=True):
        raise Stopped(refused)
