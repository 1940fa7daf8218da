"""`--fault SPEC` and `TUNER_SIM_FAULT`: misbehave on purpose, in the ways in which real servers do.

    SPEC = NAME[@WHERE][:OPTION=VALUE[,OPTION=VALUE ...]]

`docs/simulated.md` shows each with an example. In the variable, specs are separated by `;`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tuner.engines.simulated.crash_texts import CRASH_TEXTS

FAULT_VARIABLE = "TUNER_SIM_FAULT"
PHASES = ("import", "parse", "nccl_init", "weights", "profile", "compile", "graph_capture", "warmup", "serving")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One way to misbehave.

    Attributes:
        says: what happens.
        default_where: phase when none is named; None for a fault that takes no `@WHERE`.
        options: option → its default.
    """

    says: str
    default_where: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


_PER_LAUNCH = {"p": "1"}
_LOAD = {"after": "0", "running": "2"}
"""While serving: happen once so many tokens were generated in all and so many requests run."""
_PER_REQUEST = {"p": "1", "skip": "0", "running": "0"}

LAUNCH_FAULTS: dict[str, FaultKind] = {
    "crash": FaultKind(
        "prints the failure class's real text in that phase and ends as that engine would",
        "weights",
        {"class": "", "exit": "", "signal": "", **_LOAD, **_PER_LAUNCH},
    ),
    "oom": FaultKind("crash with the out-of-memory class of that phase", "serving", {**_LOAD, **_PER_LAUNCH}),
    "hang": FaultKind(
        "stops in that phase: silent, or writing without progress (noisy=1); while serving, one stream or all of them, "
        "with /health still 200 (health=hang: without answer)",
        "nccl_init",
        {"noisy": "0", "streams": "all", "health": "200", **_LOAD, **_PER_LAUNCH},
    ),
    "ignore-sigterm": FaultKind("SIGTERM and SIGINT do nothing", None, _PER_LAUNCH),
    "slow-shutdown": FaultKind(
        "takes so many real seconds to end after SIGTERM", None, {"seconds": "30", **_PER_LAUNCH}
    ),
    "orphan": FaultKind(
        "leaves a double-forked child in a session of its own, which ends after `lifetime` real seconds",
        None,
        {"lifetime": "600", **_PER_LAUNCH},
    ),
    "port-child": FaultKind(
        "leaves a child in a session of its own that keeps the HTTP port", None, {"lifetime": "600", **_PER_LAUNCH}
    ),
    "bind-late": FaultKind(
        "opens the port so many simulated seconds after the ready line", None, {"seconds": "60", **_PER_LAUNCH}
    ),
    "port-stolen": FaultKind("finds its HTTP port taken", None, _PER_LAUNCH),
    "log-flood": FaultKind(
        "writes so many lines a real second from that phase on", "serving", {"lines": "5000", **_PER_LAUNCH}
    ),
    "log-size": FaultKind(
        "writes so many megabytes at once in that phase", "weights", {"megabytes": "1024", **_PER_LAUNCH}
    ),
    "log-garbage": FaultKind("writes bytes that are no UTF-8 in that phase", "weights", _PER_LAUNCH),
}

REPLY_FAULTS: dict[str, FaultKind] = {
    "error-200": FaultKind("answers 200 with an error body", None, _PER_REQUEST),
    "sse-error": FaultKind("sends an error event inside a 200 stream, and ends it", None, _PER_REQUEST),
    "garbage": FaultKind("streams bytes that are no events", None, _PER_REQUEST),
    "close": FaultKind("closes the connection half-way", None, _PER_REQUEST),
    "wrong-tokens": FaultKind("answers another prompt", None, _PER_REQUEST),
    "short": FaultKind("gives half of the tokens asked and calls it complete", None, _PER_REQUEST),
    "empty-first": FaultKind("sends three events without text first", None, _PER_REQUEST),
    "keep-alive": FaultKind("puts comment lines between the events", None, _PER_REQUEST),
    "bundle": FaultKind("puts several tokens into one event", None, {"tokens": "8", **_PER_REQUEST}),
    "no-usage": FaultKind("never tells the usage", None, _PER_REQUEST),
    "reject": FaultKind("refuses with this status", None, {"status": "503", **_PER_REQUEST}),
}


