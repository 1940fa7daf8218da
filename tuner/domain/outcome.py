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
    HOST_STARVED = "host_starved"
    CLIENT_STARVED = "client_starved"
    WRONG_OUTPUT = "wrong_output"
    SHORT_OUTPUT = "short_output"
    LOST_WORKER = "lost_worker"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What a trial gets after a failure of its class.

    `stop_if_steady`: wait and launch again for as long as the shortage shrinks; stop once it stays the same.
    """

    MARK_INFEASIBLE = "mark_infeasible"
    RETRY_SAME_ONCE = "retry_same_once"
    RETRY_WAIT = "retry_wait"
    STOP = "stop"
    STOP_IF_STEADY = "stop_if_steady"


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
        retries: how often the same configuration is launched again before `then`.
        then: what follows when the retries are used up; None = nothing to retry.
        handling: what tuner does about it beyond `action`, for the documentation.
    """

    fault: str
    action: Action
    baseline_action: Action
    teaches_sampler: bool
    words: str
    retries: int = 0
    then: Action | None = None
    handling: str = ""


def _infeasible(words: str, handling: str = "") -> FailurePolicy:
    return FailurePolicy("candidate", Action.MARK_INFEASIBLE, Action.STOP, True, words, handling=handling)


def _once_more(words: str, handling: str = "", *, baseline: Action = Action.STOP) -> FailurePolicy:
    retry = Action.RETRY_SAME_ONCE
    return FailurePolicy("candidate", retry, baseline, True, words, 1, Action.MARK_INFEASIBLE, handling)


def _hopeless(words: str, handling: str = "") -> FailurePolicy:
    return FailurePolicy("study", Action.STOP, Action.STOP, False, words, handling=handling)


