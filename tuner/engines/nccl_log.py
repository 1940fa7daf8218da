"""What NCCL itself says: which variables it read, and what it used for the messages of a decode step.

Lines and the versions that write them are those of NVIDIA/nccl: `set by environment` (src/misc/param.cc, subsystem
ENV), the table of possible combinations and one line per call (src/graph/tuning.cc, src/enqueue.cc, subsystem TUNING),
symmetric kernels (src/scheduler/symmetric_sched.cc). Captured calls log once, at capture. A call's line has had three
forms: names since 2.24 (`AllReduce: 8192 Bytes -> Algo RING proto LL channel{…}`; 2.31 adds more behind it), numbers
just before that (`AllGather: 8192 Bytes -> Algo 1 proto 2 time 9.8`), and until 2.22 numbers without saying which
collective.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.domain.trial import Activity

CALLS_SINCE = (2, 24)
"""First version of which a log without calls proves that there were none."""

_VERSION = re.compile(r"NCCL version (\d+)\.(\d+)\.(\d+)")
_READ = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (.*?)\.?\s*$")
_CALL = re.compile(r"NCCL INFO (\w+): (\d+) Bytes -> Algo ([A-Za-z]\w*) proto ([A-Za-z]\w*)")
_NUMBERED = re.compile(r"NCCL INFO (?:(\w+): )?(\d+) Bytes -> Algo (\d+) proto (\d+) time")
_SYMMETRIC = re.compile(r"NCCL INFO (\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\S+)")
_CHANNELS = re.compile(r"NCCL INFO (\d+) coll channels")
_BACKENDS = re.compile(r"Using \[([^\]]*)\] all-reduce backends \(in dispatch order\)")
# SGLang's second own all-reduce, once it is set up (custom_all_reduce_v2.py, rank 0); its first one says nothing.
_SGLANG_OWN = "All Reduce config: symmetric_memory"
# How the own all-reduces say that they step aside, in both engines (custom_all_reduce*.py, parallel_state.py).
_STEPS_ASIDE = re.compile(
    r"Custom ?all_?reduce(V2)? is disabled (because|due)|Setup Custom allreduce failed with", re.I
)
_NCCL_BACKENDS = frozenset({"PYNCCL", "NCCL", "NCCL_SYMM_MEM"})

# Variables that choose among NCCL's own algorithms; the others shape transport or memory.
_CHOICES = {"NCCL_ALGO": "algorithm", "NCCL_PROTO": "protocol"}
_FUNCTION = "allreduce"

# The numbers stand for these (src/include/device.h and its successors).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


@dataclass(frozen=True, slots=True)
class Call:
    """Collectives of one kind and size: how they were done, and how often that was logged.

    `function` is empty where the line does not name it.
    """

    function: str
    size_bytes: int
    algorithm: str
    protocol: str
    count: int


@dataclass(frozen=True, slots=True)
class NcclReading:
    """What was read from the lines of one server.

    Attributes:
        version: of the library that wrote them, None when they do not say.
        variables: name → value as NCCL understood it.
        calls: every logged collective.
        channels: channels that exist.
    """

    version: tuple[int, int, int] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    channels: int | None = None

    @property
    def logs_calls(self) -> bool:
        """Whether this NCCL logs its calls; taken for granted where it does not say its version."""
        return bool(self.calls) or self.version is None or self.version[:2] >= CALLS_SINCE

    def is_bypassed(self, sizes: Iterable[int]) -> bool:
        """Whether all-reduces of these sizes (bytes) never came to NCCL."""
        wanted = set(sizes)
        possible = (c for c in self.calls if c.function in ("AllReduce", "") and c.size_bytes in wanted)
        return self.logs_calls and next(possible, None) is None

    def all_reduces(self, sizes: Iterable[int]) -> tuple[Call, ...]:
        """Calls of these sizes (bytes) that say that they are all-reduces."""
        wanted = set(sizes)
        return tuple(c for c in self.calls if c.function == "AllReduce" and c.size_bytes in wanted)


def read_nccl_log(lines: Iterable[str]) -> NcclReading:
    """Read NCCL's own lines among any others."""
    version: tuple[int, int, int] | None = None
    variables: dict[str, str] = {}
    channels: int | None = None
    calls: Counter[tuple[str, int, str, str]] = Counter()
    for line in lines:
        if "NCCL" not in line:
            continue
        if found := _CALL.search(line):
            calls[found[1], int(found[2]), found[3].upper(), found[4].upper()] += 1
        elif found := _NUMBERED.search(line):
            algorithm, protocol = _named(_ALGORITHMS, found[3]), _named(_PROTOCOLS, found[4])
            calls[found[1] or "", int(found[2]), algorithm, protocol] += 1
        elif found := _SYMMETRIC.search(line):
            calls[found[1], int(found[2]), "SYMMETRIC", found[3]] += 1
        elif found := _READ.search(line):
            variables[found[1]] = found[2]
        elif found := _CHANNELS.search(line):
            channels = int(found[1])
        elif version is None and (found := _VERSION.search(line)):
            version = (int(found[1]), int(found[2]), int(found[3]))
    return NcclReading(version, variables, tuple(Call(*key, count) for key, count in calls.items()), channels)


