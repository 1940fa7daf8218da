"""The values that a knob can take, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping

Scalar = bool | int | float | str
"""A value as the engine sees it; a list such as `LL,LL128,Simple` is one string."""

Value = Scalar | None
"""A knob's value; None is `unset`: the setting is left out of the launch."""

FlagValue = Value | tuple[Scalar, ...]
"""What a fixed flag holds: one value, or several words that follow the flag (`--cuda-graph-bs-decode 1 2 4`)."""

Assignment = Mapping[str, Value]
"""Knob name → value."""

UNSET_WORD = "unset"

MAX_INT = 2**63 - 1
"""No engine's flag takes a larger integer, and no database stores one."""
MAX_GPUS = 1024
"""No server runs on more."""
MAX_TRIALS = 1_000_000
MAX_LAUNCHES = 1000
"""Of one configuration, to prove something."""
MAX_SECONDS = 31_536_000
"""A year: no limit of time is longer, and every clock and wait of the system takes it."""
MAX_IN_FLIGHT = 65_535
"""Requests to one address at a time: each has a connection, and each connection a port of its own."""
MAX_RATE = 1_000_000
"""Arrivals per second."""
MAX_COUNT = 100_000_000
"""Tokens of a request, or requests of a measurement."""
MAX_NAME = 100
"""Characters of a name that people give: files and columns are called so, with more around it."""


def spell(value: Value) -> str:
    """Write a value the way a space file and a table show it: `on`, `off`, `unset`, `4`, `LL`."""
    if value is None:
        return UNSET_WORD
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def same(a: Value, b: Value) -> bool:
    """Equality that keeps booleans apart from the numbers 0 and 1."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def counted(number: float, noun: str) -> str:
    """`1 launch`, `2 launches`, `0 studies`, `1,432 combinations`, `1.5 hours`."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`launches`, `studies`, `trials`."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


_LEAST_CHANCE = 0.001


def chance(probability: float) -> str:
    """`98.7 %`; `> 99.9 %` and `< 0.1 %` at the ends, since no number of launches makes anything certain."""
    if probability < _LEAST_CHANCE:
        return f"< {_LEAST_CHANCE * 100:.1f} %"
    if probability > 1 - _LEAST_CHANCE:
        return f"> {(1 - _LEAST_CHANCE) * 100:.1f} %"
    return f"{probability * 100:.1f} %"


def readable(value: float) -> str:
    """A measured number with three or four significant digits: 63.6, 2,370, 0.153."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
