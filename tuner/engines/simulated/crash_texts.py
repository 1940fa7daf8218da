"""Last words of a launch: for each failure class, what an engine prints and how its process ends.

The cause lines are texts of the engines, CUDA, NCCL and torch, seen in public failure reports (each class names its
source) or read from format strings of SGLang 0.5.23 and vLLM 0.33. Around a cause stand the wrappers that both engines
add, which are never the cause: a classifier must look through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tuner.engines.simulated.journal import Journal


class Ending(Enum):
    """How the process of the server ends."""

    CHILD = "a rank fails and takes the server with it"
    CONFIG = "the front end raises before any rank starts"
    PARSER = "argparse refuses the command line"
    KILLED = "killed from outside, without a word"


@dataclass(frozen=True, slots=True)
class CrashText:
    """One class. `sglang` and `vllm` are the cause; vLLM says the same when `vllm` is empty.

    Attributes:
        phase: where it is typical.
        detail: what stands for `{detail}` in a cause when nobody says it.
    """

    phase: str
    sglang: str
    vllm: str = ""
    ending: Ending = Ending.CHILD
    detail: str = ""


_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of 94.97 GiB of "
    "which {free} MiB is free. Including non-PyTorch memory, this process has 94.70 GiB memory in use. Of the "
    "allocated memory 91.12 GiB is allocated by PyTorch, and 297.40 MiB is reserved by PyTorch but unallocated."
)
_ADVICE = """
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)"""
_S = '  File "/opt/env/sglang/srt/'
_V = '  File "/opt/env/vllm/v1/'
_S_CAPTURE = _S + 'model_executor/runner/decode_cuda_graph_runner.py", line 603, in capture\n'
_V_CAPTURE = _V + 'worker/gpu_model_runner.py", line 6500, in capture_model\n'

_VLLM_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
)
_VLLM_DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root "
    "cause."
)

CRASH_TEXTS: dict[str, CrashText] = {
    # vllm-project/vllm#10034; sglang deployment notes
    "oom_weights": CrashText(
        "weights",
        _S
        + 'model_executor/model_runner.py", line 1300, in load_model\n'
        + _OOM.format(size="1.31 GiB", free="212.31"),
        _V + 'worker/gpu_model_runner.py", line 5040, in load_model\n' + _OOM.format(size="1.31 GiB", free="212.31"),
    ),
    # sglang pool_configurator.py; vllm kv_cache_utils.py
    "kv_too_small": CrashText(
        "profile",
        _S + 'model_executor/pool_configurator.py", line 96, in profile_max_num_token\n'
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        _V + 'core/kv_cache_utils.py", line 699, in _check_enough_kv_cache_memory\n'
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
    ),
    # public deployment report, HiSparse on H200
    "oom_graph": CrashText(
        "graph_capture",
        _S_CAPTURE
        + "Exception: Capture cuda graph failed: "
        + _OOM.format(size="1.50 GiB", free="88.19").split(": ", 1)[1]
        + _ADVICE,
        _V_CAPTURE + _OOM.format(size="1.50 GiB", free="88.19"),
    ),
    # club-3090 docs/CLIFFS.md
    "oom_runtime": CrashText(
        "serving",
        _S + 'managers/scheduler.py", line 700, in event_loop_overlap\n' + _OOM.format(size="512.00 MiB", free="30.50"),
        _V + 'engine/core.py", line 1340, in run_busy_loop\n' + _OOM.format(size="512.00 MiB", free="30.50"),
    ),
    # vllm-project/vllm#20305; cuBLAS on a full GPU
    "gpu_busy": CrashText(
        "nccl_init",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=31.44, local_gpu_memory=94.97, local_gpu_memory * 0.9=85.47",
        "ValueError: Free memory on device cuda:0 (31.44/94.97 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 87.37 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    # sgl-project/sglang#7918
    "graph_capture": CrashText(
        "graph_capture",
        _S_CAPTURE + "RuntimeError: CUDA error: operation not permitted when stream is capturing\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nException: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing"
        + _ADVICE,
        _V_CAPTURE + "RuntimeError: CUDA error: operation not permitted when stream is capturing",
    ),
    # sgl-project/sglang issue on register_graph_buffers; vllm csrc/custom_all_reduce.cuh
    "custom_allreduce": CrashText(
        "graph_capture",
        _S + 'distributed/device_communicators/custom_all_reduce.py", line 307, in register_graph_buffers\n'
        "RuntimeError: invalid argument\nException: Capture cuda graph failed: invalid argument" + _ADVICE,
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:164 'invalid argument'",
    ),
    # NCCL on a container with the default /dev/shm
    "shm_too_small": CrashText(
        "nccl_init",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.30.7\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
        "Last error:\nError while creating shared memory segment /dev/shm/nccl-8Xq1Zs (size 33030528), error: "
        "No space left on device (28)",
    ),
    # NVIDIA/nccl src/enqueue.cc, src/graph/tuning.cc; seen with vLLM 0.26 and NCCL_ALGO=Tree
    "nccl_config": CrashText(
        "nccl_init",
        "sim:3318:3318 [0] enqueue.cc:2063 NCCL WARN {detail}\n"
        + _S
        + 'distributed/device_communicators/pynccl_wrapper.py", line 420, in NCCL_CHECK\n'
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        "sim:3318:3318 [0] enqueue.cc:2063 NCCL WARN {detail}\n"
        '  File "/opt/env/vllm/distributed/device_communicators/pynccl_wrapper.py", line 418, in NCCL_CHECK\n'
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        detail="No algorithm/protocol available for function AllGather with datatype ncclInt8. NCCL_ALGO was set to "
        "Tree.",
    ),
    # torch ProcessGroupNCCL watchdog
    "nccl_hang": CrashText(
        "nccl_init",
        "[rank0]:[E822 16:31:16.131931664 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=5730, OpType=ALLREDUCE, NumelIn=3612672, NumelOut=3612672, Timeout(ms)=600000) ran "
        "for 600009 milliseconds before timing out.",
    ),
    # sglang utils/watchdog.py; vllm multiproc_executor.py
    "engine_stall": CrashText(
        "serving",
        "Watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        _V + 'executor/multiproc_executor.py", line 509, in get_response\n'
        "TimeoutError: RPC call to execute_model timed out.",
    ),
    # CUDA run-time texts
    "cuda_fault": CrashText(
        "serving",
        _S + 'managers/scheduler.py", line 2255, in run_batch\n'
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        _V + 'engine/core.py", line 1340, in run_busy_loop\n'
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ),
    # sglang attention_registry.py; vllm platforms/cuda.py
    "unsupported": CrashText(
        "weights",
        _S + 'layers/attention/attention_registry.py", line 244, in create_flashattention_v3_backend\n'
        "AssertionError: {detail}",
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. "
        "Reason: ['compute capability not supported']",
        detail="FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.",
    ),
    # vllm on SM121 without a matching ptxas
    "jit_toolchain": CrashText(
        "warmup",
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    ),
    # CUDA error 803
    "driver_mismatch": CrashText(
        "nccl_init",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / "
        "cuda driver combination",
    ),
    "bad_flag": CrashText(
        "parse",
        "tuner.engines.simulated: error: unrecognized arguments: --enable_metrics",
        ending=Ending.PARSER,
    ),
    # huggingface_hub
    "model_access": CrashText(
        "parse",
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
        "https://huggingface.co/moonshotai/Kimi-K2.5.\n401 Client Error. (Request ID: Root=1-68)",
        ending=Ending.CONFIG,
    ),
    "env_setup": CrashText(
        "import",
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        ending=Ending.CONFIG,
    ),
    # torch.distributed.rendezvous
    "port_in_use": CrashText(
        "nccl_init",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 40223, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    "host_oom": CrashText("weights", "", ending=Ending.KILLED),
    "unknown": CrashText("weights", "RuntimeError: the flux capacitor is out of phase"),
}


def last_words(journal: Journal, failure_class: str, *, flavor: str, detail: str) -> int:
    """Print a crash; return its exit status (negative for a signal).

    SGLang's parent answers a failing rank's SIGQUIT by killing its own tree with SIGKILL; vLLM's raises and exits 1.
    """
    text = CRASH_TEXTS[failure_class]
    cause = (text.vllm if flavor == "vllm" and text.vllm else text.sglang).replace("{detail}", detail or text.detail)
    match text.ending:
        case Ending.KILLED:
            return -9
        case Ending.PARSER:
            journal.raw(f"usage: tuner.engines.simulated [-h] [--model NAME] [--port PORT] ...\n{cause}")
            return 2
        case Ending.CONFIG:
            journal.raw(f"Traceback (most recent call last):\n{cause}")
            return 1
    if flavor == "vllm":
        failed = "failed to start" if text.phase != "serving" else "encountered a fatal error"
        journal.worker("WorkerProc hit an exception.", source="multiproc_executor.py:1007", level="ERROR")
        journal.worker(
            f"Traceback (most recent call last):\n{cause}", source="multiproc_executor.py:1007", level="ERROR"
        )
        journal.core(f"EngineCore {failed}.", source="core.py:1330")
        journal.raw(_VLLM_DEAD if text.phase == "serving" else _VLLM_FAILED)
        return 1
    journal.worker(f"Scheduler hit an exception: Traceback (most recent call last):\n{cause}")
    journal.main("Received sigquit from a child process. It usually means the child failed.")
    return -9
