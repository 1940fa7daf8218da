"""The command line of the simulated engine, and the flag catalogue generated from it.

Flags carry SGLang's spellings; where vLLM has the same idea under another name, that name is an alias. The shipped
catalogue is written by `python -m tuner.engines.simulated.flags FILE`; a test holds that the two agree.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAVORS = ("sglang", "vllm")
ATTENTION_BACKENDS = ("triton", "flashinfer", "torch_native", "fa3", "fa4", "trtllm_mla")
VLLM_ATTENTION_NAMES = {
    "TRITON_MLA": "triton",
    "TRITON_ATTN": "triton",
    "FLASHINFER": "flashinfer",
    "FLASH_ATTN": "fa3",
}
KV_DTYPES = ("auto", "bf16", "fp8_e5m2", "fp8_e4m3", "fp4-fast")
SCHEDULE_POLICIES = ("fcfs", "lpm", "dfs-weight", "random")

DEAD_FLAGS = {
    "--triton-attention-reduce-in-fp32": "accepted, but nothing reads it",
    "--spec-trace-dir": "accepted, but nothing reads it",
    "--prefetch-depth": "accepted, but nothing reads it",
}
"""Accepted without any effect, as real engines have them; they exist to prove that inert settings are found out."""

REMOVED_FLAGS = {"--enable-turbo": "never released: use --num-continuous-decode-steps"}
"""Refused, with what to use instead."""


def _token_count(text: str) -> int:
    """An integer of at least -1 (-1 turns the limit off)."""
    value = int(text)
    if value < -1 or value == 0:
        raise argparse.ArgumentTypeError(f"{value} is neither positive nor -1")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


_TYPE_NAMES: dict[Callable[[str], Any] | None, str] = {
    int: "int", _positive: "int", _token_count: "int", float: "float", str: "str", None: "str",
}  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """The parser; a flag that is absent parses to None (switches to False), so that settings know what was asked."""
    parser = argparse.ArgumentParser(
        prog="tuner.engines.simulated",
        description="Simulated LLM server: speeds follow a model, no hardware is measured.",
        allow_abbrev=False,
    )
    _add_server_flags(parser.add_argument_group("server"))
    _add_engine_flags(parser.add_argument_group("engine settings that the model knows"))
    _add_dead_flags(parser.add_argument_group("accepted without effect"))
    _add_simulation_flags(parser.add_argument_group("simulation"))
    return parser


def _add_server_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--model", "--model-path", metavar="NAME", help="name of the model; no file is read")
    add("--served-model-name", metavar="NAME", help="name offered by /v1/models; the model's name when absent")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=30000, help="HTTP port")
    add("--tp-size", "--tp", "--tensor-parallel-size", type=_positive, default=8, help="only echoed in the log")
    add("--api-key", metavar="KEY", help="ask for this bearer token on /v1 routes")
    add("--log-level", choices=("info", "warning"), default="info", help="warning leaves out progress while serving")


def _add_engine_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--mem-fraction-static", "--gpu-memory-utilization", type=float, help="share of GPU memory for weights and KV")
    add("--max-running-requests", "--max-num-seqs", type=_positive, help="requests in one batch; the rest queues")
    add("--max-queued-requests", type=_positive, help="requests that may wait; the rest gets 503")
    add("--context-length", "--max-model-len", type=_positive, help="longest prompt plus answer, tokens")
    add("--chunked-prefill-size", "--max-num-batched-tokens", type=_token_count, help="prompt tokens in one step")
    add("--num-continuous-decode-steps", type=_positive, help="decode steps per scheduler turn (flavor sglang)")
    add("--schedule-policy", "--scheduling-policy", choices=SCHEDULE_POLICIES, help="order of the queue")
    add("--disable-overlap-schedule", "--no-async-scheduling", action="store_true", help="scheduler waits for the GPU")
    add("--page-size", "--block-size", type=int, choices=(1, 16, 32, 64), help="tokens per KV page")
    add("--kv-cache-dtype", choices=KV_DTYPES, help="fp4-fast is faster and wrong on purpose")
    add(
        "--attention-backend",
        choices=(*ATTENTION_BACKENDS, *VLLM_ATTENTION_NAMES),
        help="attention kernels; which ones work is said by the model file",
    )
    add("--disable-cuda-graph", "--enforce-eager", action="store_true", help="no CUDA graphs")
    add(
        "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs", "--max-cudagraph-capture-size",
        type=_positive, help="largest batch with a captured graph",
    )  # fmt: skip
    add(
        "--enable-custom-all-reduce", action="store_true", help="the engine's own all-reduce; NCCL settings stop acting"
    )
    add("--disable-custom-all-reduce", action="store_true", help="leave all-reduce to NCCL; wins over --enable-…")
    add("--stream-interval", type=_positive, help="tokens per streamed chunk")


def _add_dead_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--triton-attention-reduce-in-fp32", action="store_true", help="no effect")
    group.add_argument("--spec-trace-dir", help="no effect")
    group.add_argument("--prefetch-depth", type=_positive, help="no effect")


def _add_simulation_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--flavor", choices=FLAVORS, default="sglang", help="which engine's defaults, log lines and failures to imitate"
    )
    add("--sim-model", metavar="NAME_OR_FILE", default="sm120", help="performance model: a name or a YAML file")
    add("--time-scale", type=float, default=1.0, help="simulated seconds per real second")
    add("--launch-seed", type=int, help="seed of this launch's noise; random when absent")
    add("--noise-scale", type=float, default=1.0, help="multiplies all noise; 0 turns it off")
    add("--drift-percent", type=float, default=0.0, help="slow-down that builds up over wall time, percent")
    add("--drift-over", type=float, default=600.0, help="wall seconds over which the drift builds up")
    add("--drift-since", type=float, help="Unix time at which the drift began; the launch when absent")
    add("--fault", action="append", default=[], metavar="SPEC", help="misbehave; repeatable, see docs/simulated.md")


def catalogue() -> dict[str, Any]:
    """The flag catalogue in the format of `launchers/<engine>/flags/<version>.json`."""
    flags = [_entry(action) for action in build_parser()._actions if action.dest != "help"]
    return {
        "engine": "simulated",
        "version": "1",
        "source": "generated from tuner.engines.simulated.flags",
        "flags": sorted(flags, key=lambda flag: flag["name"]),
        "removed": REMOVED_FLAGS,
        "dead": DEAD_FLAGS,
    }


def _entry(action: argparse.Action) -> dict[str, Any]:
    name, *aliases = action.option_strings
    switch = action.nargs == 0
    return {
        "name": name,
        "aliases": aliases,
        "kind": "switch" if switch else "value",
        "type": "bool" if switch else _TYPE_NAMES[action.type if callable(action.type) else None],
        "choices": list(action.choices) if action.choices is not None else None,
        "default": action.default if action.default not in ([], None) else None,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(catalogue(), indent=1) + "\n", encoding="utf-8")
