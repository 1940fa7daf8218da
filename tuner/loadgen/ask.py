"""Small questions to a server outside the timed part: which models, how full the prefix cache was.

Over `http.client`, which reads no proxy variables and costs nothing to import.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from dataclasses import dataclass

from tuner.domain.shortage import own_shortage
from tuner.loadgen.target import Target

_TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>[-+.\deE]+)\s*$", re.M)
# Names of counters in tokens: (taken from the cache, all prompt tokens that could have been).
_CACHE_COUNTERS = (
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
)


def get(target: Target, path: str) -> str | None:
    """The text of a page, or None when the server has no such page or does not answer."""
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", target.prefix + path, headers=dict(target.headers))
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if answer.status == 200 else None


def unreachable(target: Target) -> str | None:
    """Why no connection to the server is to be had, or None when it takes one.

    Raises:
        OwnShortage: it cannot be asked, for want of files, memory or ports.
    """
    try:
        socket.create_connection((target.host, target.port), timeout=_TIMEOUT_S).close()
    except OSError as error:
        if (shortage := own_shortage(error)) is not None:
            raise shortage from error
        return error.strerror or str(error)
    return None


def served_models(target: Target) -> tuple[str, ...]:
    """Names that the server gives its models; empty when it does not say."""
    try:
        listed = json.loads(get(target, "/v1/models") or "null")
        return tuple(str(entry["id"]) for entry in listed["data"])
    except (ValueError, TypeError, KeyError):
        return ()


def simulated_clock(target: Target) -> float | None:
    """How much faster than a wall clock a simulated server's clock runs; None for a server that is not simulated."""
    try:
        told = json.loads(get(target, "/server_info") or "null")
        return float(told["time_scale"]) if told["simulated"] is True else None
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Prompt tokens since the server started: taken from the prefix cache, and asked of it."""

    hits: float
    queries: float

    def share_since(self, before: CacheCounters) -> float | None:
        """Share of prompt tokens taken from the cache since an earlier reading; None if nothing was asked."""
        asked = self.queries - before.queries
        return max(0.0, self.hits - before.hits) / asked if asked > 0 else None


def cache_counters(target: Target) -> CacheCounters | None:
    """Prefix-cache counters of a vLLM or SGLang server that shows its metrics; None for any other."""
    text = get(target, "/metrics")
    if text is None:
        return None
    sums: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        try:
            sums[match["name"]] = sums.get(match["name"], 0.0) + float(match["value"])
        except ValueError:
            continue
    for hits, queries in _CACHE_COUNTERS:
        if queries in sums:
            return CacheCounters(sums.get(hits, 0.0), sums[queries])
    return None
