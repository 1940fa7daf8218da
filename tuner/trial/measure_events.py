"""What a measurement says while it runs and when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
        level: concurrency at that point, None before the levels.
        stall: which request received nothing for how long, with how many tokens; None unless stalled.
        errors: error text → number of requests.
        tokens: output tokens received in the part that failed.
        levels: levels that had been measured in full before.
    """

    exit_code = 1

    def __init__(
        self,
        kind: MeasurementTrouble,
        stage: Stage,
        message: str,
        *,
        level: int | None = None,
        stall: Stall | None = None,
        errors: Mapping[str, int] | None = None,
        tokens: int = 0,
        levels: Sequence[LevelResult] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.stage = stage
        self.level = level
        self.stall = stall
        self.errors = dict(errors or {})
        self.tokens = tokens
        self.levels = tuple(levels)


@dataclass(frozen=True, slots=True)
class LevelProgress:
    """Where a running measurement is; given to `on_progress` about twice a second.

    Attributes:
        stage: warm-up or level.
        level: concurrency.
        rate: open-loop rate in requests/s, or None.
        repeat: which repeat, from 1.
        done: requests done in this part.
        total: requests of this part.
        in_flight: requests in flight.
        pieces: stream pieces received in this part (about one per token).
        elapsed_s: seconds since this part began.
    """

    stage: Stage
    level: int
    rate: float | None
    repeat: int
    done: int
    total: int
    in_flight: int
    pieces: int
    elapsed_s: float

    def __str__(self) -> str:
        where = f"C={self.level}" if self.rate is None else f"{self.rate:g} req/s"
        speed = f", {self.pieces / self.elapsed_s:.0f} tok/s" if self.elapsed_s > 0 and self.pieces else ""
        return f"{self.stage.value} {where} run {self.repeat}: {self.done}/{self.total} requests{speed}"
