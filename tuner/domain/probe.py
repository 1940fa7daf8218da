"""What an all-reduce probe asked and measured: times of collectives, which are not tokens per second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.outcome import Failure
from tuner.domain.values import Value, spell


class Backend(StrEnum):
    """What carried the messages. `gloo` is what there is without GPUs: it tells nothing about NCCL."""

    NCCL = "nccl"
    GLOO = "gloo"

    @property
    def words(self) -> str:
        """For people."""
        return "NCCL" if self is Backend.NCCL else "gloo on CPU"


@dataclass(frozen=True, slots=True)
class MessageSize:
    """A message that the model's ranks add up, and which step of serving sends it.

    Attributes:
        size_bytes: of one rank's part.
        step: `decode at C=32`, `prefill of 8192 tokens`.
        decode: whether it belongs to a decode step.
    """

    size_bytes: int
    step: str
    decode: bool = True


@dataclass(frozen=True, slots=True)
class ProbeSetting:
    """One environment to be tried.

    Attributes:
        values: knob → value, where it differs from the baseline's.
        env: the variables that these knobs give.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`nccl_proto=LL, nccl_algo=Ring`; the baseline is `default`."""
        return ", ".join(f"{name}={spell(value)}" for name, value in self.values.items()) or DEFAULT


DEFAULT = "default"
"""Label of the setting that changes nothing."""


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One setting in fresh processes.

    Attributes:
        setting: its label.
        position: when it had its turn, counted from 0.
        times_us: bytes → microseconds per all-reduce, one value per sample.
        init_s: seconds until the first collective was done.
    """

    setting: str
    position: int
    times_us: Mapping[int, tuple[float, ...]]
    init_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """A setting whose processes failed, and why."""

    setting: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Everything that one probe saw; what it means is reckoned from this (`tuner.probe.analysis`).

    Attributes:
        engine: in whose environment it ran.
        backend: what carried the messages.
        ranks: processes, one per GPU.
        dtype: of the numbers added up.
        layers: of the model; a step makes two all-reduces per layer. None where its configuration does not say.
        sizes: messages, smallest first.
        settings: in the order of the space.
        runs: every run that was measured.
        failures: settings that failed; at most one entry each.
        own_up_to_bytes: messages up to this size are carried by the engine's own all-reduce in the baseline; 0 when
            it is off or does not work here, None where nobody knows.
        library: version of NCCL as torch tells it, None on a CPU.
        started_at: seconds since the epoch.
        seconds: how long it took.
    """

    engine: str
    backend: Backend
    ranks: int
    dtype: str
    layers: int | None
    sizes: tuple[MessageSize, ...]
    settings: tuple[ProbeSetting, ...]
    runs: tuple[ProbeRun, ...] = ()
    failures: tuple[ProbeFailure, ...] = ()
    own_up_to_bytes: int | None = None
    library: str | None = None
    started_at: float = 0.0
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether the baseline's collectives completed and were right."""
        return any(run.setting == DEFAULT for run in self.runs)

    @property
    def trouble(self) -> Failure | None:
        """Why the baseline failed; None when it works."""
        return next((f.failure for f in self.failures if f.setting == DEFAULT), None) if not self.works else None
