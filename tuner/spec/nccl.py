"""What NCCL makes of a variable's value. NCCL itself hardly ever complains: a wrong name, a word for a number or an
unknown level is ignored without a line in the log, and some algorithm lists fail only at the first broadcast.

Checked in the NCCL sources 2.27 to 2.31: `src/graph/tuning.cc` (algorithm and protocol lists), `src/misc/param.cc`
(integers), `src/graph/paths.cc` (P2P level).
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.domain.catalogue import closest
from tuner.domain.space import Hardware
from tuner.domain.values import Value

# As NCCL itself writes them; it reads them in any case.
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
P2P_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", *"012345")
_INTEGER_NAMES = (
    "MIN_NCHANNELS MAX_NCHANNELS MIN_CTAS MAX_CTAS NVLS_NCHANNELS NTHREADS LL128_NTHREADS BUFFSIZE LL_BUFFSIZE "
    "LL128_BUFFSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_NET_CHUNKSIZE P2P_DISABLE SHM_DISABLE CUMEM_ENABLE "
    "CUMEM_HOST_ENABLE NVLS_ENABLE GRAPH_REGISTER LOCAL_REGISTER WIN_ENABLE GRAPH_MIXING_SUPPORT PXN_DISABLE "
    "IGNORE_DISABLED_P2P IB_DISABLE MNNVL_ENABLE COLLNET_ENABLE"
)
INTEGERS = frozenset(f"NCCL_{name}" for name in _INTEGER_NAMES.split())
"""Variables read by strtoll, which makes 0 of `true` and `yes`."""
_OTHER_NAMES = (
    "ALGO PROTO P2P_LEVEL THREAD_THRESHOLDS SYM_KERNEL CTA_POLICY LAUNCH_MODE TUNER_PLUGIN TUNER_CONFIG_FILE DEBUG "
    "DEBUG_SUBSYS DEBUG_FILE GRAPH_FILE CONF_FILE SOCKET_IFNAME SOCKET_NTHREADS NSOCKS_PERTHREAD CROSS_NIC "
    "IB_HCA IB_TIMEOUT IB_GID_INDEX NET NET_GDR_LEVEL NET_PLUGIN ALLOC_P2P_NET_LL_BUFFERS TOPO_FILE NO_CACHE "
    "P2P_PXN_LEVEL ENV_PLUGIN PAT_ENABLE CHECKS_DISABLE"
)
KNOWN = INTEGERS | frozenset(f"NCCL_{name}" for name in _OTHER_NAMES.split())
# On one node these have nothing to run on; the rest need Ring for everything but all-reduce.
_NOT_ON_ONE_NODE = frozenset({"collnetdirect", "collnetchain", "nvlstree", "pat"})  # lower case, like parsed lists
_PORTABLE = "the form that serves from 2.24 on is ring,tree;allreduce:<algorithm>"


@dataclass(frozen=True, slots=True)
class Remark:
    """What is to be said about a value; `fatal` when a server with it cannot serve or the value cannot act."""

    message: str
    fatal: bool
    hint: str | None = None


def remarks_on(name: str, value: Value, hardware: Hardware) -> list[Remark]:
    """What NCCL would silently do with a variable's value; empty when all is well."""
    if value is None or not name.startswith("NCCL_"):
        return []
    found = []
    if name not in KNOWN:
        guess = closest(name, tuple(KNOWN))
        if guess is not None:
            found.append(Remark(f"{name} is no variable that NCCL is known to read", False, f"did you mean {guess}?"))
    if name in INTEGERS and not isinstance(value, bool) and not str(value).removeprefix("-").isdecimal():
        found.append(Remark(f"NCCL reads {value!r} as 0", True, "write a decimal number"))
    if name == "NCCL_P2P_LEVEL" and str(value) not in P2P_LEVELS:
        found.append(Remark(f"NCCL ignores the level {value}", True, f"it knows {', '.join(P2P_LEVELS)}"))
    if name == "NCCL_ALGO":
        found += _on_algorithms(str(value))
    if name == "NCCL_PROTO":
        found += _on_protocols(str(value), hardware)
    return found


def _lists(text: str, tokens: tuple[str, ...]) -> tuple[dict[str, list[str]], list[Remark]]:
    """Function (or `` for all) → tokens it may use, `^` written out, all in lower case; and what is wrong."""
    remarks, lists = [], {}
    known = [token.lower() for token in tokens]
    for position, entry in enumerate(text.split(";")):
        function, colon, names = entry.rpartition(":")
        if colon and function.lower() not in map(str.lower, FUNCTIONS):
            guess = closest(function, FUNCTIONS)
            hint = f"did you mean {guess}?" if guess else f"functions: {', '.join(FUNCTIONS)}"
            remarks.append(Remark(f"NCCL knows no function {function!r}", True, hint))
        if not colon and position > 0:
            remarks.append(Remark("only the first entry may lack a function", True, _PORTABLE))
        words = names.removeprefix("^").split(",")
        for word in words:
            if word.lower() not in known:
                guess = closest(word.strip(), tokens)
                hint = f"did you mean {guess}?" if guess else f"it knows {', '.join(tokens)}, without blanks"
                remarks.append(Remark(f"NCCL fails at start on {word!r}", True, hint))
        named = [word.lower() for word in words]
        lists[function.lower()] = [t for t in known if t not in named] if names.startswith("^") else named
    return lists, remarks


def _on_algorithms(text: str) -> list[Remark]:
    lists, remarks = _lists(text, ALGORITHMS)
    if remarks:
        return remarks
    for function in ("broadcast", "allgather", "reducescatter"):
        usable = lists.get(function, lists.get("", ["ring"]))
        if "ring" not in usable:
            message = f"leaves no algorithm for {function}: on one node only Ring does it, and engines need it"
            return [Remark(message, True, _PORTABLE)]
    reduce_with = lists.get("allreduce", lists.get("", ["ring"]))
    if not set(reduce_with) - _NOT_ON_ONE_NODE:
        return [Remark(f"{','.join(reduce_with)} cannot run on one node", True, _PORTABLE)]
    if "" not in lists:
        message = "from NCCL 2.31 on, functions that are not named lose all their algorithms"
        return [Remark(message, False, _PORTABLE)]
    return []


def _on_protocols(text: str, hardware: Hardware) -> list[Remark]:
    lists, remarks = _lists(text, PROTOCOLS)
    allowed = lists.get("allreduce", lists.get("", []))
    # Workstation Blackwell (12.x) has no NVLink; NCCL leaves LL128 off there unless it is asked for.
    on_pcie = (hardware.compute_capability or "").startswith("12.")
    if not remarks and on_pcie and "ll128" in allowed:
        message = "LL128 over PCIe: NVIDIA does not guarantee 128-byte stores there, data may be corrupted silently"
        remarks.append(Remark(message, False, "keep the output check on"))
    return remarks
