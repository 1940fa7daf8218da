"""Records of one repeat → the values of every metric, over the steady window only.

A closed loop starts with every slot asking at once and ends with slots running dry. Neither is the load that was asked
for. The window opens when the first slot ends its first request and closes when the first slot has nothing more to
send: both lie at the same point of a slot's cycle, so a loop whose slots march in step is measured over whole cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tuner.domain.measurement import Metric
from tuner.domain.workload import LatencyLimits
from tuner.loadgen.record import RequestRecord
from tuner.trial.statistics import quantile

_LATENCIES = {
    "ttft": (Metric.TTFT_P50_MS, Metric.TTFT_P90_MS, Metric.TTFT_P99_MS),
    "itl": (Metric.ITL_P50_MS, Metric.ITL_P90_MS, Metric.ITL_P99_MS),
    "tpot": (Metric.TPOT_P50_MS, Metric.TPOT_P90_MS, Metric.TPOT_P99_MS),
    "e2e": (Metric.E2E_P50_MS, Metric.E2E_P90_MS, Metric.E2E_P99_MS),
}
_SHARES = (0.50, 0.90, 0.99)

BEHIND_LIMIT = 1.5
"""The last third of a schedule's requests takes so many times as long as the first: the server falls behind."""

_FEWEST_IN_A_THIRD = 4