FAILURES: Mapping[FailureClass, FailurePolicy] = {
    FailureClass.OOM_WEIGHTS: _infeasible(
        "GPU memory ran out while loading weights or in the first profile run: use more tensor parallelism, "
        "a smaller quantisation or fewer extras",
    ),
    FailureClass.KV_TOO_SMALL: _infeasible(
        "no room for the KV cache: raise the memory fraction or lower the context length",
        "the direction is up; with `oom_graph` or `oom_runtime` at a neighbouring value the region is infeasible",
    ),
    FailureClass.OOM_GRAPH: _infeasible(
        "GPU memory ran out after the KV cache took its share (allocation, compile, graph capture or NCCL buffers): "
        "lower the memory fraction or the capture sizes",
        "the direction is down",
    ),
    FailureClass.OOM_RUNTIME: _infeasible(
        "GPU memory ran out under load: lower the memory fraction or the batch limits",
        "levels measured before it are kept as information only",
    ),
    FailureClass.GPU_BUSY: FailurePolicy(
        "machine",
        Action.RETRY_WAIT,
        Action.STOP_IF_STEADY,
        False,
        "another process holds GPU memory: end it or give tuner other GPUs",
        retries=2,
        then=Action.STOP,
        handling="left-overs of tuner's own servers are ended first; waits until memory is back; a shortage that stays "
        "the same is the host's own use, so the study stops and names the process",
    ),
    FailureClass.GRAPH_CAPTURE: _infeasible(
        "CUDA graph capture failed: this combination of compile, backend and graph settings does not work"
    ),
    FailureClass.CUSTOM_ALLREDUCE: _infeasible(
        "the engine's own all-reduce failed: disable it, or drop expandable_segments from PYTORCH_CUDA_ALLOC_CONF"
    ),
    FailureClass.SHM_TOO_SMALL: _hopeless(
        "/dev/shm is too small: run the container with --ipc=host or a larger --shm-size"
    ),
    FailureClass.NCCL_CONFIG: _infeasible("NCCL rejects this setting or placement: change or drop it"),
    FailureClass.NCCL_HANG: _infeasible(
        "a collective never completed: this NCCL setting or transport does not work here",
        "the whole group is killed and the GPUs are checked; hangs with two different P2P values accuse the host",
    ),
    FailureClass.ENGINE_STALL: _once_more(
        "the engine stopped making progress: the setting is too slow, or deadlocks",
        "locks that a killed build left are removed; compile progress extends the deadline once",
    ),
    FailureClass.CUDA_FAULT: _once_more(
        "a CUDA kernel faulted: check the GPU's health (nvidia-smi, dmesg) if it repeats with other settings",
        "a fresh process; the same fault twice is the setting's",
    ),
    FailureClass.UNSUPPORTED: _infeasible(
        "not supported by this GPU, model or engine version: take the value out of the space",
        "the value is not drawn again",
    ),
    FailureClass.JIT_TOOLCHAIN: _infeasible(
        "run-time compilation failed: install the CUDA toolkit (nvcc, ptxas), ninja and a C++ compiler, or avoid "
        "settings that compile at start",
        "two unrelated configurations with it stop the study",
    ),
    FailureClass.DRIVER_MISMATCH: _hopeless(
        "driver and CUDA runtime do not match, or no usable GPU: repair the installation (reboot after a driver update)"
    ),
    FailureClass.BAD_FLAG: _infeasible(
        "the engine rejects a flag, a value or a combination: correct the space", "never tried again"
    ),
    FailureClass.MODEL_ACCESS: _hopeless(
        "the model cannot be loaded: check path, access token, --trust-remote-code and that this version knows it"
    ),
    FailureClass.ENV_SETUP: _hopeless("the engine's environment is broken, whatever the settings: see the line above"),
    FailureClass.PORT_IN_USE: FailurePolicy(
        "machine",
        Action.RETRY_WAIT,
        Action.RETRY_WAIT,
        False,
        "a port was taken: tried again on others; end the server that holds the ports if it repeats",
        retries=3,
        then=Action.STOP,
        handling="new free ports for HTTP and rendezvous, same configuration",
    ),
    FailureClass.HOST_OOM: FailurePolicy(
        "machine",
        Action.RETRY_WAIT,
        Action.STOP,
        True,
        "the machine ran out of memory and killed the server: free host memory or offload less",
        retries=1,
        then=Action.MARK_INFEASIBLE,
        handling="once more after memory is back",
    ),
    FailureClass.HOST_STARVED: FailurePolicy(
        "machine",
        Action.RETRY_WAIT,
        Action.RETRY_WAIT,
        False,
        "other processes took the CPU that the server needed: end them, or give tuner a machine of its own",
        retries=2,
        then=Action.STOP,
        handling="time in which a server waits for the CPU does not count for its limits, up to three times a limit "
        "and never beyond the launch time-out; what is measured on such a host would be worth nothing",
    ),
    FailureClass.CLIENT_STARVED: FailurePolicy(
        "machine",
        Action.RETRY_WAIT,
        Action.RETRY_WAIT,
        False,
        "tuner itself lacked open files, memory or ports to measure with: raise `ulimit -n`, free memory, or end what "
        "opens so many connections",
        retries=2,
        then=Action.STOP,
        handling="the server is ended; nothing is held against it",
    ),
    FailureClass.WRONG_OUTPUT: _infeasible("the server answers wrongly: excluded whatever its speed"),
    FailureClass.SHORT_OUTPUT: _infeasible(
        "requests failed or came short under load: the level cannot be compared with others"
    ),
    FailureClass.LOST_WORKER: FailurePolicy(
        "tuner",
        Action.RETRY_SAME_ONCE,
        Action.RETRY_SAME_ONCE,
        False,
        "the worker or coordinator died: launched again",
        retries=1,
        then=Action.MARK_INFEASIBLE,
    ),
    FailureClass.UNKNOWN: _once_more(
        "no rule fits this log: read the server log, and add a row to failures.yaml once the cause is known",
        "never stops a study by itself",
        baseline=Action.RETRY_SAME_ONCE,
    ),
}
