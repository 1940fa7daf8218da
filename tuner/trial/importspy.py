"""Which environment variables are asked for while an engine is imported; part of `zygote`, standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

_MAPPINGS = Mapping.get.__code__.co_filename


class _Spied(type(os.environ)):  # type: ignore[misc]
    """`os.environ` that remembers which names were asked for, and who looked at all of them."""

    def __getitem__(self, name: str) -> str:
        if _place(sys._getframe(1)) not in _listing:
            _asked.add(os.fsdecode(name))
        value: str = super().__getitem__(name)
        return value

    def __iter__(self) -> Any:
        # The values that the same line asks for next belong to the listing, and are no questions of their own.
        _listing.add(_place(sys._getframe(1)))
        _listed.add(module_of(sys._getframe(1)))
        return super().__iter__()

    def copy(self) -> Any:
        _listing.add(_place(sys._getframe(1)))
        return super().copy()


_asked: set[str] = set()
_listing: set[tuple[str, int]] = set()
_listed: set[str] = set()


class EnvironmentSpy:
    """While entered, `os.environ` remembers, from nothing each time.

    Attributes:
        read: names that were asked for.
        listed: modules that looked at all variables.
    """

    read = _asked
    listed = _listed

    def __enter__(self) -> Self:
        _asked.clear()
        _listed.clear()
        os.environ.__class__ = _Spied
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.__class__ = _Spied.__base__


def _place(frame: FrameType | None) -> tuple[str, int]:
    """File and line that used `os.environ`, behind the methods of mappings."""
    while frame is not None and frame.f_code.co_filename in (_MAPPINGS, os.__file__, "<frozen os>", __file__):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def module_of(frame: FrameType | None) -> str:
    """The module, outside the standard library, on whose behalf the code of a frame runs."""
    library = str(Path(os.__file__).parent)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen") and (not file.startswith(library) or "-packages" in file):
            return str(frame.f_globals.get("__name__", file))
        frame = frame.f_back
    return ""
