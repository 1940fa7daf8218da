"""What is sent to a server: request shapes, load levels, and how long each is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(gt=0)]


class Workload(BaseModel):
    """The load of one study; the same for every trial, so that trials compare.

    Attributes:
        input_tokens: prompt length in tokens.
        output_tokens: tokens generated per request (`ignore_eos`, so equal for all).
        levels: concurrency levels of the closed loop, measured in this order on one launch.
        requests_per_level: requests counted at a level C are `max(min_requests, requests_per_slot * C)`.
        single_stream_requests: bounds on requests at C=1: stop when the 95 % interval of decode tok/s is
            within `precision`, or at the upper bound.
        precision: half-width of that interval as a share of the centre.
        repeats: how often each level is measured on one launch.
        warmup_requests: upper bound of warm-up requests; warm-up ends earlier when speed is steady.
        api: `completions` (prompt as token ids or text) or `chat`.
        request_timeout_s: a request without any byte for this long fails.
        seed: base seed; prompts differ per trial, level and repeat, so that no prefix cache can help.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: PositiveInt = 512
    output_tokens: PositiveInt = 128
    levels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1, 32, 128)
    requests_per_slot: PositiveInt = 2
    min_requests: PositiveInt = 8
    single_stream_min_requests: PositiveInt = 5
    single_stream_max_requests: PositiveInt = 30
    precision: Annotated[float, Field(gt=0, lt=1)] = 0.005
    repeats: PositiveInt = 2
    warmup_requests: PositiveInt = 12
    api: Literal["completions", "chat"] = "completions"
    request_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    seed: int = 0

    @model_validator(mode="after")
    def _levels_ascend(self) -> Workload:
        if list(self.levels) != sorted(set(self.levels)):
            raise ValueError("levels must ascend without repetition")
        return self
