"""What the models of files and records have in common, and how these write a metric at a load."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.config import JsonDict

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Metric, MetricAt
from tuner.domain.numbers import NUMBER, WHOLE
from tuner.domain.values import MAX_IN_FLIGHT, MAX_RATE

FILE_MODEL = ConfigDict(frozen=True, extra="forbid")
"""What a user writes is frozen and refuses unknown keys."""

_ONE_LOAD: JsonDict = {"oneOf": [{"required": ["level"]}, {"required": ["rate"]}]}


class WrittenAt(BaseModel):
    """`metric`, and the load by one of two keys.

    Attributes:
        metric: what is measured.
        level: requests in flight at any time (closed loop).
        rate: arrivals per second, whether or not earlier requests have ended (open loop).
    """

    model_config = ConfigDict(**FILE_MODEL, json_schema_extra=_ONE_LOAD)

    metric: Metric
    level: Annotated[int, Field(gt=0, le=MAX_IN_FLIGHT), WHOLE] | None = None
    rate: Annotated[float, Field(gt=0, le=MAX_RATE), NUMBER] | None = None

    @model_validator(mode="after")
    def _one_load(self) -> Self:
        if self.level is None and self.rate is None:
            raise ValueError("give level (requests in flight at any time) or rate (arrivals per second)")
        if self.level is not None and self.rate is not None:
            raise ValueError("give level or rate, not both")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the key that was not given: hashes of spaces that know no rates stay what they were."""
        document: dict[str, Any] = handler(self)
        absent = "level" if self.level is None else "rate"
        return {key: value for key, value in document.items() if key != absent}

    @property
    def load(self) -> LoadPoint:
        """Where it is measured."""
        return LoadPoint(self.level, self.rate)

    @property
    def at(self) -> MetricAt:
        """What is measured, and where."""
        return MetricAt(self.metric, self.load)
