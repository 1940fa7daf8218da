"""Configuration files that an engine's own `--config FILE` reads: flags as keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.domain.catalogue import FlagCatalogue
from tuner.spec.command.model import FlagText

# Keys by which a file without a command betrays its engine; each is a flag of one engine only.
_TELLING: Mapping[str, frozenset[str]] = {
    "vllm": frozenset(
        {
            *("max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "max-model-len", "enforce-eager"),
            *("compilation-config", "speculative-config", "enable-prefix-caching", "max-cudagraph-capture-size"),
            *("cudagraph-capture-sizes", "enable-expert-parallel", "async-scheduling", "kv-transfer-config"),
            *("enable-auto-tool-choice", "limit-mm-per-prompt", "all2all-backend", "max-seq-len-to-capture"),
        }
    ),
    "sglang": frozenset(
        {
            *("model-path", "tp-size", "tp", "mem-fraction-static", "context-length", "chunked-prefill-size"),
            *("max-running-requests", "cuda-graph-max-bs", "cuda-graph-max-bs-decode", "schedule-policy"),
            *("schedule-conservativeness", "moe-runner-backend", "speculative-algorithm", "enable-mixed-chunk"),
            *("disable-cuda-graph", "disable-radix-cache", "sampling-backend", "dp-size", "ep-size", "dist-init-addr"),
        }
    ),
}

_COMMON = frozenset(
    {
        *("model", "host", "port", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "dtype"),
        *("quantization", "trust-remote-code", "kv-cache-dtype", "served-model-name", "api-key", "seed", "tokenizer"),
        *("load-format", "attention-backend", "stream-interval", "reasoning-parser", "tool-call-parser"),
        *("chat-template", "disable-custom-all-reduce", "enable-metrics", "log-level", "page-size", "block-size"),
    }
)
"""Flags that both engines have: they make a file of flags likely without telling whose."""


def _plain(key: str) -> str:
    return key.lstrip("-").replace("_", "-").removeprefix("no-")


def engine_of_keys(keys: Iterable[str]) -> str | None:
    """The engine whose flags these keys most likely are; None when nothing tells."""
    names = {_plain(key) for key in keys}
    found = {engine: len(names & telling) for engine, telling in _TELLING.items()}
    best = max(found, key=lambda engine: found[engine])
    return best if found[best] and list(found.values()).count(found[best]) == 1 else None


def is_config(data: Any, catalogue: FlagCatalogue | None) -> bool:
    """Whether a mapping reads like flags: known ones are at least half of its keys."""
    if not isinstance(data, dict) or not data:
        return False
    keys = [_plain(str(key)) for key in data]
    familiar = _COMMON.union(*_TELLING.values())
    known = [k for k in keys if k in familiar or (catalogue is not None and catalogue.find(f"--{k}") is not None)]
    return 2 * len(known) >= len(keys)


def flags_of_config(data: Mapping[str, Any]) -> dict[str, FlagText]:
    """The flags of a configuration file read literally: true is a switch, false leaves it out, objects are JSON."""
    flags: dict[str, FlagText] = {}
    for key, value in data.items():
        name = key if key.startswith("-") else f"--{key}"
        if isinstance(value, dict):
            flags[name] = json.dumps(value)
        elif isinstance(value, list):
            flags[name] = tuple(str(item) for item in value)
        elif value is None or str(value).lower() == "true":
            flags[name] = True
        elif str(value).lower() != "false":
            flags[name] = str(value)
    return flags
