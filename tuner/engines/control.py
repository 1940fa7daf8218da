"""The control plane of a running server: is it ready, what does it run with, forget its prefix cache.

Only small calls, one at a time. The load goes over `tuner.loadgen`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from tuner.domain.shortage import own_shortage
from tuner.engines.definition import EngineDefinition

_CALL_TIMEOUT_S = 10.0
_INFO_TIMEOUT_S = 60.0
"""vLLM collects the whole machine's environment for its answer, which takes more than ten seconds on one core."""


class NotReadyError(Exception):
    """The server does not serve yet, or answered what no healthy server answers; the text says which."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One non-streaming answer."""

    text: str
    tokens: int


class ControlPlane:
    """Small calls to one server; close it after use.

    Each raises OwnShortage when it cannot be made for want of files, memory or ports.

    Args:
        base_url: `http://host:port`.
        definition: whose endpoints to use.
        api_key: bearer token, if the server wants one.
    """

    def __init__(self, base_url: str, definition: EngineDefinition, *, api_key: str | None = None) -> None:
        self._definition = definition
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # Proxies of the environment are for the outside world; our servers are on this machine.
        self._client = httpx.Client(base_url=base_url, timeout=_CALL_TIMEOUT_S, trust_env=False, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _json(self, method: str, path: str, *, timeout_s: float | None = None, body: object | None = None) -> Any:
        try:
            answer = self._client.request(method, path, json=body, timeout=timeout_s or _CALL_TIMEOUT_S)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise own_shortage(error) or NotReadyError(f"{method} {path}: {type(error).__name__}: {error}") from error

    def served_model(self) -> str:
        """Name under which the server offers its model.

        Raises:
            NotReadyError: when the server does not answer, or offers none.
        """
        answer = self._json("GET", "/v1/models")
        try:
            return str(answer["data"][0]["id"])
        except (LookupError, TypeError) as error:
            raise NotReadyError("GET /v1/models: no model in the answer") from error

    def complete(self, model: str, prompt: str, *, max_tokens: int, timeout_s: float) -> Completion:
        """One greedy completion.

        Raises:
            NotReadyError: on any error, also one inside a 200 answer, and when no token came.
        """
        body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0}
        answer = self._json("POST", "/v1/completions", timeout_s=timeout_s, body=body)
        try:
            text, tokens = str(answer["choices"][0]["text"]), int(answer["usage"]["completion_tokens"])
        except (LookupError, TypeError, ValueError) as error:
            raise NotReadyError(f"POST /v1/completions: unexpected answer {str(answer)[:200]}") from error
        if tokens < 1:
            raise NotReadyError("POST /v1/completions: no token generated")
        return Completion(text, tokens)

    def server_info(self) -> Mapping[str, Any] | None:
        """What the server says it runs with, or None when it does not say."""
        for path in self._definition.endpoints.server_info:
            try:
                answer = self._json("GET", path, timeout_s=_INFO_TIMEOUT_S)
            except NotReadyError:
                continue
            if isinstance(answer, dict):
                return answer
        return None

    def flush(self) -> None:
        """Ask the server to forget its prefix cache, where the engine offers a way; a refusal changes nothing.

        Prompts of different requests share no prefix anyway, so a cache that stays is no error.
        """
        request = self._definition.endpoints.flush
        if request is not None:
            with contextlib.suppress(httpx.HTTPError):
                self._client.request(request.method, request.path)