def _named(names: Sequence[str], number: str) -> str:
    """What a number stands for; the number itself where this module is older than the log."""
    return names[int(number)] if int(number) < len(names) else number


def own_all_reduce(lines: Iterable[str]) -> str | None:
    """The engine's own all-reduce that comes before NCCL's, by its log; None when there is none, or it does not say.

    vLLM names its backends in order; when the first is not NCCL, messages up to its size limit bypass NCCL. SGLang's
    own one comes first whenever it could be set up.
    """
    first: str | None = None
    for line in lines:
        if _STEPS_ASIDE.search(line):
            return None
        if _SGLANG_OWN in line:
            first = "custom all-reduce"
        if found := _BACKENDS.search(line):
            names = [name.strip(" '\"") for name in found[1].split(",")]
            first = names[0] if names and names[0] not in _NCCL_BACKENDS else None
    return first


def variable_activity(
    name: str, asked: str, reading: NcclReading, sizes: Iterable[int], *, own: str | None = None
) -> tuple[Activity, str]:
    """Whether an NCCL variable acts on decode steps, and why it is believed.

    Args:
        name: the variable.
        asked: the value that was set.
        reading: NCCL's lines of a launch with the subsystems ENV and TUNING.
        sizes: bytes of the all-reduces that decode steps make.
        own: the engine's own all-reduce, if one comes first.
    """
    if name not in reading.variables:
        return Activity.INACTIVE, "NCCL did not read it"
    read = reading.variables[name]
    if name not in _CHOICES and read != asked:
        return Activity.INACTIVE, f"asked {asked}, NCCL understood {read}"
    if not reading.logs_calls:
        assert reading.version is not None, "only a version says that calls are not logged"
        return Activity.UNKNOWN, f"NCCL read it; version {'.'.join(map(str, reading.version))} logs no calls"
    sizes = set(sizes)
    if reading.is_bypassed(sizes):
        whose = f"the engine's own all-reduce ({own})" if own is not None else "something else"
        return Activity.INACTIVE, f"{whose} serves decode steps: NCCL made no all-reduce of their sizes"
    calls = reading.all_reduces(sizes)
    if not calls:
        return Activity.UNKNOWN, "NCCL read it; its log does not say which calls are all-reduces"
    used = ", ".join(dict.fromkeys(f"{call.algorithm} {call.protocol}" for call in calls))
    if name in _CHOICES:
        taken = {getattr(call, _CHOICES[name]).lower() for call in calls}
        allowed = _allowed(asked)
        if allowed is not None and not taken <= allowed:
            return Activity.INACTIVE, f"decode steps use {used}"
    return Activity.ACTIVE, f"NCCL read it; decode steps use {used}"


def _allowed(setting: str) -> frozenset[str] | None:
    """Words that a value of NCCL_ALGO or NCCL_PROTO allows for all-reduce; None when it excludes instead.

    Syntax since 2.24: `[list][;function:list]…`, a leading `^` excludes (src/graph/tuning.cc, parseList).
    """
    chosen: str | None = None
    for part in setting.lower().split(";"):
        function, separator, words = part.rpartition(":")
        if not separator or function == _FUNCTION:
            chosen = words
    if chosen is None or chosen.startswith("^") or not chosen:
        return None
    return frozenset(chosen.split(","))


def verification_env(folder: str) -> dict[str, str]:
    """Variables that make NCCL tell what it does, each process into a file of its own (`nccl.HOST.PID`) in a folder.

    For a launch of its own: one line per call would disturb a measurement.
    """
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
        "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p",
    }
