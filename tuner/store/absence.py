"""Told while a database is waited for: since when it does not answer, until when it is waited for; its return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

_SILENT_S = 10.0
"""A server that hangs, or whose host went without a word, ends no connection for half a minute, or ever."""
_log = structlog.get_logger(__name__)

Tell = Callable[[str], None]


class Absence:
    """One call of a database, from its first try to its last.

    Args:
        storage: the database, for people.
        patience_s: how long it is tried again.
        tell: gets each line; None where nobody listens.
    """

    def __init__(self, storage: str, patience_s: float, tell: Tell | None) -> None:
        self._storage = storage
        self._tell = tell
        self._began = time.monotonic()
        self.deadline = self._began + patience_s
        """Seconds of the steady clock."""
        self._is_told = False
        self._watch = threading.Timer(_SILENT_S, self._silent) if tell is not None else None

    def __enter__(self) -> Self:
        if self._watch is not None:
            self._watch.daemon = True
            self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if kind is None and self._is_told:
            waited_s = time.monotonic() - self._began
            _log.warning("database_back", storage=self._storage, waited_s=round(waited_s, 1))
            self._say(f"the database answers again, after {waited_s:.1f} s")

    def failed(self, problem: str) -> None:
        """A try failed for a reason that may pass; the first one is told."""
        if self._watch is not None:
            self._watch.cancel()
        if not self._is_told:
            since, until = _clock(self._began), _clock(self.deadline)
            self._away(f"since {since}, waiting for it until {until}: {problem}", problem)

    def _silent(self) -> None:
        """Called by the watch, while the call still waits for its answer."""
        self._away(f"since {_clock(self._began)}, waiting for it: nothing came for {_SILENT_S:.0f} s", "silent")

    def _away(self, words: str, problem: str) -> None:
        self._is_told = True
        _log.warning("database_away", storage=self._storage, problem=problem, since=_clock(self._began))
        self._say(f"the database does not answer {words}")

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)


def _clock(moment: float) -> str:
    """A moment of the steady clock as people tell it."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() - time.monotonic() + moment))
