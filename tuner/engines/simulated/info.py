"""`/server_info`: the settings that act, each under its flag's name, once; and why the others do not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tuner.engines.simulated.flags import DEAD_FLAGS, VLLM_ATTENTION_NAMES
from tuner.engines.simulated.model import Speed
from tuner.engines.simulated.modelfile import SimModel
from tuner.engines.simulated.settings import NCCL_VARIABLES, Settings

_NOT_USED = "not used"


def server_info(
    args: argparse.Namespace, env: Mapping[str, str], model: SimModel, settings: Settings, speed: Speed, seed: int
) -> dict[str, Any]:
    """What the server says about itself. A value asked for that does not act is reported as what acts instead."""
    asked_backend = args.attention_backend
    spelled = asked_backend if VLLM_ATTENTION_NAMES.get(asked_backend) == settings.attention_backend else None
    kv_dtype = "bf16" if args.kv_cache_dtype == "bf16" else settings.kv_dtype
    return {
        "simulated": True,
        "engine": "simulated",
        "version": "1",
        "flavor": settings.flavor,
        "flavor_version": model.flavors[settings.flavor].version,
        "sim_model": model.name,
        "machine": model.machine,
        "time_scale": args.time_scale,
        "launch_seed": seed,
        "noise_scale": args.noise_scale,
        "attention_backend": spelled or settings.attention_backend,
        "disable_cuda_graph": not settings.cuda_graph,
        "cuda_graph_max_bs_decode": settings.cuda_graph_max_bs,
        "num_continuous_decode_steps": settings.decode_steps,
        "chunked_prefill_size": settings.prefill_chunk,
        "max_running_requests": settings.max_running,
        "max_queued_requests": settings.max_queued,
        "mem_fraction_static": settings.memory_fraction,
        "kv_cache_dtype": kv_dtype,
        "disable_overlap_schedule": not settings.overlap,
        "page_size": settings.page_size,
        "schedule_policy": settings.schedule_policy,
        "enable_custom_all_reduce": settings.custom_all_reduce,
        "disable_custom_all_reduce": not settings.custom_all_reduce,
        "context_length": settings.context_length,
        "stream_interval": settings.stream_interval,
        "tp_size": args.tp_size,
        "max_total_num_tokens": speed.kv_tokens(),
        **{flag.lstrip("-").replace("-", "_"): _NOT_USED for flag in DEAD_FLAGS},
        **_nccl(env, settings),
        "inactive": [{"setting": setting, "reason": reason} for setting, reason in settings.inactive.items()],
    }


def _nccl(env: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Every NCCL variable that is set: its value where it acts."""
    acting = {name for name in NCCL_VARIABLES if name not in settings.inactive}
    return {
        name: value if name in acting else _NOT_USED
        for name, value in env.items()
        if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG") and value
    }
