"""Runs a job: a closed loop (each slot sends its next request when the last one ended) or an open one (by schedule).

Everything in the timed part is driven by callbacks; coroutines only open connections. The end of one request and the
sending of the next happen in the same call, so a closed loop has no gap of the client's own making.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from ssl import SSLContext
from time import perf_counter

from tuner.domain.shortage import own_shortage
from tuner.domain.values import counted
from tuner.errors import OwnShortage
from tuner.loadgen.job import Call, Conversation, Job, LoadResult, Progress, Stall, TooFewConnections
from tuner.loadgen.record import Trouble
from tuner.loadgen.sse import carries_token, record
from tuner.loadgen.watch import SelfWatch
from tuner.loadgen.wire import Connection, Exchange

_TICK_S = 0.1
_OPENING_AT_ONCE = 64
_SPIN_S = 0.002  # uvloop's timers count whole milliseconds; the last bit of a wait is spent asking


class _Clock:
    """When a request last made progress: tokens, not mere bytes."""

    __slots__ = ("at", "seen")

    def __init__(self, at: float) -> None:
        self.at, self.seen = at, 0

    def look(self, exchange: Exchange) -> None:
        """Find the newest token among the pieces that came since the last look; usually the very last piece is one."""
        pieces = exchange.pieces
        for place in range(len(pieces) - 1, self.seen - 1, -1):
            at, piece = pieces[place]
            if carries_token(piece):
                self.at = at
                break
        self.seen = len(pieces)


class Driver:
    """One job on one event loop.

    Args:
        job: what to do.
        on_tick: called about ten times a second with the progress; must be quick.
        should_stop: asked as often; True cuts the job short.
    """

    def __init__(
        self,
        job: Job,
        *,
        on_tick: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self._job = job
        self._on_tick = on_tick
        self._should_stop = should_stop
        self._requests: dict[int, bytes] = {}
        self._calls: dict[int, Call] = {}
        self._queue: deque[Conversation] = deque()
        self._rest: dict[int, Iterator[Call]] = {}
        self._idle: list[Connection] = []
        self._connections: dict[int, Connection] = {}
        self._clocks: dict[int, _Clock] = {}
        self._active: dict[int, Exchange] = {}
        self._over: list[Exchange] = []
        self._over_pieces = 0
        self._in_flight_max = 0
        self._reconnects = 0
        self._next_slot = job.part + job.slots * job.parts
        self._last_progress = 0.0
        self._stall: Stall | None = None
        self._dead: str | None = None
        self._tls: SSLContext | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at = 0.0
        self._due_at = 0
        self._done: asyncio.Future[None] | None = None

    async def prepare(self) -> None:
        """Open every connection and lay out every request; nothing of this is timed.

        Raises:
            OSError: when the server takes no connections.
            OwnShortage: when this process may open no more of them.
            TooFewConnections: when the server takes some and leaves the others waiting.
        """
        for conversation in self._job.conversations:
            for call in conversation:
                self._calls[call.index] = call
                self._requests[call.index] = self._job.target.post(self._job.path, call.body)
        gate = asyncio.Semaphore(_OPENING_AT_ONCE)
        self._tls = self._job.target.tls

        async def open_slot(slot: int) -> None:
            async with gate:
                self._connections[slot] = await self._open(slot)

        try:
            async with asyncio.timeout(self._job.connect_limit_s):
                await asyncio.gather(*(open_slot(slot) for slot in self._job.slot_numbers))
        except TimeoutError:
            self._close()
            opened, asked = len(self._connections), self._job.slots
            words = f"{opened} of {counted(asked, 'connection')} opened within {self._job.connect_limit_s:g} s"
            raise TooFewConnections(words) if opened else OSError(words) from None
        except OSError as error:
            self._close()
            if (shortage := own_shortage(error)) is not None:
                raise shortage from error
            raise

    async def _open(self, slot: int) -> Connection:
        return await Connection.open(self._job.target, slot, self._finished, self._tls)

    async def run(self, start_at: float | None = None) -> LoadResult:
        """The timed part.

        Args:
            start_at: monotonic seconds at which to begin, so that several processes begin together.

        Raises:
            OwnShortage: when this process may open no more connections.
        """
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        watch = SelfWatch()
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection in the middle of a level would be reported as the server's pause
        try:
            if start_at is not None:
                await asyncio.sleep(max(0.0, start_at - perf_counter() - _SPIN_S))
                while perf_counter() < start_at:
                    await asyncio.sleep(0)
            self._started_at = self._last_progress = perf_counter()
            watch.start()
            self._ticker = loop.call_later(_TICK_S, self._tick)
            if self._job.due_s:
                self._idle = list(self._connections.values())
                self._dispatch()
            else:
                self._queue.extend(self._job.conversations)
                for connection in list(self._connections.values()):
                    self._begin_next(connection)
            await self._done
            self._ticker.cancel()
            watch.stop()
        finally:
            gc.enable()
            gc.unfreeze()
            self._close()
        return self._result(watch)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _begin_next(self, connection: Connection) -> None:
        """Closed loop: the slot takes the next conversation, or falls idle."""
        if self._queue and not self._ending:
            self._rest[connection.slot] = iter(self._queue.popleft())
            self._send_next(connection)
        elif not self._active:
            self._finish()

    def _send_next(self, connection: Connection, scheduled_at: float | None = None) -> bool:
        call = next(self._rest[connection.slot], None)
        if call is None:
            return False
        self._send(connection, Exchange(call.index, connection.slot), scheduled_at)
        return True

    def _send(self, connection: Connection, exchange: Exchange, scheduled_at: float | None) -> None:
        self._active[connection.slot] = exchange
        self._in_flight_max = max(self._in_flight_max, len(self._active))
        if not connection.alive:
            self._spawn(self._reopen_and_send(connection, exchange, scheduled_at))
            return
        connection.send(self._requests[exchange.index], exchange)
        exchange.scheduled_at = exchange.sent_at if scheduled_at is None else scheduled_at
        self._clocks[connection.slot] = _Clock(exchange.sent_at)

    async def _reopen_and_send(self, old: Connection, exchange: Exchange, scheduled_at: float | None) -> None:
        self._reconnects += old.was_open  # an open loop opens more connections when it needs them
        self._clocks[old.slot] = _Clock(perf_counter())
        try:
            connection = await self._open(old.slot)
        except OSError as error:
            if (shortage := own_shortage(error)) is not None:
                self._fail(shortage)
                return
            exchange.sent_at = exchange.ended_at = perf_counter()
            exchange.broken = self._dead = f"{type(error).__name__}: {error}"
            self._finished(old, exchange)
            return
        self._connections[old.slot] = connection
        if self._ending:
            connection.abort()
            return
        self._send(connection, exchange, scheduled_at)

    def _dispatch(self) -> None:
        """Open loop: send everything that is due, then wait for the next instant."""
        if self._ending:
            return
        loop = asyncio.get_running_loop()
        due, conversations = self._job.due_s, self._job.conversations
        while self._due_at < len(due):
            at = self._started_at + due[self._due_at]
            wait = at - perf_counter()
            if wait > 0:
                if wait > _SPIN_S:
                    loop.call_later(wait - _SPIN_S / 2, self._dispatch)
                else:
                    loop.call_soon(self._dispatch)
                return
            conversation = conversations[self._due_at]
            self._due_at += 1
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = Connection(self._next_slot, self._finished)  # not open yet: opened by the send
                self._connections[self._next_slot] = connection
                self._next_slot += self._job.parts
            self._rest[connection.slot] = iter(conversation)
            self._send_next(connection, at)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _finished(self, connection: Connection, exchange: Exchange) -> None:
        unanswered = exchange.broken is not None and exchange.status == 0 and exchange.trouble is None
        stale = unanswered and connection.used and not exchange.retried
        if stale and not self._ending:
            # The server closed a connection that it had kept idle, just as we used it: no fault of this request.
            exchange.retried, exchange.broken = True, None
            self._spawn(self._reopen_and_send(connection, exchange, exchange.scheduled_at if self._job.due_s else None))
            return
        self._active.pop(connection.slot, None)
        self._over.append(exchange)
        self._over_pieces += len(exchange.pieces)
        self._last_progress = max(self._last_progress, exchange.ended_at)
        if self._ending:
            return
        if self._job.stop_on_error and (exchange.status != 200 or exchange.broken is not None):
            self._cut("another request failed", Trouble.CUT)
            return
        if self._send_next(connection):
            return
        if not self._job.due_s:
            self._begin_next(connection)
            return
        self._idle.append(connection)
        if not self._active and self._due_at >= len(self._job.due_s):
            self._finish()

    # -- watching ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._ending:
            return
        now = perf_counter()
        pieces = self._over_pieces
        slowest: tuple[float, int] | None = None
        for slot, exchange in self._active.items():
            clock = self._clocks.get(slot)
            if clock is None:
                continue
            clock.look(exchange)
            pieces += clock.seen
            self._last_progress = max(self._last_progress, clock.at)
            if slowest is None or clock.at < slowest[0]:
                slowest = clock.at, slot
        if slowest is not None:
            everyone = now - self._last_progress > self._job.stall_limit_s
            if everyone or now - slowest[0] > self._job.stream_limit_s:
                self._report_stall(slowest[1], now, everyone=everyone)
                return
        if self._should_stop is not None and self._should_stop():
            self._cut("stopped on request", Trouble.CUT)
            return
        if self._on_tick is not None:
            self._on_tick(Progress(len(self._over), len(self._active), pieces, now - self._started_at))
        self._ticker = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _report_stall(self, slot: int, now: float, *, everyone: bool) -> None:
        clock, exchange = self._clocks[slot], self._active[slot]
        tokens = sum(carries_token(piece) for _, piece in exchange.pieces)
        self._stall = Stall(exchange.index, tokens, now - clock.at, len(self._active), everyone)
        self._cut("no token within the limit", Trouble.STALLED)

    # -- ending ------------------------------------------------------------------------------------------------------

    @property
    def _ending(self) -> bool:
        return self._done is None or self._done.done()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, shortage: OwnShortage) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(shortage)

    def _cut(self, why: str, trouble: Trouble) -> None:
        now = perf_counter()
        self._finish()
        for exchange in self._active.values():
            exchange.broken, exchange.trouble, exchange.ended_at = why, trouble, now
            self._over.append(exchange)
            self._over_pieces += len(exchange.pieces)
        self._active.clear()

    def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for connection in self._connections.values():
            connection.abort()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _result(self, watch: SelfWatch) -> LoadResult:
        sent = [exchange for exchange in self._over if exchange.sent_at]
        records = [
            record(e, asked_tokens=self._calls[e.index].output_tokens, turn=self._calls[e.index].turn) for e in sent
        ]
        return LoadResult(
            records=tuple(sorted(records, key=lambda r: r.sent_at)),
            started_at=self._started_at,
            wall_s=watch.wall_s,
            cpu_s=watch.cpu_s,
            cpu_share=watch.cpu_share,
            lag_ms=watch.lag_ms,
            pieces=self._over_pieces,
            in_flight_max=self._in_flight_max,
            reconnects=self._reconnects,
            unsent=self._job.requests - len(records),
            stall=self._stall,
            dead=self._dead,
        )
