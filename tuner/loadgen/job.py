"""What a load process is asked to do, and what it answers; both cross a pipe as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

from tuner.domain.values import counted
from tuner.loadgen.record import RequestRecord
from tuner.loadgen.target import Target


class TooFewConnections(ConnectionError):
    """The server took some of the connections and left the others waiting: it admits fewer than the job needs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to send.

    Attributes:
        index: its number in the job; unique over all processes.
        turn: position in its conversation.
        output_tokens: tokens asked for.
        body: the JSON body.
    """

    index: int
    turn: int
    output_tokens: int
    body: bytes


Conversation = tuple[Call, ...]
"""Calls that one slot sends one after the other; a single request is a conversation of one."""


@dataclass(frozen=True, slots=True)
class Job:
    """One timed part.

    Attributes:
        target: the server.
        path: request path, e.g. `/v1/completions`.
        slots: connections opened before the timed part; in a closed loop also the concurrency.
        conversations: what to send, in order.
        due_s: open loop: seconds after the start at which each conversation begins; empty for a closed loop.
        stream_limit_s: a request without a token for this long ends the job.
        stall_limit_s: no token on any request for this long ends the job.
        stop_on_error: send nothing more once a request failed, and cut what is in flight.
        connect_limit_s: opening all connections may take this long.
        part: which of several processes this is, from 0.
        parts: how many processes share the work; slots are numbered `part + k * parts`, so that all differ.
    """

    target: Target
    path: str
    slots: int
    conversations: tuple[Conversation, ...]
    due_s: tuple[float, ...] = ()
    stream_limit_s: float = 120.0
    stall_limit_s: float = 60.0
    stop_on_error: bool = True
    connect_limit_s: float = 30.0
    part: int = 0
    parts: int = 1

    @property
    def requests(self) -> int:
        """Number of requests in the job."""
        return sum(map(len, self.conversations))

    @property
    def slot_numbers(self) -> range:
        """The slots opened before the timed part."""
        return range(self.part, self.part + self.slots * self.parts, self.parts)

    def share(self, part: int, parts: int) -> Job:
        """The part of this job for one of several processes: every `parts`-th conversation and its share of slots."""
        return replace(
            self,
            slots=self.slots // parts + (part < self.slots % parts),
            conversations=self.conversations[part::parts],
            due_s=self.due_s[part::parts],
            part=part,
            parts=parts,
        )

    def to_lines(self) -> Iterator[bytes]:
        """The job as lines: one of JSON, then one body each (JSON as we write it holds no line break)."""
        head = {name: getattr(self, name) for name in self.__slots__ if name not in ("conversations", "target")}
        head["target"] = asdict(self.target)
        head["calls"] = [
            [(call.index, call.turn, call.output_tokens) for call in conversation]
            for conversation in self.conversations
        ]
        yield json.dumps(head).encode() + b"\n"
        for conversation in self.conversations:
            for call in conversation:
                yield call.body + b"\n"

    @classmethod
    def from_lines(cls, head: bytes, next_line: Callable[[], bytes]) -> Job:
        """The inverse of `to_lines`.

        Args:
            head: the first line.
            next_line: gives each following line.
        """
        data = json.loads(head)
        target = data.pop("target")
        target["headers"] = tuple((name, value) for name, value in target["headers"])
        conversations = tuple(
            tuple(Call(index, turn, tokens, next_line().rstrip(b"\n")) for index, turn, tokens in conversation)
            for conversation in data.pop("calls")
        )
        data["due_s"] = tuple(data["due_s"])
        return cls(target=Target(**target), conversations=conversations, **data)


@dataclass(frozen=True, slots=True)
class Stall:
    """Token progress ended.

    Attributes:
        index: the request that waited longest.
        tokens: token events that it had received.
        silent_s: how long it had waited.
        in_flight: requests in flight.
        everyone: True when no request had had a token within the limit for all.
    """

    index: int
    tokens: int
    silent_s: float
    in_flight: int
    everyone: bool

    def __str__(self) -> str:
        who = (
            f"none of {counted(self.in_flight, 'request')} in flight"
            if self.everyone
            else f"request {self.index} did not"
        )
        lead = f"{who} received" if self.everyone else f"{who} receive"
        return f"{lead} a token for {self.silent_s:.1f} s; request {self.index} had {counted(self.tokens, 'token')}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running job is: requests done and in flight, stream pieces received, seconds since the start."""

    done: int
    in_flight: int
    pieces: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one timed part gave.

    Attributes:
        records: every request that was sent, in order of sending.
        started_at: monotonic seconds of the start.
        wall_s: from the start to the last byte.
        cpu_s: CPU seconds of all load processes in that time.
        cpu_share: CPU seconds per wall second of the busiest process, as a share of one core.
        lag_ms: 99th percentile of the event loop's lateness in the worst process.
        pieces: stream pieces received.
        in_flight_max: most requests in flight at once.
        reconnects: connections that had to be opened again within the timed part.
        unsent: requests never sent because the job ended early.
        stall: set when token progress ended.
        dead: set when the server refused connections, in words.
        processes: number of load processes.
    """

    records: tuple[RequestRecord, ...] = field(repr=False)
    started_at: float
    wall_s: float
    cpu_s: float
    cpu_share: float
    lag_ms: float
    pieces: int
    in_flight_max: int
    reconnects: int
    unsent: int
    stall: Stall | None = None
    dead: str | None = None
    processes: int = 1

    def summary_json(self) -> str:
        """Everything but the records, as one line."""
        data = {name: getattr(self, name) for name in self.__slots__ if name not in ("records", "stall")}
        return json.dumps(data | {"stall": asdict(self.stall) if self.stall else None})

    @classmethod
    def from_summary(cls, line: str | bytes, records: tuple[RequestRecord, ...]) -> LoadResult:
        """The inverse of `summary_json`."""
        data = json.loads(line)
        stall = data.pop("stall")
        return cls(records=records, stall=Stall(**stall) if stall else None, **data)


def merge(results: list[LoadResult]) -> LoadResult:
    """The results of several processes that shared one job."""
    start = min(result.started_at for result in results)
    records = sorted((r for result in results for r in result.records), key=lambda r: r.sent_at)
    return LoadResult(
        records=tuple(records),
        started_at=start,
        wall_s=max(result.started_at + result.wall_s for result in results) - start,
        cpu_s=sum(result.cpu_s for result in results),
        cpu_share=max(result.cpu_share for result in results),
        lag_ms=max(result.lag_ms for result in results),
        pieces=sum(result.pieces for result in results),
        in_flight_max=sum(result.in_flight_max for result in results),
        reconnects=sum(result.reconnects for result in results),
        unsent=sum(result.unsent for result in results),
        stall=next((result.stall for result in results if result.stall), None),
        dead=next((result.dead for result in results if result.dead), None),
        processes=len(results),
    )
