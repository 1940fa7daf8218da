"""Tokenizers that servers find ready made; part of `zygote`, standard library only.

Each process of an engine makes the same tokenizer of the same files, some of them several times over: on two H200s that
was half of what SGLang's scheduler did in a warm start. A server notes what it made; before it forks the next one, the
parent makes as many; and who asks for one of them then is given it. Each is given once, so that no two places of a
server share one, and only where making it anew would do the same: the same class and arguments, the same files, and the
same values of all environment variables that making it asked for. What took threads or set a variable is left alone,
since a fork would lose it.

`from_pretrained` of transformers' base class is where all of them pass (tokenization_utils_base.py, checked in 5.17 and
5.19).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.trial import importspy

_MODULE = "transformers.tokenization_utils_base"
_MOST_OF_A_KIND = 4
_LONGEST_S = 5.0
"""A tokenizer that takes longer is made by each server: a launch must not wait for it."""
_PATIENCE_S = 8.0
"""No further one is begun after this in one launch; those that are missing are made before the next."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A tokenizer, and what the variables were that making it asked for."""

    tokenizer: Any
    variables: Mapping[str, str | None]

    @property
    def is_true_here(self) -> bool:
        return all(os.environ.get(name) == value for name, value in self.variables.items())


class ReadyTokenizers:
    """What there is, and what servers noted; one for the parent and all that it forks.

    Args:
        base: transformers' base class of tokenizers.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._make: Callable[..., Any] = base.__dict__["from_pretrained"].__func__
        self._ready: dict[str, list[_Ready]] = {}
        # Of this process and those that it is a fork of, since what they took is not here any more.
        self._asked: Counter[str] = Counter()
        # Forks share its position, so each note follows the last.
        self._notes = os.memfd_create("tokenizers")
        self._notes_are = os.fstat(self._notes)
        self._read = 0
        self._given_up: set[str] = set()
        # Kept, since an engine throws some away at once: to free one is to copy its pages, half a second with a large
        # vocabulary.
        self._given: list[_Ready] = []

    # -- in a server --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Give from now on."""
        give = self._give

        @functools.wraps(self._make)
        def from_pretrained(cls: type, *arguments: Any, **options: Any) -> Any:
            return give(cls, arguments, options)

        self._base.from_pretrained = classmethod(from_pretrained)

    def _give(self, cls: type, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        key = _key(cls, arguments, options)
        if key is None:
            return self._make(cls, *arguments, **options)
        self._asked[key] += 1
        waiting = self._ready.get(key, [])
        if waiting and waiting[-1].is_true_here:
            self._given.append(waiting.pop())
            return self._given[-1].tokenizer
        threads, began = _threads(), time.monotonic()
        tokenizer = self._make(cls, *arguments, **options)
        seconds = time.monotonic() - began
        if seconds < _LONGEST_S and _threads() == threads:
            self._note(key)
        return tokenizer

    def _note(self, key: str) -> None:
        # A server may have closed what it does not know, and the number may be another file's by now.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._notes), self._notes_are):
                os.write(self._notes, f"{json.dumps([key, self._asked[key]])}\n".encode())

    # -- in the parent ------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make what servers had to make themselves."""
        until = time.monotonic() + _PATIENCE_S
        wanted: Counter[str] = Counter()
        for key, asked in self._noted():
            wanted[key] = max(wanted[key], min(asked, _MOST_OF_A_KIND))
        for key, number in wanted.items():
            ready = self._ready.setdefault(key, [])
            while key not in self._given_up and len(ready) < number and time.monotonic() < until:
                made = self._made(key)
                if made is None:
                    self._given_up.add(key)
                else:
                    ready.append(made)

    def _noted(self) -> list[tuple[str, int]]:
        written = os.pread(self._notes, os.fstat(self._notes).st_size - self._read, self._read)
        whole = written[: written.rfind(b"\n") + 1]
        self._read += len(whole)
        return [tuple(json.loads(line)) for line in whole.splitlines()]

    def _made(self, key: str) -> _Ready | None:
        module, name, arguments, options, _ = json.loads(key)
        cls: Any = sys.modules.get(module)  # what only a server imports stays with servers
        for part in name.split("."):
            cls = getattr(cls, part, None)
        if cls is None or _key(cls, arguments, options) != key:
            return None
        threads, given = _threads(), dict(os.environ)
        with importspy.EnvironmentSpy() as spy:
            try:
                tokenizer = self._make(cls, *arguments, **options)
            except Exception:  # noqa: BLE001 - then it fails in the server, where it is seen
                return None
        if given != dict(os.environ):
            os.environ.clear()
            os.environ.update(given)
            return None
        if spy.listed or _threads() != threads:
            return None
        return _Ready(tokenizer, {name: os.environ.get(name) for name in spy.read})


def for_transformers() -> ReadyTokenizers | None:
    """For the transformers that was imported; None where it was not, or has no such class."""
    base = getattr(sys.modules.get(_MODULE), "PreTrainedTokenizerBase", None)
    return ReadyTokenizers(base) if isinstance(vars(base or object).get("from_pretrained"), classmethod) else None


def _key(cls: type, arguments: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """Class, arguments and files, if all of them can be told: the first argument is a folder by its whole path."""
    folder = arguments[0] if arguments else None
    if not isinstance(folder, str) or not Path(folder).is_absolute():
        return None
    try:
        with os.scandir(folder) as found:
            files = sorted((entry.name, (told := entry.stat()).st_size, told.st_mtime_ns) for entry in found)
        key = json.dumps([cls.__module__, cls.__qualname__, list(arguments), dict(sorted(options.items())), files])
    except (OSError, TypeError, ValueError):
        return None
    return key if json.loads(key)[2:4] == [list(arguments), dict(options)] else None


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - numbers, not paths
