"""Measuring a scripted server with a small workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.scripted_server import (
    Script,
    Step,
    good,
    serving,
)

from tuner.domain.measurement import LevelResult
from tuner.domain.workload import Workload
from tuner.trial.protocol import MeasurementFailed, measure

SMALL: dict[str, Any] = {
    "input_tokens": 4,
    "output_tokens": 4,
    "levels": (1, 4),
    "warmup_requests": 2,
    "single_stream_min_requests": 2,
    "single_stream_max_requests": 3,
    "repeats": 1,
    "min_requests": 4,
    "request_timeout_s": 5.0,
}


def work(**changes: Any) -> Workload:
    return Workload.model_validate(SMALL | changes)


def wait_for(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def run(script: Script, **changes: Any) -> tuple[LevelResult, ...]:
    with serving(script) as server:
        return measure(server.url, "m", work(**changes), seed=1)


def failure(script: Script, **changes: Any) -> MeasurementFailed:
    with pytest.raises(MeasurementFailed) as caught:
        run(script, **changes)
    return caught.value


def once_warm(script: Script, after: int = 2) -> Script:
    """Answers well at first, then by the script."""

    def answer(body: dict[str, Any], number: int) -> Iterable[Step]:
        return good(body, number) if number < after else script(body, number)

    return answer
