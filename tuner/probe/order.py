"""What the ranks are told to do, and how long each part of it may take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.domain.probe import Backend

_FILE = "order.json"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds after which something counts as hung.

    Attributes:
        importing: until torch is imported; a cold disk needs most of a minute.
        first_run: a run before any has completed: libraries are loaded, GPUs wake up.
        shortest: no run gets less.
        factor: a run gets so many times the slowest completed one.
    """

    importing: float = 180.0
    first_run: float = 60.0
    shortest: float = 10.0
    factor: float = 4.0

    def for_run(self, slowest: float | None) -> float:
        """Seconds for the next run."""
        if slowest is None:
            return self.first_run
        return min(self.first_run, max(self.shortest, self.factor * slowest))


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One turn of one setting; an optional one is left out when the time is over.

    Attributes:
        number: position in the order.
        setting: its label.
        env: variables on top of the launch's own.
        optional: see above.
    """

    number: int
    setting: str
    env: Mapping[str, str]
    optional: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that `ranks.py` has to know.

    Attributes:
        backend: what carries the messages.
        ranks: how many processes.
        dtype: of the numbers that are added up.
        sizes: bytes of the messages.
        seconds: after this long no optional run begins.
        must_work: the setting without which the others are pointless: when it fails first, the rest is left out.
        runs: in this order; further runs of a setting that failed are left out.
    """

    backend: Backend
    ranks: int
    dtype: str
    sizes: tuple[int, ...]
    seconds: float
    must_work: str
    runs: tuple[PlannedRun, ...]

    def write(self, folder: Path) -> Path:
        """Write it beside the files of its launch."""
        document = asdict(self)
        for run in document["runs"]:
            run["store"] = str(folder / f"store-{run['number']}")
        path = folder / _FILE
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return path
