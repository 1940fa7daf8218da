"""The performance model's YAML file and its meaning, key by key.

Frozen dataclasses instead of pydantic models, for start-up time; unknown and missing keys are refused all the same.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import yamlfile
from tuner.errors import SpecError, UserError
from tuner.resources import launchers_dir


@dataclass(frozen=True, slots=True)
class Pair:
    """A cost at batch size 1 and at the full batch (128); in between it is interpolated."""

    alone: float
    full: float


@dataclass(frozen=True, slots=True)
class Shape:
    """The standard workload, tokens: what the anchors of the file are stated for."""

    input_tokens: int
    output_tokens: int
    full_batch: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """Cost of prompts: µs per token at the best chunk size, and how it grows away from it."""

    us_per_token: float
    best_chunk: int
    smaller: float
    larger: float
    comm_share: float


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention backend: ms per step, and what it does on this machine; `unsupported` is the engine's error."""

    alone: float
    full: float
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class KvDtype:
    """Effect of a KV cache dtype: factors on attention and on the whole step, tokens per byte, and correctness.

    Attributes:
        corrupts: share of answer tokens that come out wrong.
        logprob_drift: standard deviation added to log-probabilities.
    """

    attention_alone: float
    attention_full: float
    speed: float
    capacity: float
    corrupts: float
    logprob_drift: float


@dataclass(frozen=True, slots=True)
class Protocol:
    """One NCCL protocol: µs per all-reduce, and its factor on the prefill's communication."""

    alone: float
    full: float
    prefill: float


@dataclass(frozen=True, slots=True)
class AllReduceFactor:
    """Factors on the three message sizes."""

    alone: float
    full: float
    prefill: float


@dataclass(frozen=True, slots=True)
class ChannelCurve:
    """cost(n) = fixed + per_channel * n + spread / n, relative to the default number of channels."""

    fixed: float
    per_channel: float
    spread: float


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Communication of one step: `calls` all-reduces, one after the other."""

    calls: int
    default_channels: int
    protocol_preference: tuple[str, ...]
    protocols: Mapping[str, Protocol]
    algorithms: Mapping[str, AllReduceFactor]
    p2p: Mapping[str, AllReduceFactor]
    channels_alone: ChannelCurve
    channels_full: ChannelCurve
    buffer_doubling: float
    custom: Protocol


@dataclass(frozen=True, slots=True)
class Graphs:
    """CUDA graphs: ms lost per step without one, and ms lost to padding where the largest is far too large."""

    eager: Pair
    padding: float


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Host work and batching policy."""

    overlap_hides: float
    decode_steps_power: float
    hold: Pair
    hold_beyond: int
    hold_beyond_cost: float
    policies: Mapping[str, float]
    page_sizes: Mapping[int, Pair]


@dataclass(frozen=True, slots=True)
class Memory:
    """Shares of GPU memory. A launch needs `memory_fraction` + graphs + prefill activations (+ backend extras)."""

    weights: float
    tokens_per_share: float
    least_kv_share: float
    graphs_at_256: float
    chunk_at_16384: float
    custom_all_reduce: float
    limit: float
    runtime_margin: float
    runtime_running: int


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the space in which a launch fails; all conditions of `when` must hold.

    `when` keys are fields of Settings: a plain value must be equal; `at_least` / `at_most` compare.
    """

    name: str
    when: Mapping[str, Any]
    fault: str
    why: str


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations, and how often and how much a launch is slow."""

    launch: Pair
    launch_common: float
    within: float
    within_every_s: float
    slow_share: float
    slow_by: float


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a flavor does when nothing is asked."""

    attention_backend: str
    cuda_graph_max_bs: int
    decode_steps: int
    prefill_chunk: int
    max_running: int
    memory_fraction: float
    page_size: int
    schedule_policy: str
    context_length: int


@dataclass(frozen=True, slots=True)
class Flavor:
    """What is an engine's own: kernels (`weights`, ms per step), host work (ms per step), launch phases (s)."""

    version: str
    weights: Pair
    weights_power: float
    host: Pair
    admission_ms: float
    memory_offset: float
    defaults: Defaults
    phases: Mapping[str, float]
    capture_per_size_s: float


@dataclass(frozen=True, slots=True)
class Anchor:
    """A point that the model meets exactly, output tok/s; `settings` maps flags and variables to values."""

    flavor: str
    settings: Mapping[str, Any]
    single_stream: float
    throughput: float


@dataclass(frozen=True, slots=True)
class SimModel:
    """One performance model."""

    name: str
    machine: str
    workload: Shape
    anchors: tuple[Anchor, ...]
    flavors: Mapping[str, Flavor]
    prefill: Prefill
    attention: Mapping[str, Attention]
    kv_dtypes: Mapping[str, KvDtype]
    all_reduce: AllReduce
    graphs: Graphs
    scheduling: Scheduling
    memory: Memory
    regions: tuple[Region, ...]
    noise: Noise


def models_dir() -> Path:
    """Where shipped models lie."""
    return launchers_dir() / "simulated" / "models"


def load_model(name_or_file: str) -> SimModel:
    """Read a model by its bare name or by path.

    Raises:
        UserError: when there is no such file.
        SpecError: when it is malformed; the problem names the key and its line.
    """
    path = Path(name_or_file)
    if not path.suffix:
        path = models_dir() / f"{name_or_file}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(item.stem for item in models_dir().glob("*.yaml")))
        raise UserError(f"no performance model {name_or_file!r}", hint=f"known: {known}")
    document = yamlfile.load(path)
    try:
        model: SimModel = _build(SimModel, document.data, ())
    except _MisfitError as error:
        raise SpecError([document.problem(error.path, error.message)]) from error
    return model


_KeyPath = tuple[str | int, ...]


class _MisfitError(Exception):
    """A value that does not fit; `path` is where it stands."""

    def __init__(self, path: _KeyPath, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message


def _build(wanted: Any, data: Any, path: _KeyPath) -> Any:
    """`data` as an instance of the annotated type `wanted`."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if dataclasses.is_dataclass(wanted):
        return _build_dataclass(typing.cast(type, wanted), data, path)
    if wanted is Any:
        return data
    if origin is tuple:
        _expect(isinstance(data, list), path, "a list is wanted")
        return tuple(_build(inner[0], item, (*path, index)) for index, item in enumerate(data))
    if origin is not None:
        _expect(isinstance(data, Mapping), path, "a mapping is wanted")
        return {inner[0](key): _build(inner[1], item, (*path, key)) for key, item in data.items()}
    if wanted is float:
        _expect(isinstance(data, int | float) and not isinstance(data, bool), path, f"{data!r} is not a number")
        return float(data)
    _expect(isinstance(data, wanted), path, f"{data!r} is not {wanted.__name__}")
    return data


def _build_dataclass(wanted: type, data: Any, path: _KeyPath) -> Any:
    _expect(isinstance(data, Mapping), path, "a mapping is wanted")
    fields = {item.name: item for item in dataclasses.fields(wanted)}
    unknown = sorted(set(data) - set(fields))
    _expect(not unknown, (*path, *unknown[:1]), f"unknown key {', '.join(unknown)}")
    needed = [name for name, item in fields.items() if item.default is dataclasses.MISSING and name not in data]
    _expect(not needed, path, f"missing key {', '.join(needed)}")
    hints = typing.get_type_hints(wanted)
    return wanted(**{name: _build(hints[name], item, (*path, name)) for name, item in data.items()})


def _expect(holds: bool, path: _KeyPath, message: str) -> None:
    if not holds:
        raise _MisfitError(path, message)
