"""A record survives its way through a file or a pipe."""

from __future__ import annotations

import pytest

from tuner.loadgen.record import CountedBy, RequestRecord, Trouble

FULL = RequestRecord(
    index=3,
    slot=1,
    turn=2,
    scheduled_at=1.5,
    sent_at=1.625,
    ended_at=3.0,
    status=200,
    asked_tokens=5,
    output_tokens=5,
    counted_by=CountedBy.LENGTH_CAP,
    prompt_tokens=7,
    cached_tokens=2,
    finish_reason="length",
    offsets_us=(1000, 2000),
    weights=(2, 3),
    trouble=Trouble.SHORT,
    error="é\n",
)


def test_what_is_written_is_read_back() -> None:
    line = FULL.to_json()
    assert "\n" not in line
    assert RequestRecord.from_json(line) == FULL


def test_latency_counts_from_the_scheduled_instant() -> None:
    assert FULL.ttft_s == pytest.approx(0.126)
    assert FULL.e2e_s == pytest.approx(0.127)


@pytest.mark.parametrize("line", ['{"index": 1, "surprise": 2}', "[]"])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a request record"):
        RequestRecord.from_json(line)
