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