class FaultSpecError(ValueError):
    """A spec that names no known fault, place or option."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault asked for, with defaults filled in."""

    name: str
    where: str | None
    options: Mapping[str, str]
    detail: str = ""

    def number(self, option: str) -> float:
        """An option as a number."""
        return float(self.options[option])

    @property
    def failure_class(self) -> str:
        """Class of a crash: as asked, else the one typical of the phase."""
        if self.name == "oom":
            return {"serving": "oom_runtime", "graph_capture": "oom_graph"}.get(self.where or "", "oom_weights")
        return self.options.get("class") or _TYPICAL[self.where or "weights"]


_TYPICAL = {
    "import": "env_setup", "parse": "model_access", "nccl_init": "nccl_config", "weights": "oom_weights",
    "profile": "kv_too_small", "compile": "jit_toolchain", "graph_capture": "oom_graph", "warmup": "jit_toolchain",
    "serving": "cuda_fault",
}  # fmt: skip


def parse_fault(spec: str, *, detail: str = "") -> Fault:
    """Read one spec.

    Raises:
        FaultSpecError: when it is not understood.
    """
    head, _, tail = spec.strip().partition(":")
    name, _, where = head.partition("@")
    kind = LAUNCH_FAULTS.get(name) or REPLY_FAULTS.get(name)
    if kind is None:
        raise FaultSpecError(f"unknown fault {name!r} (known: {', '.join([*LAUNCH_FAULTS, *REPLY_FAULTS])})")
    if where and kind.default_where is None:
        raise FaultSpecError(f"fault {name} takes no @{where}")
    place = {"load": "serving"}.get(where, where) or kind.default_where
    if place is not None and place not in PHASES:
        raise FaultSpecError(f"unknown phase {where!r} (known: {', '.join(PHASES)})")
    options = dict(kind.options)
    for pair in filter(None, tail.split(",")):
        option, separator, value = pair.partition("=")
        if option not in options or not separator:
            raise FaultSpecError(f"fault {name} has no option {option!r} (known: {', '.join(options)})")
        options[option] = value
    _check_values(name, options)
    return Fault(name, place, options, detail)


_WORDS = {"class", "streams", "health"}


def _check_values(name: str, options: Mapping[str, str]) -> None:
    for option, value in options.items():
        if option in _WORDS or not value:
            continue
        try:
            float(value)
        except ValueError:
            raise FaultSpecError(f"fault {name}: {option}={value} is not a number") from None
    known = {"class": {"", *CRASH_TEXTS}, "streams": {"all", "one"}, "health": {"200", "hang"}}
    for option in _WORDS & set(options):
        if options[option] not in known[option]:
            raise FaultSpecError(f"fault {name}: {option} is one of {', '.join(sorted(known[option]))}")


class Faults:
    """The faults of one launch.

    Args:
        faults: what was asked, and what the model's regions add.
        seed: decides which faults with `p` below 1 happen.
    """

    def __init__(self, faults: Iterable[Fault], seed: int) -> None:
        self._draw = random.Random(f"faults {seed}")  # noqa: S311 - simulation, no secret
        asked = list(faults)
        self._launch = [f for f in asked if f.name in LAUNCH_FAULTS and self._draw.random() < f.number("p")]
        self._reply = [f for f in asked if f.name in REPLY_FAULTS]
        self._requests = 0

    def named(self, name: str) -> Fault | None:
        """The first fault of that name."""
        return next((fault for fault in self._launch if fault.name == name), None)

    def at(self, phase: str) -> list[Fault]:
        """Faults that happen in a phase."""
        return [fault for fault in self._launch if fault.where == phase]

    def of_request(self, running: int) -> list[Fault]:
        """Reply faults that strike the request that has just come, while `running` others run."""
        self._requests += 1
        return [
            fault
            for fault in self._reply
            if self._requests > fault.number("skip")
            and running >= fault.number("running")
            and self._draw.random() < fault.number("p")
        ]


def parse_all(flags: Iterable[str], variable: str) -> list[Fault]:
    """Faults from the command line and the variable.

    Raises:
        FaultSpecError: for the first spec that is not understood.
    """
    return [parse_fault(spec) for spec in [*flags, *filter(None, map(str.strip, variable.split(";")))]]
