"""What a measurement says while it runs and when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult
from tuner.errors import TunerError
from tuner.loadgen.job import Stall


class Stage(StrEnum):
    """Where a measurement was."""

    PROBE = "probe"
    WARMUP = "warmup"
    LEVEL = "level"


class MeasurementTrouble(StrEnum):
    """What ended a measurement."""

    DEAD_SERVER = "dead_server"
    STALLED = "stalled"
    REQUESTS_FAILED = "requests_failed"
    SHORT_OUTPUT = "short_output"
    ABORTED = "aborted"


class MeasurementFailed(TunerError):
    """A launch could not be measured; never a number.

    Attributes:
        kind: what ended it.
        stage: where.
        load: at that point.
        stall: which request received nothing for how long, with how many tokens; None unless stalled.
        errors: error text → number of requests.
        tokens: output tokens received in the part that failed.
        levels: loads that had been measured in full before.
    """

    exit_code = 1

    def __init__(
        self,
        kind: MeasurementTrouble,
        stage: Stage,
        message: str,
        *,
        load: LoadPoint,
        stall: Stall | None = None,
        errors: Mapping[str, int] | None = None,
        tokens: int = 0,
        levels: Sequence[LevelResult] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.stage = stage
        self.load = load
        self.stall = stall
        self.errors = dict(errors or {})
        self.tokens = tokens
        self.levels = tuple(levels)


@dataclass(frozen=True, slots=True)
class LevelProgress:
    """Where a running measurement is; given to `on_progress` about twice a second.

    Attributes:
        stage: warm-up or level.
        load: level or rate.
        repeat: which repeat, from 1.
        done: requests done in this part.
        total: requests of this part.
        in_flight: requests in flight.
        pieces: stream pieces received in this part (about one per token).
        elapsed_s: the server's seconds since this part began.
    """

    stage: Stage
    load: LoadPoint
    repeat: int
    done: int
    total: int
    in_flight: int
    pieces: int
    elapsed_s: float

    def __str__(self) -> str:
        """`C=32 run 1: 40/64 requests, 1203 tok/s`; before the loads with the stage in front."""
        stage = "" if self.stage is Stage.LEVEL else f"{self.stage.value} "
        speed = f", {self.pieces / self.elapsed_s:.0f} tok/s" if self.elapsed_s > 0 and self.pieces else ""
        return f"{stage}{self.load} run {self.repeat}: {self.done}/{self.total} requests{speed}"
