"""Load runs that never happened: records whose every time is known."""

from __future__ import annotations

from tuner.loadgen.job import LoadResult
from tuner.loadgen.record import RequestRecord


def request(
    slot: int, sent: float, *, ttft: float = 0.1, itl: float = 0.01, tokens: int = 11, **more: object
) -> RequestRecord:
    offsets = tuple(round((ttft + k * itl) * 1e6) for k in range(tokens))
    fields: dict[str, object] = {
        "index": 0,
        "slot": slot,
        "turn": 0,
        "scheduled_at": sent,
        "sent_at": sent,
        "ended_at": sent + offsets[-1] / 1e6,
        "status": 200,
        "asked_tokens": tokens,
        "output_tokens": tokens,
        "offsets_us": offsets,
    }
    return RequestRecord(**fields | more)  # type: ignore[arg-type]


def march(slots: int, rounds: int, period: float = 0.2, **more: object) -> list[RequestRecord]:
    """Slots in step: each sends a request of 0.2 s as soon as the last one ended."""
    return [request(slot, n * period, **more) for n in range(rounds) for slot in range(slots)]  # type: ignore[arg-type]


def result(records: list[RequestRecord], **more: object) -> LoadResult:
    fields: dict[str, object] = {
        "records": tuple(records),
        "started_at": 0.0,
        "wall_s": 1.0,
        "cpu_s": 0.1,
        "cpu_share": 0.1,
        "lag_ms": 0.5,
        "pieces": 10,
        "in_flight_max": 4,
        "reconnects": 0,
        "unsent": 0,
    }
    return LoadResult(**fields | more)  # type: ignore[arg-type]
