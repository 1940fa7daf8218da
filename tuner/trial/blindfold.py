"""Hides known secrets in a stream of bytes, wherever it is cut; standard library only, because the guard imports it.

What a server prints is not looked through for what resembles a secret: that would cost time while it is measured, and
change what it said. The values of its own secret variables are known, and finding these costs next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

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
        self._values = [os.fsencode(value) for value in values]
        self._held = b""

    def hide(self, data: bytes) -> bytes:
        """The next bytes of the stream, without an end that may be the beginning of a value."""
        if not self._values:
            return data
        data = self._held + data
        end = len(data) - max(_begun(value, data) for value in self._values)
        spans = list(self._spans(data))
        # A value that is complete may be the beginning of a longer one, or reach into it.
        end = min([end, *(start for start, stop in spans if stop > end)])
        self._held = data[end:]
        return _without(data[:end], [span for span in spans if span[1] <= end])

    def rest(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return _without(held, list(self._spans(held)))

    def _spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where values stand, from first byte to behind the last, in order; those that overlap as one."""
        found = sorted(span for value in self._values for span in _places(value, data))
        begin = end = 0
        for start, stop in found:
            if start >= end:
                if end:
                    yield begin, end
                begin = start
            end = max(end, stop)
        if end:
            yield begin, end


def _places(value: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    at = data.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = data.find(value, at + 1)


def _begun(value: bytes, data: bytes) -> int:
    """How many bytes of a value stand at the end of the data."""
    return next((n for n in range(min(len(value) - 1, len(data)), 0, -1) if data.endswith(value[:n])), 0)


def _without(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    shown, after = [], 0
    for start, stop in spans:
        shown += [data[after:start], HIDDEN.encode()]
        after = stop
    return b"".join([*shown, data[after:]])
