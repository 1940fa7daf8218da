"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from typing import Annotated

import typer

StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        envvar="TUNER_STORAGE",
        help="Database URL: sqlite:///FILE or postgresql://… [default: sqlite:///tuner.db here]",
        show_envvar=True,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
OtherMachineOption = Annotated[
    bool,
    typer.Option("--other-machine", help="Go on although hardware, driver or engine differ from the launches so far."),
]


def _address(given: str | None) -> str | None:
    if given is not None and not given.strip():
        raise typer.BadParameter("the address is empty; leave it out to start Ray here")
    return given


AddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        callback=_address,
        help="Join this Ray cluster (auto, HOST:PORT) instead of starting Ray here.",
    ),
]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", help="Stop after this long: 90s, 15m, 2h.")]
GpuHoursOption = Annotated[
    float | None, typer.Option("--gpu-hours", help="GPUs times hours of all launches. [default: the space's]")
]
StopBelowOption = Annotated[
    str | None,
    typer.Option(
        "--stop-below",
        help="End the search once no candidate is expected to gain this much of the first objective: 1%, 0.01.",
    ),
]

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|m|h|d)?")
_LONGEST = 1e9
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}


def duration_s(text: str) -> float:
    """Seconds from `90`, `90s`, `15m`, `2h`, `1d`.

    Raises:
        typer.BadParameter: anything else, zero, and what is beyond any study.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or not 0 < float(match["number"]) < _LONGEST:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 15m, 2h or 1d")
    return float(match["number"]) * _SECONDS[match["unit"]]


def share(text: str) -> float:
    """A share above 0 and below 1 from `1%`, `0.5 %` or `0.01`.

    Raises:
        typer.BadParameter: anything else.
    """
    percent = text.strip().endswith("%")
    try:
        found = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        found = 0.0
    if not 0 < found < 1:
        raise typer.BadParameter(f"{text!r} is no share between 0 and 1; write 1% or 0.01")
    return found
