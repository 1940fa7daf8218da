"""When a warm server's garbage collector walks what its parent imported; part of `zygote`, standard library only.

The parent has collected and frozen what it imported, so there is no garbage in it. While engines start they ask for
full collections again and again, each of which would walk all of it: with the engines' millions of objects some 0.4 s,
seven times over in vLLM's core (0.26 on an H200). None of that is needed. But a server that serves must be as a plain
one, whose collector does walk what it imported: spared that, it stops less often under load, and the search would see
other numbers than users. So what was imported stays frozen only until

* the engine freezes or unfreezes by itself: then all is as it says, for what was imported too, or
* a full collection is due that nobody asked for: it is made of everything, as in a plain server.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any

_FULL = 2
_INCREMENTAL = (3, 14)
"""From this version of Python on no collection tells that it walks everything."""


class SparedImports:
    """What was frozen before this process was forked, until it is to be walked again."""

    def __init__(self) -> None:
        self._originals: dict[str, Callable[..., Any]] = {}
        self._is_asked_for = False

    def start(self) -> None:
        """Spare it from now on, in this process and its forks."""
        if sys.version_info >= _INCREMENTAL:
            gc.unfreeze()
            return
        gc.callbacks.append(self._before_a_collection)
        self._replace("collect", self._collect)
        self._replace("freeze", functools.partial(self._by_the_engine, "freeze"))
        self._replace("unfreeze", functools.partial(self._by_the_engine, "unfreeze"))

    def _replace(self, name: str, function: Callable[..., Any]) -> None:
        self._originals[name] = getattr(gc, name)
        setattr(gc, name, function)

    def _collect(self, *given: Any, **named: Any) -> Any:
        self._is_asked_for = True
        try:
            return self._originals["collect"](*given, **named)
        finally:
            self._is_asked_for = False

    def _by_the_engine(self, name: str) -> None:
        self._stop()
        self._originals[name]()

    def _before_a_collection(self, phase: str, about: Mapping[str, int]) -> None:
        if phase == "start" and about["generation"] == _FULL and not self._is_asked_for:
            self._stop()
            gc.unfreeze()

    def _stop(self) -> None:
        if self._before_a_collection in gc.callbacks:
            gc.callbacks.remove(self._before_a_collection)
        for name, original in self._originals.items():
            setattr(gc, name, original)
