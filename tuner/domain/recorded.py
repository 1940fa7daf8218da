"""What an exported script remembers about its own measurement, so that it can be measured again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from tuner.domain.values import MAX_GPUS
from tuner.domain.workload import Workload
from tuner.domain.written import FILE_MODEL, WrittenAt
from tuner.errors import UserError

MARK = "# recorded: "
"""What the line in a script begins with; a JSON object follows."""


class RecordedNumber(WrittenAt):
    """One objective: its value over launches and the 95 % interval, in the metric's unit."""

    center: float
    low: float | None = None
    high: float | None = None
    launches: Annotated[int, Field(gt=0)] = 1

    def worst_allowed(self, tolerance: float, launches: int) -> float:
        """The value that the mean of new launches must reach: `tolerance` (a share) off, or what noise makes of them.

        The recorded interval is that of the recorded mean. New launches have noise of their own: of n recorded and m
        new ones the difference lies within an interval that is sqrt(1 + n/m) times as wide (the prediction interval of
        a future mean; Hahn & Meeker, Statistical Intervals, 1991, chapter 4), here of logarithms.
        """
        wider = math.sqrt(1 + self.launches / launches)
        end = self.low if self.metric.higher_is_better else self.high
        by_noise = self.center if end is None or end <= 0 else self.center * (end / self.center) ** wider
        if self.metric.higher_is_better:
            return min(self.center * (1 - tolerance), by_noise)
        return max(self.center * (1 + tolerance), by_noise)

    def holds(self, value: float, tolerance: float, launches: int) -> bool:
        """Whether the mean of new launches is as good; a better one always is."""
        bound = self.worst_allowed(tolerance, launches)
        return value >= bound if self.metric.higher_is_better else value <= bound


class Recorded(BaseModel):
    """A measurement, and what is needed to repeat it.

    Attributes:
        version: of this record's form.
        study: where it comes from.
        trial: within the study.
        engine: name of its definition.
        program: leading words of the command that are the engine's program.
        model: that is served.
        gpus: how many the server takes.
        simulated: whether the numbers are a model's.
        workload: what was sent.
        numbers: what was measured.
        machine: facts of the node.
        versions: of engine and packages.
    """

    model_config = FILE_MODEL

    version: Literal[1] = 1
    study: str
    trial: int
    engine: str
    program: Annotated[tuple[str, ...], Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)]
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)]
    simulated: bool
    workload: Workload
    numbers: tuple[RecordedNumber, ...]
    machine: Mapping[str, str]
    versions: Mapping[str, str]

    @property
    def line(self) -> str:
        """The comment that carries it, in one line of ASCII."""
        return MARK + json.dumps(self.model_dump(mode="json", by_alias=True))


def read_recorded(text: str, name: str) -> Recorded:
    """The record in a script's text.

    Raises:
        UserError: there is none, or it is not one of this version.
    """
    line = next((line for line in text.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise UserError(f"{name}: holds no recorded measurement", hint="give a script that `tuner export` wrote")
    try:
        return Recorded.model_validate_json(line.removeprefix(MARK))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        hint = "export it again with this version of tuner"
        raise UserError(f"{name}: its record cannot be read: {where}: {first['msg']}", hint=hint) from error
