"""How a launch can end: measured, or failed in one of a closed set of ways.

The table `FAILURES` is the one place that says, for each class: whose fault, what the trial does next,
what the sampler hears and what the user reads. The classes and their meaning come from public failure
reports of both engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where a launch was; the order is the order of a launch."""

    PREFLIGHT = "preflight"
    SPAWN = "spawn"
    IMPORT = "import"
    PARSE = "parse"
    NCCL_INIT = "nccl_init"
    WEIGHTS = "weights"
    PROFILE = "profile"
    COMPILE = "compile"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    SERVING = "serving"
    TEARDOWN = "teardown"


class FailureClass(StrEnum):
    """Every way in which a launch can fail."""

    OOM_WEIGHTS = "oom_weights"
    KV_TOO_SMALL = "kv_too_small"
    OOM_GRAPH = "oom_graph"
    OOM_RUNTIME = "oom_runtime"
    GPU_BUSY = "gpu_busy"
    GRAPH_CAPTURE = "graph_capture"
    CUSTOM_ALLREDUCE = "custom_allreduce"
    SHM_TOO_SMALL = "shm_too_small"
    NCCL_CONFIG = "nccl_config"
    NCCL_HANG = "nccl_hang"
    ENGINE_STALL = "engine_stall"
    CUDA_FAULT = "cuda_fault"
    UNSUPPORTED = "unsupported"
    JIT_TOOLCHAIN = "jit_toolchain"
    DRIVER_MISMATCH = "driver_mismatch"
    BAD_FLAG = "bad_flag"
    MODEL_ACCESS = "model_access"
    ENV_SETUP = "env_setup"
    PORT_IN_USE = "port_in_use"
    HOST_OOM = "host_oom"
    WRONG_OUTPUT = "wrong_output"
    SHORT_OUTPUT = "short_output"
    LOST_WORKER = "lost_worker"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What a trial gets after a failure of its class."""

    MARK_INFEASIBLE = "mark_infeasible"
    RETRY_SAME_ONCE = "retry_same_once"
    RETRY_WAIT = "retry_wait"
    STOP = "stop"


class Observation(StrEnum):
    """What was seen of a launch from outside, beside its log.

    `hung`: no progress, though the process lives; `deadline`: a phase took longer than it may; `exited`: the process
    ended by itself; `running`: it runs and nothing is wrong with it.
    """

    HUNG = "hung"
    DEADLINE = "deadline"
    EXITED = "exited"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Failure:
    """One launch that did not yield a measurement; never a number.

    Attributes:
        failure_class: what went wrong.
        phase: where.
        evidence: the log lines, or the observation, that decided; without secrets.
        blames: knob names or settings most likely at fault, most likely first.
        detail: one sentence for the user.
        exit_code: of the server process; negative for a signal; None if it was still running.
    """

    failure_class: FailureClass
    phase: Phase
    evidence: tuple[str, ...] = ()
    blames: tuple[str, ...] = ()
    detail: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What one failure class means for the trial, the sampler and the user.

    Attributes:
        fault: whose it is: `candidate`, `machine`, `study` (every trial would fail) or `tuner`.
        action: what the trial gets.
        baseline_action: what the same class means when the user's own command shows it.
        teaches_sampler: True if the candidate is to blame, so that the sampler is told `infeasible`.
        words: what the user reads: cause, then what to do.
    """

    fault: str
    action: Action
    baseline_action: Action
    teaches_sampler: bool
    words: str


_CANDIDATE = ("candidate", Action.MARK_INFEASIBLE, Action.STOP, True)


def _policy(row: tuple[str, Action, Action, bool], words: str) -> FailurePolicy:
    return FailurePolicy(*row, words=words)


_RETRY_ONCE = ("candidate", Action.RETRY_SAME_ONCE, Action.STOP, True)
_STOP = ("study", Action.STOP, Action.STOP, False)

FAILURES: Mapping[FailureClass, FailurePolicy] = {
    FailureClass.OOM_WEIGHTS: _policy(
        _CANDIDATE, "GPU memory ran out while loading weights: use more tensor parallelism or a smaller quantisation"
    ),
    FailureClass.KV_TOO_SMALL: _policy(
        _CANDIDATE, "no room for the KV cache: raise the memory fraction or lower the context length"
    ),
    FailureClass.OOM_GRAPH: _policy(
        _CANDIDATE,
        "GPU memory ran out during graph capture or compile: lower the memory fraction or the capture sizes",
    ),
    FailureClass.OOM_RUNTIME: _policy(
        _CANDIDATE, "GPU memory ran out under load: lower the memory fraction or the batch limits"
    ),
    FailureClass.GPU_BUSY: _policy(
        ("machine", Action.RETRY_WAIT, Action.RETRY_WAIT, False),
        "another process holds GPU memory: end it or give tuner other GPUs",
    ),
    FailureClass.GRAPH_CAPTURE: _policy(
        _CANDIDATE, "CUDA graph capture failed: this compile, backend and graph combination does not work"
    ),
    FailureClass.CUSTOM_ALLREDUCE: _policy(
        _CANDIDATE, "the engine's own all-reduce failed: disable it, or drop expandable_segments"
    ),
    FailureClass.SHM_TOO_SMALL: _policy(_STOP, "/dev/shm is too small: run with --ipc=host or a larger --shm-size"),
    FailureClass.NCCL_CONFIG: _policy(_CANDIDATE, "NCCL rejects this setting or placement"),
    FailureClass.NCCL_HANG: _policy(_CANDIDATE, "a collective never completed: this transport does not work here"),
    FailureClass.ENGINE_STALL: _policy(_RETRY_ONCE, "the engine stopped making progress"),
    FailureClass.CUDA_FAULT: _policy(_RETRY_ONCE, "a CUDA kernel faulted: check the GPU's health if it repeats"),
    FailureClass.UNSUPPORTED: _policy(_CANDIDATE, "not supported by this GPU, model or engine version"),
    FailureClass.JIT_TOOLCHAIN: _policy(_CANDIDATE, "run-time compilation failed: nvcc, ninja or ptxas is missing"),
    FailureClass.DRIVER_MISMATCH: _policy(_STOP, "driver and CUDA runtime do not match, or no usable GPU"),
    FailureClass.BAD_FLAG: _policy(_CANDIDATE, "the engine rejects a flag, a value or a combination"),
    FailureClass.MODEL_ACCESS: _policy(_STOP, "the model cannot be loaded: path, access rights or architecture"),
    FailureClass.ENV_SETUP: _policy(_STOP, "the engine's environment is broken, whatever the candidate"),
    FailureClass.PORT_IN_USE: _policy(
        ("machine", Action.RETRY_WAIT, Action.RETRY_WAIT, False), "a port was taken: tried again on another"
    ),
    FailureClass.HOST_OOM: _policy(
        ("machine", Action.RETRY_WAIT, Action.STOP, True), "the machine ran out of memory and killed the server"
    ),
    FailureClass.WRONG_OUTPUT: _policy(_CANDIDATE, "the server answers wrongly: excluded whatever its speed"),
    FailureClass.SHORT_OUTPUT: _policy(
        _CANDIDATE, "requests failed or came short under load: the level cannot be compared"
    ),
    FailureClass.LOST_WORKER: _policy(
        ("tuner", Action.RETRY_SAME_ONCE, Action.RETRY_SAME_ONCE, False), "the worker or coordinator died: run again"
    ),
    FailureClass.UNKNOWN: _policy(_RETRY_ONCE, "no rule fits this log: see the server log"),
}