@dataclass(frozen=True, slots=True)
class Window:
    """Monotonic seconds between which the load was as asked; events at the start are out, at the end in."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start

    def holds(self, at: float) -> bool:
        """True for an instant within."""
        return self.start < at <= self.end


def steady_window(records: Sequence[RequestRecord]) -> Window | None:
    """The window of a closed loop; None when no slot sent a second request.

    Args:
        records: complete requests of one repeat.
    """
    by_slot: dict[int, list[RequestRecord]] = {}
    for record in sorted(records, key=lambda r: r.sent_at):
        by_slot.setdefault(record.slot, []).append(record)
    firsts = [requests[0].last_at for requests in by_slot.values()]
    lasts = [requests[-1].last_at for requests in by_slot.values()]
    if not firsts or min(lasts) <= min(firsts):
        return None
    return Window(min(firsts), min(lasts))


def scheduled_window(records: Sequence[RequestRecord], started_at: float, seconds: float) -> Window:
    """The window of an open loop: from the first end of a request, before which arrivals met an emptier server than the
    rate makes, until arrivals end. A server that ends no request in that time is looked at from the start.

    Args:
        records: complete requests of one repeat.
        started_at: monotonic seconds of the start.
        seconds: for how long requests arrived at the asked rate.
    """
    end = started_at + seconds
    first = min((r.last_at for r in records), default=end)
    return Window(first if first < end else started_at, end)


def falls_behind(records: Sequence[RequestRecord]) -> bool:
    """True when requests that came by schedule took longer the later they came, beyond `BEHIND_LIMIT`."""
    times = [record.e2e_s for record in sorted(records, key=lambda r: r.scheduled_at) if record.complete]
    third = len(times) // 3
    return third >= _FEWEST_IN_A_THIRD and median(times[-third:]) > BEHIND_LIMIT * median(times[:third])


def _gaps_ms(record: RequestRecord, window: Window) -> list[float]:
    """Milliseconds per token for each event after the first that lies in the window.

    An event with several tokens counts as that many equal gaps: they arrived together, and their mean is all that the
    arrival says about each.
    """
    gaps: list[float] = []
    weights = record.weights or (1,) * len(record.offsets_us)
    for (before, after), tokens in zip(pairwise(record.offsets_us), weights[1:], strict=True):
        if window.holds(record.sent_at + after / 1e6):
            gaps.extend([(after - before) / 1000 / tokens] * tokens)
    return gaps


def _tokens_in(record: RequestRecord, window: Window) -> float:
    """Tokens that arrived in the window; tokens of bundles of unknown size are spread evenly over the events."""
    inside = [window.holds(record.sent_at + offset / 1e6) for offset in record.offsets_us]
    if record.weights:
        return sum(tokens for tokens, within in zip(record.weights, inside, strict=True) if within)
    return record.output_tokens * sum(inside) / len(inside)


def decode_tok_s(record: RequestRecord) -> float | None:
    """Tokens per second after the first token; None for a request of one token or one event."""
    tpot = record.tpot_s
    return 1 / tpot if tpot else None


def keeps(record: RequestRecord, limits: LatencyLimits) -> bool:
    """True when a request kept every limit."""
    tpot = record.tpot_s
    return (
        (limits.ttft_ms is None or record.ttft_s * 1000 <= limits.ttft_ms)
        and (limits.e2e_ms is None or record.e2e_s * 1000 <= limits.e2e_ms)
        and (limits.tpot_ms is None or tpot is None or tpot * 1000 <= limits.tpot_ms)
    )


def _sent_in(records: Sequence[RequestRecord], window: Window) -> list[RequestRecord]:
    return [r for r in records if window.start <= r.sent_at < window.end]


def metrics_in(
    records: Sequence[RequestRecord],
    window: Window,
    *,
    goodput: LatencyLimits | None = None,
    whole_requests_only: bool = True,
) -> dict[Metric, float]:
    """Every metric of one repeat, in tokens, requests and milliseconds of the measuring clock.

    Args:
        records: complete requests.
        window: the steady window.
        goodput: limits for goodput, or None.
        whole_requests_only: end-to-end and per-token times only from requests that also ended in the window, so that
            none saw the emptier server of the drain. With lengths that vary this would favour short requests; then all
            that were sent in the window count.

    Returns:
        Metric → value. Gaps between tokens are left out when the server bundles tokens without saying how many.
    """
    sent = _sent_in(records, window)
    ended = [r for r in sent if window.holds(r.last_at)] if whole_requests_only else sent
    whole = ended or sent
    found: dict[Metric, float] = {}
    if window.seconds > 0:
        found[Metric.OUTPUT_TOK_S] = sum(_tokens_in(r, window) for r in records) / window.seconds
        finished = [r for r in records if window.holds(r.last_at)]
        found[Metric.REQUEST_S] = len(finished) / window.seconds
        if goodput is not None:
            found[Metric.GOODPUT_S] = sum(keeps(r, goodput) for r in finished) / window.seconds
    speeds = [speed for r in whole if (speed := decode_tok_s(r))]
    if speeds:
        found[Metric.DECODE_TOK_S] = quantile(speeds, 0.5)
    samples: Mapping[str, list[float]] = {
        "ttft": [r.ttft_s * 1000 for r in sent],
        "itl": [] if any(r.bundled for r in records) else [gap for r in records for gap in _gaps_ms(r, window)],
        "tpot": [tpot * 1000 for r in whole if (tpot := r.tpot_s)],
        "e2e": [r.e2e_s * 1000 for r in whole],
    }
    for name, values in samples.items():
        if values:
            ordered = sorted(values)
            found |= {metric: quantile(ordered, q) for metric, q in zip(_LATENCIES[name], _SHARES, strict=True)}
    return found


def scheduled_rates(
    records: Sequence[RequestRecord], window: Window, seconds: float, *, goodput: LatencyLimits | None = None
) -> dict[Metric, float]:
    """Throughputs of an open loop, over the time in which its requests arrived: never above what was offered.

    Every request of the schedule counts, whenever it ended. Counting ends within a window instead would tell how the
    requests at its borders happened to fall. Where the server falls behind, ends are further apart than arrivals, and
    the time from the first end to the last one is what it needed. Goodput is the share of good requests among those
    sent in the window, whose start leaves out arrivals at an empty server, of the throughput of all.

    Args:
        records: complete requests of one repeat, at least one.
        window: the one of `scheduled_window`.
        seconds: for how long requests arrived at the asked rate.
        goodput: limits for goodput, or None.
    """
    needed = seconds
    if falls_behind(records):
        ends = [r.last_at for r in records]
        needed = max(seconds, max(ends) - min(ends))
    found = {
        Metric.OUTPUT_TOK_S: sum(r.output_tokens for r in records) / needed,
        Metric.REQUEST_S: len(records) / needed,
    }
    if goodput is not None:
        counted = _sent_in(records, window) or records
        good = sum(keeps(r, goodput) for r in counted)
        found[Metric.GOODPUT_S] = good / len(counted) * found[Metric.REQUEST_S]
    return found


def single_stream_metrics(record: RequestRecord) -> dict[Metric, float]:
    """What one request says when it has the server to itself."""
    found = {Metric.OUTPUT_TOK_S: record.output_tokens / record.e2e_s, Metric.REQUEST_S: 1 / record.e2e_s}
    speed = decode_tok_s(record)
    if speed:
        found[Metric.DECODE_TOK_S] = speed
    return found
