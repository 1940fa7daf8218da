"""What one request saw: the raw data behind every number."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum


class CountedBy(StrEnum):
    """Where the number of output tokens comes from; `usage` is the truth, `chunks` a last resort that is marked."""

    USAGE = "usage"
    LENGTH_CAP = "length_cap"
    CHUNKS = "chunks"


class Trouble(StrEnum):
    """Why a request is not counted."""

    TRANSPORT = "transport"
    REFUSED = "refused"
    HTTP_STATUS = "http_status"
    REDIRECT = "redirect"
    NOT_A_STREAM = "not_a_stream"
    SERVER_ERROR = "server_error"
    MALFORMED = "malformed"
    NO_TOKENS = "no_tokens"
    SHORT = "short"
    LONG = "long"
    STALLED = "stalled"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request.

    Attributes:
        index: position in the job.
        slot: connection number; unique over all load processes.
        turn: position within its conversation, from 0; 0 for single requests.
        scheduled_at: monotonic seconds when it was due; latencies count from here.
        sent_at: monotonic seconds just before its first byte was sent.
        ended_at: monotonic seconds when the answer was complete.
        status: HTTP status, 0 without an answer.
        asked_tokens: output tokens asked for.
        output_tokens: output tokens received.
        counted_by: where that number comes from.
        prompt_tokens: as counted by the server, None if it does not say.
        cached_tokens: prompt tokens taken from the prefix cache, None if the server does not say.
        finish_reason: as given by the server.
        offsets_us: arrival of each token-carrying event in microseconds after `sent_at`.
        weights: tokens in each of those events; empty when each holds exactly one.
        bundled: True when events hold several tokens and the server does not say how many each: gaps between events
            are then no token latencies.
        retried: True when a stale connection was replaced before the answer began.
        trouble: None for a request that gave every token asked for.
        error: what happened, in words.
    """

    index: int
    slot: int
    turn: int
    scheduled_at: float
    sent_at: float
    ended_at: float
    status: int
    asked_tokens: int
    output_tokens: int = 0
    counted_by: CountedBy = CountedBy.USAGE
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    offsets_us: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    bundled: bool = False
    retried: bool = False
    trouble: Trouble | None = None
    error: str = ""

    @property
    def complete(self) -> bool:
        """True when every token asked for arrived."""
        return self.trouble is None

    @property
    def first_at(self) -> float:
        """Monotonic seconds of the first token. Only for records with tokens."""
        return self.sent_at + self.offsets_us[0] / 1e6

    @property
    def last_at(self) -> float:
        """Monotonic seconds of the last token. Only for records with tokens."""
        return self.sent_at + self.offsets_us[-1] / 1e6

    @property
    def ttft_s(self) -> float:
        """Seconds from the scheduled instant to the first token."""
        return self.first_at - self.scheduled_at

    @property
    def e2e_s(self) -> float:
        """Seconds from the scheduled instant to the last token."""
        return self.last_at - self.scheduled_at

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per token after the first; None for a single token or a single event."""
        later = self.output_tokens - (self.weights[0] if self.weights else 1)
        if later < 1 or len(self.offsets_us) < 2:
            return None
        return (self.last_at - self.first_at) / later

    def to_json(self) -> str:
        """One line of JSON, without a line break."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> RequestRecord:
        """The inverse of `to_json`.

        Raises:
            ValueError: for a line that is no record.
        """
        data = json.loads(line)
        known = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or set(data) - known:
            raise ValueError("not a request record")
        data["counted_by"] = CountedBy(data["counted_by"])
        data["trouble"] = Trouble(data["trouble"]) if data["trouble"] else None
        data["offsets_us"] = tuple(data["offsets_us"])
        data["weights"] = tuple(data["weights"])
        return cls(**data)
