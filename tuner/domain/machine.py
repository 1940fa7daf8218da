"""Which facts about a machine decide whether two measurements may be compared."""

from __future__ import annotations

from collections.abc import Mapping

IDENTITY = (
    "cpu",
    "cores",
    "memory_gib",
    "kernel",
    "governor",
    "gpus",
    "compute_capability",
    "links",
    "pcie",
    "driver",
    "cuda",
    "nccl_conf",
    "nccl",
    "model_config",
)
"""Facts that make a machine another one when they differ. Host name and container are none: a container gets a new name
each time it starts, and a second machine of the same kind measures the same."""


OF_ENGINE = frozenset({"nccl"})
"""Facts that an engine brings along: two engines of one study differ in them on the very same machine."""


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name → (old, new), of what both sides know and say differently; in the order of the old."""
    return {name: (then, new[name]) for name, then in old.items() if new.get(name, then) != then}


def differences(
    old: Mapping[str, str], new: Mapping[str, str], *, same_engine: bool = True
) -> dict[str, tuple[str, str]]:
    """Fact → (old, new), of the identity facts that both sides know; without the engine's own unless it is the same."""
    facts = [key for key in IDENTITY if key in old and (same_engine or key not in OF_ENGINE)]
    return changes({key: old[key] for key in facts}, new)


GPU_USED_BEFORE = "gpu_used_before_mib"
"""Fact of a launch: MiB in use on each of its GPUs before it began, as `12, 12`."""


def gpu_use_before(machine: Mapping[str, str]) -> tuple[int, ...]:
    """MiB in use before a launch on each of its GPUs, in their order; empty where the driver did not say."""
    return tuple(int(part) for part in machine.get(GPU_USED_BEFORE, "").split(", ") if part.isdecimal())


def gpu_memory_in_use(machine: Mapping[str, str]) -> int | None:
    """MiB in use before a launch on all of its GPUs together, or None where the driver did not say."""
    each = gpu_use_before(machine)
    return sum(each) if each else None
