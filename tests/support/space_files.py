"""Space files of a few lines, and what is done with them (the fixtures `load` and `errors` of the tests of `spec`)."""

from __future__ import annotations

from collections.abc import Callable

from tuner.spec import LoadedSpace

Load = Callable[..., LoadedSpace]
Errors = Callable[..., list[str]]


def knob(text: str) -> str:
    """A file with one knob, `a`."""
    return f"knobs:\n  a: {{{text}}}\n"
