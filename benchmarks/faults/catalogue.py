"""What is injected, and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.outcome import FailureClass as Failed
from tuner.engines.simulated.faults import parse_fault

MEASURED = "measured"


class Disturbance(StrEnum):
    """What the benchmark itself does to a launch, beside the fault that the simulated engine plays."""

    NONE = "none"
    KILL_GUARD = "kill_guard"
    KILL_WORKER = "kill_worker"
    KILL_SERVER = "kill_server"
    STOP_SERVER = "stop_server"
    STEAL_PORT = "steal_port"
    LIMIT_FILES = "limit_files"


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault.

    Attributes:
        name: key in the report.
        spec: `--fault` of the simulated engine; empty for none.
        expected: what the trial may report: failure classes or `measured`.
        disturbance: what the benchmark does.
        flags: further flags of the server.
        file_bytes: size at which every file ends, for `limit_files`.
    """

    name: str
    spec: str = ""
    expected: frozenset[str] = frozenset({MEASURED})
    disturbance: Disturbance = Disturbance.NONE
    flags: Mapping[str, str] = field(default_factory=dict)
    file_bytes: int = 0


_SGLANG_PHASES = ("import", "parse", "nccl_init", "weights", "profile", "graph_capture", "warmup", "serving")
_VLLM = {"--flavor": "vllm"}


def _crash(phase: str, flags: Mapping[str, str] | None = None) -> Injection:
    spec = f"crash@{phase}"
    return Injection(f"crash_{phase}", spec, frozenset({parse_fault(spec).failure_class}), flags=flags or {})


def _hang(phase: str, flags: Mapping[str, str] | None = None, *, noisy: bool = False) -> Injection:
    failure = Failed.NCCL_HANG if phase == "nccl_init" else Failed.ENGINE_STALL
    name = f"hang_{phase}{'_noisy' if noisy else ''}"
    return Injection(name, f"hang@{phase}{':noisy=1' if noisy else ''}", frozenset({failure}), flags=flags or {})


def _failing(name: str, spec: str, *failures: Failed, disturbance: Disturbance = Disturbance.NONE) -> Injection:
    return Injection(name, spec, frozenset(failures), disturbance)


_STALL = Failed.ENGINE_STALL
_SHORT = Failed.SHORT_OUTPUT

INJECTIONS: tuple[Injection, ...] = (
    *(_crash(phase) for phase in _SGLANG_PHASES),
    _crash("compile", _VLLM),
    *(_hang(phase) for phase in _SGLANG_PHASES if phase != "serving"),
    _hang("compile", _VLLM),
    _hang("weights", noisy=True),
    _hang("warmup", noisy=True),
    _failing("hang_load_all_streams", "hang@serving:streams=all,running=3", _STALL),
    _failing("hang_load_one_stream", "hang@serving:streams=one,running=3", _STALL),
    _failing("hang_load_deaf_health", "hang@serving:streams=all,running=3,health=hang", _STALL),
    _failing("oom_at_load", "oom@weights", Failed.OOM_WEIGHTS),
    _failing("oom_in_capture", "oom@graph_capture", Failed.OOM_GRAPH),
    _failing("oom_under_load", "oom@serving:running=3", Failed.OOM_RUNTIME),
    Injection("ignored_sigterm", "ignore-sigterm"),
    Injection("slow_shutdown", "slow-shutdown:seconds=30"),
    Injection("reparented_child", "orphan"),
    Injection("child_keeps_port", "port-child"),
    Injection("crash_leaving_child", "orphan;crash@serving:running=3", frozenset({Failed.CUDA_FAULT})),
    _failing("port_taken", "port-stolen", Failed.PORT_IN_USE),
    _failing("port_stolen", "bind-late:seconds=600", Failed.PORT_IN_USE, disturbance=Disturbance.STEAL_PORT),
    Injection("bind_late", "bind-late:seconds=400"),
    Injection("log_flood", "log-flood@serving:lines=5000"),
    Injection("log_gigabyte", "log-size@weights:megabytes=1024"),
    Injection("log_garbage", "log-garbage@weights"),
    _failing("error_in_200", "error-200:running=3", _SHORT),
    _failing("error_in_stream", "sse-error:running=3", _SHORT),
    _failing("garbage_stream", "garbage:running=3", _SHORT),
    _failing("closed_mid_stream", "close:running=3", _SHORT),
    _failing("short_answers", "short:running=3", _SHORT),
    _failing("wrong_tokens", "wrong-tokens:skip=16", Failed.WRONG_OUTPUT),
    Injection("double_fork_and_session", "orphan;port-child;ignore-sigterm"),
    Injection(
        "log_on_full_disk", "log-size@weights:megabytes=16", disturbance=Disturbance.LIMIT_FILES, file_bytes=4 << 20
    ),
    Injection("no_file_on_full_disk", expected=frozenset({Failed.ENV_SETUP}), disturbance=Disturbance.LIMIT_FILES),
    _failing("server_killed", "", Failed.HOST_OOM, disturbance=Disturbance.KILL_SERVER),
    _failing("server_stopped", "", _STALL, Failed.NCCL_HANG, disturbance=Disturbance.STOP_SERVER),
    _failing("guard_killed", "", Failed.LOST_WORKER, disturbance=Disturbance.KILL_GUARD),
    Injection("worker_killed", disturbance=Disturbance.KILL_WORKER),
)
