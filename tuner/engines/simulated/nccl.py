"""What the NCCL variables mean for a one-node server: syntax, what stays possible, and what the all-reduce uses.

Follows NCCL 2.24 to 2.30: `NCCL_ALGO` and `NCCL_PROTO` hold entries `[function:]list` joined by `;`, only the first of
which may lack its function; `^` negates a list; an unknown word ends the launch at communicator set-up; a function that
is left without any algorithm fails at its first call, not earlier. Source: NVIDIA/nccl v2.30.7-1, src/graph/tuning.cc
(parseList) and src/enqueue.cc (no algorithm/protocol available).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALGORITHMS = {
    "tree": "Tree", "ring": "Ring", "collnetdirect": "CollNetDirect", "collnetchain": "CollNetChain",
    "nvls": "NVLS", "nvlstree": "NVLSTree", "pat": "PAT",
}  # fmt: skip
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
_FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
_POSSIBLE_ON_PCIE = {function: {"Ring"} for function in _FUNCTIONS} | {"allreduce": {"Ring", "Tree"}}
"""Without NVSwitch and on one node, NVLS, CollNet and PAT have nothing to run on."""

_P2P_LEVELS = {
    "LOC": "disabled", "NVL": "disabled", "NVB": "disabled", "C2C": "disabled", "PIX": "disabled",
    "PXB": "default", "P2C": "default", "PXN": "default", "PHB": "wide", "SYS": "wide",
}  # fmt: skip
"""The GPUs of the simulated machine hang on the CPU's host bridges: below PXB no pair may talk directly, at PXB (the
default) only pairs under one switch, from PHB on all."""

AUTO = "auto"


class NcclConfigError(Exception):
    """NCCL refuses the setting; `at_first_call` tells a late refusal from one at communicator set-up."""

    def __init__(self, line: str, *, at_first_call: bool) -> None:
        super().__init__(line)
        self.line = line
        self.at_first_call = at_first_call


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """What NCCL makes of its variables, for the all-reduce.

    Attributes:
        algorithm: `Ring`, `Tree` or `auto`.
        protocol: `LL`, `LL128`, `Simple` or `auto`.
        channels: how many channels exist.
        p2p: `default`, `wide` (every pair directly) or `disabled` (through host memory).
        buffer_bytes: `NCCL_BUFFSIZE`.
        ignored: variable → why NCCL passed over it.
    """

    algorithm: str = AUTO
    protocol: str = AUTO
    channels: int = 8
    p2p: str = "default"
    buffer_bytes: int = 4 << 20
    ignored: tuple[tuple[str, str], ...] = ()


def read_environment(
    env: Mapping[str, str], *, default_channels: int, protocol_preference: tuple[str, ...]
) -> NcclSettings:
    """Settings from the environment.

    Args:
        env: environment variables.
        default_channels: channels that NCCL opens by itself on this machine.
        protocol_preference: what NCCL's own cost model would take first, if only some protocols are allowed.

    Raises:
        NcclConfigError: where NCCL would end the launch.
    """
    ignored: list[tuple[str, str]] = []
    algorithms = _allowed("NCCL_ALGO", env.get("NCCL_ALGO", ""), ALGORITHMS)
    protocols = _allowed("NCCL_PROTO", env.get("NCCL_PROTO", ""), PROTOCOLS)
    for function in ("allgather", "broadcast", "allreduce"):
        possible = algorithms[function] & _POSSIBLE_ON_PCIE[function]
        if not possible or not protocols[function]:
            raise NcclConfigError(
                f"No algorithm/protocol available for function {function.title()} with datatype ncclBfloat16. "
                f"NCCL_ALGO was set to {env.get('NCCL_ALGO', '')}.",
                at_first_call=True,
            )
    usable = algorithms["allreduce"] & _POSSIBLE_ON_PCIE["allreduce"]
    return NcclSettings(
        algorithm=next(iter(usable)) if len(usable) == 1 else AUTO,
        protocol=_preferred(protocols["allreduce"], protocol_preference),
        channels=_channels(env, default_channels),
        p2p=_p2p(env, ignored),
        buffer_bytes=max(1, _integer(env, "NCCL_BUFFSIZE", 4 << 20)),
        ignored=tuple(ignored),
    )


def _allowed(variable: str, text: str, words: Mapping[str, str]) -> dict[str, set[str]]:
    """Function → what the variable allows it."""
    everything = set(words.values())
    allowed = {function: set(everything) for function in _FUNCTIONS}
    for position, entry in enumerate(part for part in text.split(";") if part):
        function, separator, listed = entry.rpartition(":")
        function = function.lower()
        if not separator and position > 0:
            raise NcclConfigError("All entries except the first must have a prefix", at_first_call=False)
        if separator and function not in _FUNCTIONS:
            raise NcclConfigError(
                f'Unrecognized prefix token "{function}" when parsing {variable}', at_first_call=False
            )
        negated, names = listed.startswith("^"), set()
        for word in listed.removeprefix("^").split(","):
            if word.lower() not in words:
                raise NcclConfigError(
                    f'Unrecognized element token "{word}" when parsing {variable}', at_first_call=False
                )
            names.add(words[word.lower()])
        chosen = everything - names if negated else names
        for name in [function] if separator else _FUNCTIONS:
            allowed[name] = set(chosen)
    return allowed


def _preferred(allowed: set[str], preference: tuple[str, ...]) -> str:
    if len(allowed) == len(PROTOCOLS):
        return AUTO
    return next(name for name in preference if name in allowed)


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    """NCCL reads integers with strtoll: words become 0 without complaint (src/misc/param.cc)."""
    text = env.get(name, "").strip()
    if not text:
        return default
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isdigit() else 0


def _channels(env: Mapping[str, str], default: int) -> int:
    """The maximum cuts first, then channels are copied up to the minimum (src/graph/connect.cc)."""
    most = min(max(_integer(env, "NCCL_MAX_NCHANNELS", 64), 1), 64)
    least = min(max(_integer(env, "NCCL_MIN_NCHANNELS", 0), 0), 64)
    return max(min(default, most), least)


def _p2p(env: Mapping[str, str], ignored: list[tuple[str, str]]) -> str:
    level = env.get("NCCL_P2P_LEVEL", "")
    if _integer(env, "NCCL_P2P_DISABLE", 0) == 1:
        if level:
            ignored.append(("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE=1 comes first"))
        return "disabled"
    if level and level not in _P2P_LEVELS:
        ignored.append(("NCCL_P2P_LEVEL", f"NCCL does not know the level {level!r} and says nothing"))
    return _P2P_LEVELS.get(level, "default")
