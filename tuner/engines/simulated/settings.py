"""From what was asked (command line, environment) to what acts, with the reason for whatever does not act."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.engines.simulated.flags import DEAD_FLAGS, VLLM_ATTENTION_NAMES
from tuner.engines.simulated.modelfile import Defaults, SimModel
from tuner.engines.simulated.nccl import NcclConfigError, NcclSettings, read_environment

NCCL_VARIABLES = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
    "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_BUFFSIZE",
)  # fmt: skip
"""The NCCL variables that the model knows; any other is set without effect."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that act. Tokens, requests, and shares of GPU memory.

    Attributes:
        cuda_graph_max_bs: 0 without CUDA graphs.
        nccl_error: set when NCCL will refuse; the launch then ends where NCCL would end it.
        inactive: setting as asked → why it does not act.
    """

    flavor: str
    attention_backend: str
    cuda_graph_max_bs: int
    decode_steps: int
    prefill_chunk: int
    max_running: int
    max_queued: int | None
    memory_fraction: float
    kv_dtype: str
    overlap: bool
    page_size: int
    schedule_policy: str
    custom_all_reduce: bool
    context_length: int
    stream_interval: int
    nccl: NcclSettings
    nccl_error: NcclConfigError | None = None
    inactive: Mapping[str, str] = field(default_factory=dict)

    @property
    def cuda_graph(self) -> bool:
        """True when CUDA graphs are captured."""
        return self.cuda_graph_max_bs > 0


def resolve(args: argparse.Namespace, env: Mapping[str, str], model: SimModel) -> Settings:
    """What acts when a server is started with these arguments in this environment."""
    base: Defaults = model.flavors[args.flavor].defaults
    inactive = {flag: reason for flag, reason in DEAD_FLAGS.items() if getattr(args, _dest(flag))}
    custom = args.enable_custom_all_reduce and not args.disable_custom_all_reduce
    if args.enable_custom_all_reduce and args.disable_custom_all_reduce:
        inactive["--enable-custom-all-reduce"] = "--disable-custom-all-reduce wins"
    graphs = not args.disable_cuda_graph
    if not graphs and args.cuda_graph_max_bs_decode is not None:
        inactive["--cuda-graph-max-bs-decode"] = "CUDA graphs are off"
    backend = VLLM_ATTENTION_NAMES.get(args.attention_backend, args.attention_backend) or base.attention_backend
    if graphs and backend == "torch_native":
        graphs = False  # as SGLang does, silently
        inactive["CUDA graphs"] = "torch_native turns them off"
    decode_steps = args.num_continuous_decode_steps or base.decode_steps
    if args.flavor == "vllm" and args.num_continuous_decode_steps is not None:
        decode_steps = base.decode_steps
        inactive["--num-continuous-decode-steps"] = "flavor vllm has no such loop"
    nccl_settings, error = _nccl(env, model)
    inactive.update(nccl_settings.ignored)
    if custom:
        reason = "the engine's own all-reduce carries these messages"
        inactive.update({name: reason for name in NCCL_VARIABLES if env.get(name)})
    elif nccl_settings.protocol in ("LL", "LL128") and env.get("NCCL_BUFFSIZE"):
        inactive["NCCL_BUFFSIZE"] = f"sizes the Simple protocol's buffer, but {nccl_settings.protocol} runs"
    kv_dtype = "auto" if args.kv_cache_dtype in (None, "bf16") else args.kv_cache_dtype
    max_running = args.max_running_requests or base.max_running
    graph_size = args.cuda_graph_max_bs_decode or base.cuda_graph_max_bs
    return Settings(
        flavor=args.flavor,
        attention_backend=backend,
        cuda_graph_max_bs=min(graph_size, max_running) if graphs else 0,
        decode_steps=decode_steps,
        prefill_chunk=args.chunked_prefill_size or base.prefill_chunk,
        max_running=max_running,
        max_queued=args.max_queued_requests,
        memory_fraction=base.memory_fraction if args.mem_fraction_static is None else args.mem_fraction_static,
        kv_dtype=kv_dtype,
        overlap=not args.disable_overlap_schedule,
        page_size=args.page_size or base.page_size,
        schedule_policy=args.schedule_policy or base.schedule_policy,
        custom_all_reduce=custom,
        context_length=args.context_length or base.context_length,
        stream_interval=args.stream_interval or 1,
        nccl=nccl_settings,
        nccl_error=None if custom and error and error.at_first_call else error,
        inactive=inactive,
    )


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _nccl(env: Mapping[str, str], model: SimModel) -> tuple[NcclSettings, NcclConfigError | None]:
    machine = model.all_reduce
    try:
        read = read_environment(
            env, default_channels=machine.default_channels, protocol_preference=machine.protocol_preference
        )
    except NcclConfigError as error:
        return NcclSettings(channels=machine.default_channels), error
    return read, None
