"""Settings that no space file, flag or default may turn on: they reach NVLink multicast.

On shared hosts and some virtual machines a program that uses NVLink multicast (NVLS) can put all GPUs out of service.
Turning off the NCCL variable alone is not enough, because engine defaults and FlashInfer reach multicast by other
ways. Checked in the sources of SGLang 0.5.23, vLLM 0.33.0 and FlashInfer 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.domain.values import Value, spell

KEPT_ENV: Mapping[str, str] = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Variables that every launch keeps, whatever else is set."""


@dataclass(frozen=True, slots=True)
class Denied:
    """One way to multicast.

    Attributes:
        name: variable or flag.
        denies: whether a value, in lower case, is denied; a switch reads `on` or `off`.
        reason: what the setting does.
        instead: what may be used, if anything.
    """

    name: str
    denies: Callable[[str], bool]
    reason: str
    instead: str | None = None

    @property
    def hint(self) -> str | None:
        """What to do, as a phrase."""
        return f"use {self.instead}" if self.instead else None

    def matches(self, value: Value) -> bool:
        """Whether a value of this setting is denied."""
        return value is not None and self.denies(spell(value).strip().lower())


def _unless(*harmless: str) -> Callable[[str], bool]:
    return lambda value: value not in harmless


def _any_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _names_nvls(value: str) -> bool:
    """Whether an NCCL_ALGO value asks for NVLS; `^nvls` excludes it."""
    lists = (entry.rpartition(":")[2] for entry in value.split(";"))
    return any("nvls" in names for names in lists if not names.startswith("^"))


_SWITCHED_ON = _unless("off", "0", "false", "")

DENIED_ENV: tuple[Denied, ...] = (
    Denied("NCCL_NVLS_ENABLE", _unless("0", "off"), "lets NCCL use NVLink multicast", "0"),
    Denied("TORCH_SYMM_MEM_DISABLE_MULTICAST", _unless("1", "on"), "torch symmetric memory would use multicast", "1"),
    Denied("NVSHMEM_DISABLE_NVLS", _unless("1", "on"), "NVSHMEM would use multicast", "1"),
    Denied("NCCL_ALGO", _names_nvls, "NVLS is NVLink multicast", "^nvls, or a list without it"),
    Denied("VLLM_USE_NCCL_SYMM_MEM", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE itself"),
    Denied(
        "VLLM_FLASHINFER_ALLREDUCE_BACKEND",
        _any_of("auto", "mnnvl"),
        "auto tries mnnvl, which uses multicast",
        "trtllm",
    ),
)

DENIED_FLAGS: Mapping[str, tuple[Denied, ...]] = {
    "sglang": (
        Denied("--enable-nccl-nvls", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-symm-mem", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-torch-symm-mem", _SWITCHED_ON, "torch symmetric memory uses multicast"),
        Denied(
            "--flashinfer-allreduce-fusion-backend",
            _any_of("auto", "mnnvl"),
            "mnnvl uses multicast, and auto may choose it",
            "trtllm",
        ),
        Denied(
            "--enable-flashinfer-allreduce-fusion",
            _SWITCHED_ON,
            "means fusion backend auto, which may choose mnnvl",
            "--flashinfer-allreduce-fusion-backend trtllm",
        ),
    ),
}


def denied_env(name: str, value: Value) -> Denied | None:
    """The entry that forbids a variable's value, or None."""
    return next((entry for entry in DENIED_ENV if entry.name == name and entry.matches(value)), None)


def denied_flag(engine: str, name: str, value: Value) -> Denied | None:
    """The entry that forbids a flag's value for an engine, or None; `name` is the canonical spelling."""
    entries = DENIED_FLAGS.get(engine, ())
    return next((entry for entry in entries if entry.name == name and entry.matches(value)), None)
