"""The routes: OpenAI's, and those that real engines add (health, server info, metrics, flush)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from tuner.domain.load import OPEN_LOOP_HEADER
from tuner.engines.simulated.completions import BadRequestError, parse
from tuner.engines.simulated.faults import Faults
from tuner.engines.simulated.misbehave import make_reply
from tuner.engines.simulated.scheduler import Job, Scheduler
from tuner.engines.simulated.settings import Settings
from tuner.engines.simulated.wire import Connection, Request


class Api:
    """Answers requests.

    Args:
        scheduler: generates.
        settings: what acts.
        model: name offered.
        info: the answer to `/server_info`; has `time_scale`.
        corrupts: share of wrong tokens in the answers, and `logprob_drift` their spread, that the settings cause.
        faults: replies that misbehave on purpose.
        api_key: bearer token asked for, or None.

    Attributes:
        draining: True once new requests are refused.
        health_hangs: True once health checks get no answer.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        *,
        model: str,
        info: Mapping[str, Any],
        corrupts: float,
        logprob_drift: float,
        faults: Faults,
        api_key: str | None,
    ) -> None:
        self._scheduler, self._settings, self._model, self._info = scheduler, settings, model, info
        self._corrupts, self._logprob_drift = corrupts, logprob_drift
        self._faults, self._api_key = faults, api_key
        self._numbers = itertools.count(1)
        self._started = time.time()
        self.draining = False
        self.health_hangs = False
        self._routes: dict[tuple[str, str], Callable[[Request, Connection], None]] = {
            ("POST", "/v1/completions"): lambda request, connection: self._generate(request, connection, chat=False),
            ("POST", "/v1/chat/completions"): lambda request, connection: self._generate(
                request, connection, chat=True
            ),
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._healthy,
            ("GET", "/ready"): self._healthy,
            ("GET", "/health_generate"): self._probe,
            ("GET", "/server_info"): lambda _request, connection: connection.send_json(200, dict(self._info)),
            ("GET", "/get_server_info"): lambda _request, connection: connection.send_json(200, dict(self._info)),
            ("GET", "/metrics"): self._metrics,
            ("POST", "/flush_cache"): self._flush,
            ("GET", "/flush_cache"): self._flush,
        }

    def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request, now or by and by."""
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _method, path in self._routes)
            self._error(connection, 405 if known else 404, "Method Not Allowed" if known else "Not Found")
        elif self._api_key and request.path.startswith("/v1/") and not self._authorized(request):
            self._error(connection, 401, "Unauthorized")
        else:
            route(request, connection)

    def _authorized(self, request: Request) -> bool:
        return request.headers.get(b"authorization", b"").decode("latin-1") == f"Bearer {self._api_key}"

    @staticmethod
    def _error(connection: Connection, status: int, message: str) -> None:
        connection.send_json(status, {"error": {"message": message, "type": "Error", "param": None, "code": status}})

    def _generate(self, request: Request, connection: Connection, *, chat: bool) -> None:
        scheduler, settings = self._scheduler, self._settings
        faults = self._faults.of_request(len(scheduler.running) + len(scheduler.waiting))
        rejected = next((fault for fault in faults if fault.name == "reject"), None)
        full = settings.max_queued is not None and len(scheduler.waiting) >= settings.max_queued
        if rejected is not None:
            self._error(connection, int(rejected.number("status")), "The server is overloaded, try again later.")
            return
        if self.draining or full:
            self._error(
                connection, 503, "The server is shutting down." if self.draining else "The request queue is full."
            )
            return
        try:
            asked = parse(
                request.json(),
                chat=chat,
                model=self._model,
                context_length=settings.context_length,
                corrupts=self._corrupts,
                logprob_drift=self._logprob_drift,
            )
        except BadRequestError as error:
            self._error(connection, error.status, error.message)
            return
        except ValueError as error:
            self._error(connection, 400, f"invalid JSON: {error}")
            return
        reply = make_reply(connection, asked, f"{next(self._numbers):08x}", faults)
        scheduled = OPEN_LOOP_HEADER.lower().encode() in request.headers
        job = Job(asked.prompt_tokens, asked.tokens, reply.emit, scheduled=scheduled)
        connection.on_lost = lambda: scheduler.cancel(job)
        reply.begin()
        scheduler.submit(job)

    def _probe(self, _request: Request, connection: Connection) -> None:
        """Deep health: generates one token."""

        def emit(_count: int) -> None:
            connection.send(200, b"", "text/plain")

        job = Job(1, 1, emit)
        connection.on_lost = lambda: self._scheduler.cancel(job)
        self._scheduler.submit(job)

    def _healthy(self, _request: Request, connection: Connection) -> None:
        if not self.health_hangs:
            connection.send(503 if self.draining else 200, b"", "text/plain")

    def _models(self, _request: Request, connection: Connection) -> None:
        entry = {
            "id": self._model,
            "object": "model",
            "created": int(self._started),
            "owned_by": "tuner-simulated",
            "root": self._model,
            "max_model_len": self._settings.context_length,
            "time_scale": self._info["time_scale"],
        }
        connection.send_json(200, {"object": "list", "data": [entry]})

    def _flush(self, _request: Request, connection: Connection) -> None:
        if self._scheduler.running or self._scheduler.waiting:
            connection.send(400, b"Cache not flushed because there are pending or running requests.\n", "text/plain")
        else:
            self._scheduler.forget()
            connection.send(200, b"Cache flushed.\n", "text/plain")

    def _metrics(self, _request: Request, connection: Connection) -> None:
        scheduler = self._scheduler
        usage = scheduler.kv_used / max(1, scheduler.kv_tokens)
        rows = (
            ("num_running_reqs", "gauge", len(scheduler.running)),
            ("num_queue_reqs", "gauge", len(scheduler.waiting)),
            ("token_usage", "gauge", round(usage, 6)),
            ("generation_tokens_total", "counter", scheduler.generated),
            ("prompt_tokens_total", "counter", scheduler.prefilled),
            ("time_scale", "gauge", self._info["time_scale"]),
        )
        label = f'{{model_name="{self._model}",simulated="true"}}'
        text = "".join(
            f"# TYPE simulated:{name} {kind}\nsimulated:{name}{label} {value}\n" for name, kind, value in rows
        )
        connection.send(200, text.encode(), "text/plain; version=0.0.4")
