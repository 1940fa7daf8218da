"""What a launch says and how long it takes before it serves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tuner.engines.simulated.journal import Journal
from tuner.engines.simulated.modelfile import SimModel
from tuner.engines.simulated.settings import NCCL_VARIABLES, Settings

_NCCL = "2.30.7"
_GPU_GB = 94.97
_SHARDS = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """What the log tells about a launch."""

    settings: Settings
    model: SimModel
    model_name: str
    url: str
    kv_tokens: int
    env: Mapping[str, str]
    tp_size: int

    def capture_sizes(self) -> tuple[int, ...]:
        """Batch sizes whose graphs are captured, largest first (SGLang's spacing)."""
        most = self.settings.cuda_graph_max_bs
        sizes = sorted({*(size for size in (1, 2, 4, 8, 12, *range(16, most + 1, 8)) if size <= most), most})
        return tuple(reversed(sizes))

    def seconds(self) -> dict[str, float]:
        """Phase → simulated seconds, in order; a launch without graphs captures none."""
        flavor = self.model.flavors[self.settings.flavor]
        seconds = dict(flavor.phases)
        if self.settings.cuda_graph:
            seconds["graph_capture"] += flavor.capture_per_size_s * len(self.capture_sizes())
        else:
            del seconds["graph_capture"]
        return seconds


async def run_phases(
    launch: Launch, journal: Journal, *, time_scale: float, on_phase: Callable[[str], Awaitable[None]]
) -> None:
    """Play the launch, up to where the HTTP server starts.

    Args:
        launch: what to tell.
        journal: where to.
        time_scale: simulated seconds per real second.
        on_phase: awaited in the middle of each phase; faults happen there.
    """
    script = _VLLM if launch.settings.flavor == "vllm" else _SGLANG
    for phase, seconds in launch.seconds().items():
        parts = list(script[phase](launch, journal))
        middle = len(parts) // 2
        for number, part in enumerate(parts):
            if number == middle:
                await on_phase(phase)
            part()
            await asyncio.sleep(seconds / len(parts) / time_scale)


_Part = Callable[[], None]
_Script = Callable[[Launch, Journal], Iterator[_Part]]


def _silent(_launch: Launch, _journal: Journal) -> Iterator[_Part]:
    yield lambda: None


def _bar(done: int, total: int) -> str:
    return f"{100 * done // total:3d}%|{'█' * (10 * done // total):<10}| {done}/{total}"


def _nccl_lines(launch: Launch, journal: Journal) -> None:
    """NCCL's own lines, where NCCL_DEBUG=INFO asks for them."""
    journal.raw(f"NCCL version {_NCCL}+cuda13.0")
    if launch.env.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return
    head = f"sim:{os.getpid()}:{os.getpid()} [0] NCCL INFO "
    nccl = launch.settings.nccl
    journal.raw(f"{head}ncclCommInitRankConfig comm 0x1 rank 0 nranks {launch.tp_size} cudaDev 0 - Init START")
    ignored = {name for name, _reason in nccl.ignored}
    for name in NCCL_VARIABLES:
        if launch.env.get(name) and name not in ignored:
            journal.raw(f"{head}{name} set by environment to {launch.env[name]}.")
    journal.raw(f"{head}{nccl.channels} coll channels, 0 collnet channels, 0 nvls channels, 8 p2p channels")
    transport = {"default": "SHM/direct/direct", "wide": "P2P/IPC", "disabled": "SHM/direct/direct"}[nccl.p2p]
    journal.raw(f"{head}Channel 00/0 : 0[0] -> 1[1] via {transport}")
    journal.raw(f"{head}Connected all rings")
    journal.raw(f"{head}ncclCommInitRankConfig comm 0x1 rank 0 nranks {launch.tp_size} cudaDev 0 - Init COMPLETE")
    if not launch.settings.custom_all_reduce:
        algorithm = "RING" if nccl.algorithm == "auto" else nccl.algorithm.upper()
        protocol = "SIMPLE" if nccl.protocol == "auto" else nccl.protocol.upper()
        for size in (14336, 1835008):
            channels = f"channel{{Lo..Hi}}={{0..{nccl.channels - 1}}}"
            journal.raw(f"{head}AllReduce: {size} Bytes -> Algo {algorithm} proto {protocol} {channels}")


# -- SGLang


def _s_parse(launch: Launch, journal: Journal) -> Iterator[_Part]:
    settings = launch.settings
    yield lambda: journal.main(
        f"server_args=ServerArgs(model_path='{launch.model_name}', tp_size={launch.tp_size}, "
        f"mem_fraction_static={settings.memory_fraction}, max_running_requests={settings.max_running}, "
        f"chunked_prefill_size={settings.prefill_chunk}, attention_backend='{settings.attention_backend}', "
        f"num_continuous_decode_steps={settings.decode_steps}, kv_cache_dtype='{settings.kv_dtype}')"
    )


def _s_nccl(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.worker("Init parallel begin.")
    yield lambda: journal.worker(f"sglang is using nccl=={_NCCL}")
    yield lambda: _nccl_lines(launch, journal)
    if not launch.settings.custom_all_reduce:
        yield lambda: journal.worker(
            "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this "
            "warning, specify disable_custom_all_reduce=True explicitly."
        )
    yield lambda: journal.worker("Init parallel ends. elapsed=5.98 s, mem usage=1.07 GB")


def _shards(journal: Journal) -> Iterator[_Part]:
    for done in range(0, _SHARDS + 1, 2):
        share = f"{100 * done // _SHARDS:3d}% Completed | {done}/{_SHARDS} [00:{done:02d}<00:{_SHARDS - done:02d}]"
        yield partial(journal.raw, f"Loading safetensors checkpoint shards: {share}")


def _s_weights(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.worker(f"Load weight begin. avail mem={_GPU_GB - 1.4:.2f} GB")
    yield from _shards(journal)
    used = launch.model.memory.weights * _GPU_GB
    yield lambda: journal.worker(
        f"Load weight end. elapsed=27.61 s, type=KimiK25ForConditionalGeneration, avail mem={_GPU_GB - used:.2f} GB, "
        f"mem usage={used:.2f} GB."
    )


def _s_profile(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: None
    yield lambda: journal.worker(
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {launch.kv_tokens}, KV size: "
        f"{(launch.settings.memory_fraction - launch.model.memory.weights) * _GPU_GB:.2f} GB"
    )
    yield lambda: journal.worker("Memory pool end. avail mem=13.10 GB")


def _s_capture(launch: Launch, journal: Journal) -> Iterator[_Part]:
    sizes = launch.capture_sizes()
    listed = ", ".join(map(str, reversed(sizes)))
    yield lambda: journal.worker(
        f"Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[{listed}], avail mem=12.97 GB"
    )
    for done, size in enumerate(sizes):
        text = f"Capturing batches (bs={size} avail_mem=12.6 GB): {_bar(done, len(sizes))}"
        yield partial(journal.raw, text)
    yield lambda: journal.worker(
        "Capture target decode CUDA graph end. elapsed=10.2 s, mem usage=0.62 GB, avail mem=12.2 GB."
    )


def _s_warmup(launch: Launch, journal: Journal) -> Iterator[_Part]:
    settings = launch.settings
    yield lambda: journal.worker(
        f"max_total_num_tokens={launch.kv_tokens}, chunked_prefill_size={settings.prefill_chunk}, "
        f"max_prefill_tokens=16384, max_running_requests={settings.max_running}, "
        f"context_len={settings.context_length}, available_gpu_mem=12.20 GB"
    )
    yield lambda: journal.uvicorn(f"Started server process [{os.getpid()}]")
    yield lambda: journal.uvicorn("Waiting for application startup.")


_SGLANG: dict[str, _Script] = {
    "import": _silent, "parse": _s_parse, "nccl_init": _s_nccl, "weights": _s_weights, "profile": _s_profile,
    "graph_capture": _s_capture, "warmup": _s_warmup,
}  # fmt: skip


# -- vLLM


def _v_parse(launch: Launch, journal: Journal) -> Iterator[_Part]:
    settings = launch.settings
    yield lambda: journal.main(
        f"non-default args: {{'model': '{launch.model_name}', 'tensor_parallel_size': {launch.tp_size}, "
        f"'gpu_memory_utilization': {settings.memory_fraction}, 'max_num_seqs': {settings.max_running}}}",
        source="startup.py:96",
    )
    yield lambda: journal.main("Resolved architecture: KimiK25ForConditionalGeneration", source="model.py:623")
    yield lambda: journal.main(f"Using max model len {settings.context_length}", source="model.py:1788")
    yield lambda: journal.main(
        f"Chunked prefill is enabled with max_num_batched_tokens={settings.prefill_chunk}.", source="scheduler.py:252"
    )


def _v_nccl(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.core(
        f"Initializing a V1 LLM engine (v0.33.0) with config: model='{launch.model_name}', "
        f"tensor_parallel_size={launch.tp_size}",
        source="core.py:116",
    )
    yield lambda: journal.worker(
        f"world_size={launch.tp_size} rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:40223 backend=nccl",
        source="parallel_state.py:1615",
    )
    yield lambda: journal.worker(f"vLLM is using nccl=={_NCCL}", source="pynccl.py:113")
    yield lambda: _nccl_lines(launch, journal)
    backends = "['CUSTOM', 'PYNCCL']" if launch.settings.custom_all_reduce else "['PYNCCL']"
    yield lambda: journal.worker(
        f"Using {backends} all-reduce backends (in dispatch order) for group 'tp:0'", source="cuda_communicator.py:354"
    )


def _v_weights(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.worker(f"Starting to load model {launch.model_name}...", source="gpu_model_runner.py:4989")
    yield from _shards(journal)
    used = launch.model.memory.weights * _GPU_GB
    yield lambda: journal.worker(f"Model loading took {used:.2f} GiB and 25.620663 seconds")


def _v_profile(launch: Launch, journal: Journal) -> Iterator[_Part]:
    backend = launch.settings.attention_backend.upper()
    yield lambda: journal.worker(f"Using {backend} attention backend out of potential backends.", source="cuda.py:482")
    yield lambda: journal.worker("Initial profiling/warmup run took 0.91 s", source="monitor.py:81")


def _v_compile(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.worker("Dynamo bytecode transform time: 8.34 s", source="backends.py:1155")
    for size in (1, launch.settings.prefill_chunk):
        text = f"Compiling a graph for compile range ({size}, {launch.settings.prefill_chunk}) takes 6.1 s"
        yield partial(journal.worker, text, source="backends.py:292")
    yield lambda: journal.worker("torch.compile took 20.04 s in total", source="monitor.py:53")


def _v_capture(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.core(f"GPU KV cache size: {launch.kv_tokens:,} tokens", source="kv_cache_utils.py:2177")
    sizes = launch.capture_sizes()
    for done in range(len(sizes) + 1):
        text = f"Capturing CUDA graphs (FULL): {_bar(done, len(sizes))}"
        yield partial(journal.raw, text)
    yield lambda: journal.worker("Graph capturing finished in 9 secs, took 0.62 GiB", source="model_runner.py:747")


def _v_warmup(launch: Launch, journal: Journal) -> Iterator[_Part]:
    yield lambda: journal.core(
        "init engine (profile, create kv cache, warmup model) took 38.86 s (compilation: 20.84 s)"
    )
    yield lambda: journal.main(f"Starting vLLM server on {launch.url}", source="api_server.py:677")
    yield lambda: journal.uvicorn(f"Started server process [{os.getpid()}]")
    yield lambda: journal.uvicorn("Waiting for application startup.")


_VLLM: dict[str, _Script] = {
    "import": _silent, "parse": _v_parse, "nccl_init": _v_nccl, "weights": _v_weights, "profile": _v_profile,
    "compile": _v_compile, "graph_capture": _v_capture, "warmup": _v_warmup,
}  # fmt: skip


def say_ready(launch: Launch, journal: Journal) -> None:
    """The lines after which the real engines serve."""
    if launch.settings.flavor == "sglang":
        journal.main("The server is fired up and ready to roll!")
    journal.uvicorn("Application startup complete.")
    journal.uvicorn(f"Uvicorn running on {launch.url} (Press CTRL+C to quit)")
