"""Settings that no space file, flag or default may turn on: they reach NVLink multicast, or a host denies them.

On shared hosts and some virtual machines a program that uses NVLink multicast (NVLS) can put all GPUs out of service.
Turning off the NCCL variable alone is not enough, because engine defaults and FlashInfer reach multicast by other
ways. Checked in the sources of SGLang 0.5.23, vLLM 0.33.0 and FlashInfer 0.7.2; that torch knows no other spelling
than `1`, in `c10/util/env.cpp`. The operator of a host may add to the list, and take nothing away
(`tuner/trial/denyfiles.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.values import FlagValue, Scalar, Value, spell

KEPT_ENV: Mapping[str, str] = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Variables that every launch keeps, whatever else is set."""


@dataclass(frozen=True, slots=True)
class Denied:
    """One setting that is denied, for some values or for all.

    Attributes:
        name: variable, or flag in its canonical spelling.
        denies: whether a value is denied; a switch reads `on` or `off`, a variable's `1` or `0`.
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
        return self.denies(text.strip())


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


def unless(*harmless: str) -> Callable[[str], bool]:
    """Denies every value but some, given in lower case."""
    return lambda value: value.lower() not in harmless


def any_of(*values: str) -> Callable[[str], bool]:
    """Denies some values, given in lower case."""
    return lambda value: value.lower() in values


def _names_nvls(value: str) -> bool:
    """Whether an NCCL_ALGO value asks for NVLS; `^nvls` excludes it."""
    lists = (entry.rpartition(":")[2] for entry in value.lower().split(";"))
    return any("nvls" in names for names in lists if not names.startswith("^"))


switched_on = unless("off", "0", "false", "")
"""Denies a switch that is on."""

DENIED_ENV: tuple[Denied, ...] = (
    Denied("NCCL_NVLS_ENABLE", unless("0"), "lets NCCL use NVLink multicast", "0"),
    Denied("TORCH_SYMM_MEM_DISABLE_MULTICAST", unless("1"), "torch symmetric memory would use multicast", "1"),
    Denied("NVSHMEM_DISABLE_NVLS", unless("1"), "NVSHMEM would use multicast", "1"),
    Denied("NCCL_ENV_PLUGIN", unless("none"), "answers for NCCL's variables, those that keep multicast off too"),
    Denied("NCCL_ALGO", _names_nvls, "NVLS is NVLink multicast", "^nvls, or a list without it"),
    Denied("VLLM_USE_NCCL_SYMM_MEM", switched_on, "sets NCCL_NVLS_ENABLE itself"),
    Denied(
        "VLLM_FLASHINFER_ALLREDUCE_BACKEND",
        any_of("auto", "mnnvl"),
        "auto tries mnnvl, which uses multicast",
        "trtllm",
    ),
)

_UNSEEN = Denied(
    "--config",
    unless(),
    "the engine would take settings from a file that nobody checked",
    "`flags` and `env` of the space file, or the file itself as `baseline.command`",
)

DENIED_FLAGS: Mapping[str, tuple[Denied, ...]] = {
    "vllm": (_UNSEEN,),
    "sglang": (
        _UNSEEN,
        Denied("--enable-nccl-nvls", switched_on, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-symm-mem", switched_on, "sets NCCL_NVLS_ENABLE=1 itself"),
        Denied("--enable-torch-symm-mem", switched_on, "torch symmetric memory uses multicast"),
        Denied("--enable-mscclpp", switched_on, "MSCCL++ takes its NVLS kernels where the GPUs have them"),
        Denied(
            "--flashinfer-allreduce-fusion-backend",
            unless("trtllm"),
            "mnnvl and cutedsl use multicast, and auto may choose them",
            "trtllm",
        ),
        Denied(
            "--enable-flashinfer-allreduce-fusion",
            switched_on,
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


_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DenyList:
    """What no launch may be given, and what every launch keeps.

    Attributes:
        env: variables.
        flags: engine → flags.
        kept_env: variable → the value that every launch gets.
        kept_flags: engine → flag → the same.
    """

    env: tuple[Denied, ...] = ()
    flags: Mapping[str, tuple[Denied, ...]] = field(default_factory=dict)
    kept_env: Mapping[str, str] = field(default_factory=dict)
    kept_flags: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)

    def extended(self, other: DenyList) -> DenyList:
        """Both lists; where both keep the same setting, this one's value is kept."""
        engines = dict.fromkeys((*self.flags, *other.flags))
        return DenyList(
            (*self.env, *other.env),
            {engine: (*self.flags.get(engine, ()), *other.flags.get(engine, ())) for engine in engines},
            {**other.kept_env, **self.kept_env},
            {
                engine: {**other.kept_flags.get(engine, {}), **self.kept_flags.get(engine, {})}
                for engine in dict.fromkeys((*self.kept_flags, *other.kept_flags))
            },
        )

    def refuses_env(self, name: str, value: Value) -> Denied | None:
        """The entry that forbids a variable's value, or None; switches count as the `1` and `0` that a process gets."""
        if value is None:
            return None
        text = str(int(value)) if isinstance(value, bool) else str(value)
        return next((entry for entry in self.env if entry.name == name and entry.matches(text)), None)

    def refuses_flag(self, engine: str, name: str, value: FlagValue) -> Denied | None:
        """The entry that forbids a flag's value, or one of its values, or None; `name` is the canonical spelling."""
        values = value if isinstance(value, tuple) else (value,)
        texts = [spell(one) for one in values if one is not None]
        entries = (entry for entry in self.flags.get(engine, ()) if entry.name == name)
        return next((entry for entry in entries if any(map(entry.matches, texts))), None)

    def refuses_program(self, engine: str, catalogue: FlagCatalogue, program: Sequence[str]) -> str | None:
        """Why a program may not start servers, in words, or None.

        A wrapper (`env NAME=value …`, `bash -c …`) can undo what a launch keeps, and a program may bring flags of its
        own.
        """
        text = " ".join(program)
        kept = "|".join(map(re.escape, self.kept_env))
        for found in re.finditer(rf"\b(?P<name>{kept})\b(?:=(?P<value>[^\s;&|]*))?", text) if kept else ():
            if found["value"] != self.kept_env[found["name"]]:
                return f"it changes {found['name']}, which every launch keeps at {self.kept_env[found['name']]}"
        words = _words(text)
        for word, following in pairwise((*words, "")):
            if word.rpartition("/")[2] == "env" and following in ("-i", "-", "--ignore-environment"):
                return f"{word} {following} takes away the variables that every launch keeps"
        return self._refused_word(engine, catalogue, words)

    def refuses_script(self, engine: str, catalogue: FlagCatalogue, text: str) -> str | None:
        """Why a shell script that brings a launch of its own is not started, in words, or None."""
        words = _words("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
        for name, value in self.kept_env.items():
            if name not in KEPT_ENV and f"{name}={value}" not in words:
                return f"it does not set {name}={value}, which every launch keeps here{_reason(self.env, name, value)}"
        for name, kept in self.kept_flags.get(engine, {}).items():
            if not any(catalogue.canonical(word.partition("=")[0]) == catalogue.canonical(name) for word in words):
                reason = _reason(self.flags.get(engine, ()), name, spell(kept))
                return f"it does not give {name}, which every launch keeps here{reason}"
        return self._refused_word(engine, catalogue, words)

    def _refused_word(self, engine: str, catalogue: FlagCatalogue, words: Sequence[str]) -> str | None:
        """Why one of the words of a command may not be there."""
        for word, following in pairwise((*words, "")):
            assigned = _ASSIGNED.fullmatch(word)
            if assigned is not None and (entry := self.refuses_env(assigned["name"], assigned["value"])) is not None:
                return f"{word}: {entry.reason}"
            name, given, value = word.partition("=")
            spec = catalogue.find(name) if name.startswith("--") else None
            if spec is not None:
                own: Value = value if given else following if spec.takes_value else not catalogue.negates(name)
                if (entry := self.refuses_flag(engine, spec.name, own)) is not None:
                    return f"{word}: {entry.reason}"
        return None


def _reason(entries: Sequence[Denied], name: str, kept: str) -> str:
    """`: why` a setting is kept at a value, or nothing where no entry says so."""
    return next((f": {one.reason}" for one in entries if one.name == name and one.instead == kept), "")


def _words(text: str) -> list[str]:
    """The words of a command or of a shell's text; quotes only hide where a word ends."""
    return re.split(r"[\s;&|]+", re.sub(r"[\"']", "", text))


BUILT_IN = DenyList(DENIED_ENV, DENIED_FLAGS, KEPT_ENV)
"""What holds on every host."""
