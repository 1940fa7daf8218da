"""Hides known secrets in a stream of bytes, wherever it is cut; standard library only, because the guard imports it.

What a server prints is not looked through for what resembles a secret: that would cost time while it is measured, and
change what it said. The values of its own secret variables are known, and finding these costs next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from tuner.secrets import HIDDEN, is_secret_name

_SHORTEST = 8
"""A shorter value is hardly a key, and would hide words that only look like it."""


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of an environment that nobody may read in a log."""
    return [text for name, text in environment.items() if is_secret_name(name) and len(text) >= _SHORTEST]


class Blindfold:
    """Replaces values in a stream.

    Args:
        values: what is hidden.
    """

    def __init__(self, values: Iterable[str]) -> None:
        # A value may begin with another one.
        self._values = sorted(map(os.fsencode, values), key=len, reverse=True)
        self._held = b""

    def hide(self, data: bytes) -> bytes:
        """The next bytes of the stream, without an end that may be the beginning of a value."""
        if not self._values:
            return data
        data = self._held + data
        for value in self._values:
            data = data.replace(value, HIDDEN.encode())
        end = len(data) - max(_begun(value, data) for value in self._values)
        self._held = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _begun(value: bytes, data: bytes) -> int:
    """How many bytes of a value stand at the end of the data."""
    return next((n for n in range(min(len(value) - 1, len(data)), 0, -1) if data.endswith(value[:n])), 0)
