"""Settings that no space file, flag or default may turn on: they reach NVLink multicast.

On shared hosts and some virtual machines a program that uses NVLink multicast (NVLS) can put all GPUs out of service.
Turning off the NCCL variable alone is not enough, because engine defaults and FlashInfer reach multicast by other
ways. Checked in the sources of SGLang 0.5.23, vLLM 0.33.0 and FlashInfer 0.7.2; that torch knows no other spelling
than `1`, in `c10/util/env.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.values import FlagValue, Value, spell

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
        denies: whether a value, in lower case, is denied; a switch reads `on` or `off`, a variable's `1` or `0`.
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

    def matches(self, text: str) -> bool:
        """Whether a value of this setting is denied."""
        return self.denies(text.strip().lower())


@dataclass(frozen=True, slots=True)
class ReachedByDefault:
    """A way to multicast that an engine takes by itself, without any setting.

    Attributes:
        off: switch that keeps the engine from it.
        unless: flag by which a space may choose a harmless way instead; then the switch is not needed.
        capabilities: beginnings of the compute capabilities on which the engine takes it.
        reason: what the engine does.
        instead: value of `unless` that is harmless.
    """

    off: str
    unless: str
    capabilities: tuple[str, ...]
    reason: str
    instead: str

    def concerns(self, capability: str | None) -> bool:
        """Whether GPUs of this compute capability are concerned; where it is not known, they are."""
        return capability is None or capability.startswith(self.capabilities)

    @property
    def hint(self) -> str:
        """What to do, as a phrase."""
        return f"leave it off, or fix {self.unless} {self.instead} beside it"


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
    Denied("NCCL_NVLS_ENABLE", _unless("0"), "lets NCCL use NVLink multicast", "0"),
    Denied("TORCH_SYMM_MEM_DISABLE_MULTICAST", _unless("1"), "torch symmetric memory would use multicast", "1"),
    Denied("NVSHMEM_DISABLE_NVLS", _unless("1"), "NVSHMEM would use multicast", "1"),
    Denied("NCCL_ENV_PLUGIN", _unless("none"), "answers for NCCL's variables, those that keep multicast off too"),
    Denied("NCCL_ALGO", _names_nvls, "NVLS is NVLink multicast", "^nvls, or a list without it"),
    Denied("VLLM_USE_NCCL_SYMM_MEM", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE itself"),
    Denied(
        "VLLM_FLASHINFER_ALLREDUCE_BACKEND",
        _any_of("auto", "mnnvl"),
        "auto tries mnnvl, which uses multicast",
        "trtllm",
    ),
)

_UNSEEN = Denied(
    "--config",
    _unless(),
    "the engine would take settings from a file that nobody checked",
    "`flags` and `env` of the space file, or the file itself as `baseline.command`",
)

DENIED_FLAGS: Mapping[str, tuple[Denied, ...]] = {
    "vllm": (_UNSEEN,),
    "sglang": (
        _UNSEEN,
        Denied("--enable-nccl-nvls", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-symm-mem", _SWITCHED_ON, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-torch-symm-mem", _SWITCHED_ON, "torch symmetric memory uses multicast"),
        Denied("--enable-mscclpp", _SWITCHED_ON, "MSCCL++ takes its NVLS kernels where the GPUs have them"),
        Denied(
            "--flashinfer-allreduce-fusion-backend",
            _unless("trtllm"),
            "mnnvl and cutedsl use multicast, and auto may choose them",
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


REACHED_BY_DEFAULT: Mapping[str, tuple[ReachedByDefault, ...]] = {
    "sglang": (
        # On Hopper `auto` is trtllm; elsewhere nothing is fused.
        ReachedByDefault(
            "--enforce-disable-flashinfer-allreduce-fusion",
            unless="--flashinfer-allreduce-fusion-backend",
            capabilities=("10.",),
            reason="SGLang fuses all-reduces of many models by itself, on Blackwell through mnnvl, which is multicast",
            instead="trtllm",
        ),
    ),
}
"""Engine → ways that are closed in every launch on several GPUs. vLLM's are closed by variables of its definition."""


def denied_env(name: str, value: Value) -> Denied | None:
    """The entry that forbids a variable's value, or None; switches count as the `1` and `0` that a process gets."""
    if value is None:
        return None
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return next((entry for entry in DENIED_ENV if entry.name == name and entry.matches(text)), None)


def denied_flag(engine: str, name: str, value: FlagValue) -> Denied | None:
    """The entry that forbids a flag's value, or one of its values, or None; `name` is the canonical spelling."""
    values = value if isinstance(value, tuple) else (value,)
    texts = [spell(one) for one in values if one is not None]
    entries = (entry for entry in DENIED_FLAGS.get(engine, ()) if entry.name == name)
    return next((entry for entry in entries if any(map(entry.matches, texts))), None)


_KEPT = re.compile(rf"\b(?P<name>{'|'.join(KEPT_ENV)})\b(?:=(?P<value>[^\s;&|]*))?")
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)


def denied_program(engine: str, catalogue: FlagCatalogue, program: Sequence[str]) -> str | None:
    """Why a program may not start servers, in words, or None.

    A wrapper (`env NAME=value …`, `bash -c …`) can undo what a launch keeps, and a program may bring flags of its own.
    """
    text = " ".join(program)
    for found in _KEPT.finditer(text):
        if found["value"] != KEPT_ENV[found["name"]]:
            return f"it changes {found['name']}, which every launch keeps at {KEPT_ENV[found['name']]}"
    # Words of a shell's text count as well; quotes only hide where a word ends.
    words = re.split(r"[\s;&|]+", re.sub(r"[\"']", "", text))
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        assigned = _ASSIGNED.fullmatch(word)
        if assigned is not None and (entry := denied_env(assigned["name"], assigned["value"])) is not None:
            return f"{word}: {entry.reason}"
        if word.rpartition("/")[2] == "env" and following in ("-i", "-", "--ignore-environment"):
            return f"{word} {following} takes away the variables that every launch keeps"
        name, given, value = word.partition("=")
        spec = catalogue.find(name) if name.startswith("--") else None
        if spec is not None:
            own: Value = value if given else following if spec.takes_value else True
            if (entry := denied_flag(engine, spec.name, own)) is not None:
                return f"{word}: {entry.reason}"
    return None
