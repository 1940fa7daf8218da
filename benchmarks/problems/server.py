"""A model of one tensor-parallel LLM server on four GPUs: a step's time as a sum of parts, over arrays of settings.

It is a model, not a measurement. Two points are matched to reports of a real tuning study: the baseline (63.6 tok/s at
one stream, 2370 at 128) and NCCL's LL protocol on a ring with four decode steps per scheduling round (90.0 and 2320).
The rest follows how such servers behave: all-reduce dominates decode at one stream, scheduling is amortised by several
steps, memory limits the batch, large captures cost memory, some combinations crash, hang or run out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.problems.optimum import REFERENCE_SHARE, Array, Climbed, Landscape, Points

BASELINE_TOK_S = (63.6, 2370.0)
LL_TOK_S = (90.0, 2320.0)
ALL_REDUCES = 128
"""Per decode step: two for each of 64 layers."""

STREAMS = 128.0
REPEATS = 3
Settings = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Knob:
    """A knob of the model; `gate` is the knob and value that make it active."""

    values: tuple[Any, ...]
    default: Any
    ordinal: bool = False
    gate: tuple[str, Any] | None = None


_NCCL = ("custom_ar", False)
CATALOGUE: Mapping[str, Knob] = {
    "custom_ar": Knob((False, True), False),
    "proto": Knob(("auto", "LL", "LL128", "Simple"), "auto", gate=_NCCL),
    "algo": Knob(("auto", "Ring", "Tree"), "auto", gate=_NCCL),
    "nch": Knob((0, 1, 2, 4, 8, 16, 32), 0, ordinal=True, gate=_NCCL),
    "backend": Knob(("triton", "flashinfer", "fa3", "torch_native"), "triton"),
    "graph": Knob((True, False), True),
    "graph_bs": Knob((8, 16, 32, 64, 128, 160, 256), 160, ordinal=True, gate=("graph", True)),
    "k": Knob(tuple(range(1, 17)), 1, ordinal=True),
    "chunk": Knob((1024, 2048, 4096, 8192, 16384), 8192, ordinal=True),
    "mrr": Knob((32, 64, 96, 128, 192, 256), 256, ordinal=True),
    "memf": Knob(tuple(round(0.70 + 0.01 * i, 2) for i in range(26)), 0.85, ordinal=True),
    "kv": Knob(("auto", "fp8_e5m2", "fp8_e4m3"), "auto"),
    "overlap": Knob((True, False), True),
}


@dataclass(frozen=True)
class Machine:
    """Constants of one machine; times in ms per step unless said otherwise.

    Attributes:
        custom_us: the engine's own all-reduce at one stream and at 128, microseconds.
        channels_default: channels that NCCL picks by itself.
        channels_best: best number of channels at one stream and at 128.
        channels_bend: how sharply speed falls off beside it (per squared doubling).
        admission: share lost per further decode step, since new requests wait.
        weights_share: share of GPU memory that the weights take.
        kv_share: share of GPU memory that one request's cache takes.
    """

    custom_us: tuple[float, float] = (13.0, 195.0)
    channels_default: float = 8.0
    channels_best: tuple[float, float] = (2.0, 16.0)
    channels_bend: tuple[float, float] = (0.07, 0.05)
    admission: float = 0.010
    weights_share: float = 0.55
    kv_share: float = 0.0021


@dataclass(frozen=True)
class Noise:
    """Launch noise on the log scale.

    Attributes:
        between: standard deviation between launches.
        within: standard deviation of one repeat within a launch.
        outliers: share of slow launches.
        outlier: how slow they are.
        failures: share of launches that fail by chance.
    """

    between: float
    within: float
    outliers: float
    outlier: float
    failures: float


_ATTENTION = {
    "triton": (1.1, 10.0), "flashinfer": (0.8, 7.0), "fa3": (0.6, 6.5), "torch_native": (2.5, 22.0)
}  # fmt: skip
_SCHEDULING, _HIDDEN_BY_OVERLAP, _EAGER, _PREFILL, _BEST_CHUNK = 3.0, 0.75, (9.0, 6.5), 10.0, 4096.0
_GRAPH_MEMORY, _CHUNK_MEMORY, _MEMORY_LIMIT, _LEAST_CACHE = 0.05, 0.05, 0.97, 0.02

Rule = tuple[str, Callable[[Settings], np.ndarray]]


def _pick(names: np.ndarray, table: Mapping[Any, float]) -> Array:
    found = np.full(len(names), np.nan)
    for name, value in table.items():
        found[names == name] = value
    return found


def _below(x: Array) -> Array:
    return np.minimum(0.0, x)


def _above(x: Array) -> Array:
    return np.maximum(0.0, x)


@dataclass
class ServerProblem(Climbed):
    """One problem of the protocol: some of the knobs, the others at their defaults."""

    names: Sequence[str]
    machine: Machine
    noise: Noise
    rules: Sequence[Rule]
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._knobs = {name: self.choices.get(name, CATALOGUE[name].values) for name in self.names}
        self.BASELINE = {name: CATALOGUE[name].default for name in self.names}
        self.KNOBS = [self._described(name) for name in self.names]
        self.OBJECTIVES = [("single_stream", "maximize"), ("throughput", "maximize")]
        singles, through = (REFERENCE_SHARE * value for value in BASELINE_TOK_S)
        self.REFERENCE = {"single_stream": singles, "throughput": through}
        self._calibrate()
        self._base = np.array([list(v).index(self.BASELINE[n]) for n, v in self._knobs.items()])
        sizes = np.array([len(values) for values in self._knobs.values()])
        self.landscape = Landscape(sizes, self._canonical, self._true_values, BASELINE_TOK_S)
        self.climb_seed = 0

    def _gate(self, name: str) -> tuple[str, Any] | None:
        gate = CATALOGUE[name].gate
        return gate if gate is not None and gate[0] in self.names else None

    def _described(self, name: str) -> Mapping[str, Any]:
        gate = self._gate(name)
        when = None if gate is None else {"knob": gate[0], "equals": gate[1]}
        return {"name": name, "values": list(self._knobs[name]), "ordinal": CATALOGUE[name].ordinal, "when": when}

    def _calibrate(self) -> None:
        """Four constants from the two known points: each speed is the reciprocal of a sum in which they are linear."""
        self._fixed_ms, self._loaded_ms, self._auto_us, self._ll_us = 0.0, 0.0, 0.0, 0.0
        base = self._settings([self.BASELINE])
        quick = self._settings([{**self.BASELINE, "proto": "LL", "algo": "Ring", "k": 4}])
        ms, stretch = self._single(quick)
        self._fixed_ms = float((1000 / (LL_TOK_S[0] * stretch) - ms)[0])
        ms, stretch = self._single(base)
        self._auto_us = float((1000 / (BASELINE_TOK_S[0] * stretch) - ms)[0]) * 1000 / ALL_REDUCES
        ms, stretch, batch = self._loaded(base)
        self._loaded_ms = float((1000 * batch / (BASELINE_TOK_S[1] * stretch) - ms)[0])
        ms, stretch, batch = self._loaded(quick)
        self._ll_us = float((1000 * batch / (LL_TOK_S[1] * stretch) - ms)[0]) * 1000 / ALL_REDUCES

    def _settings(self, assignments: Sequence[Mapping[str, Any]]) -> Settings:
        rows = [{**{name: knob.default for name, knob in CATALOGUE.items()}, **given} for given in assignments]
        for row in rows:
            for name in self.names:
                gate = self._gate(name)
                if gate is not None and row[gate[0]] != gate[1]:
                    row[name] = CATALOGUE[name].default
        return {name: np.array([row[name] for row in rows]) for name in CATALOGUE}

    def _of_points(self, points: Points) -> Settings:
        fixed = {name: np.full(len(points), knob.default) for name, knob in CATALOGUE.items()}
        chosen = {n: np.array(v)[points[:, i]] for i, (n, v) in enumerate(self._knobs.items())}
        return {**fixed, **chosen}

    def _canonical(self, points: Points) -> Points:
        points, column = points.copy(), {name: i for i, name in enumerate(self.names)}
        for name in self.names:
            gate = self._gate(name)
            if gate is not None:
                opens = list(self._knobs[gate[0]]).index(gate[1])
                points[points[:, column[gate[0]]] != opens, column[name]] = self._base[column[name]]
        return points

    def _channels(self, c: Settings) -> Array:
        chosen = c["nch"].astype(float)
        return np.where(chosen == 0, self.machine.channels_default, chosen)

    def _single(self, c: Settings) -> tuple[Array, Array]:
        """At one stream: ms per step, and the factor by which several steps per round delay the first token."""
        m, steps = self.machine, c["k"].astype(float)
        reduce = _pick(c["proto"], {"auto": self._auto_us, "LL": 21.0, "LL128": 25.0, "Simple": 47.0})
        reduce = reduce * _pick(c["algo"], {"auto": 1.0, "Ring": 1.0, "Tree": 1.10})
        reduce = np.where((c["proto"] == "auto") & (c["algo"] != "auto"), 0.97 * reduce, reduce)

        def bend(channels: Array | float) -> Array:
            return np.asarray(1 + m.channels_bend[0] * np.log2(channels / m.channels_best[0]) ** 2)

        reduce = reduce * bend(self._channels(c)) / bend(m.channels_default)
        reduce = np.where(c["custom_ar"], m.custom_us[0], reduce)
        attention = _pick(c["backend"], {name: ms for name, (ms, _) in _ATTENTION.items()})
        packed = np.where(c["backend"] == "triton", 1.06, 0.98)
        attention = attention * np.where(c["kv"] != "auto", packed, 1.0)
        eager = np.where(c["backend"] == "torch_native", 0.8, 1.0) * _EAGER[0]
        hidden = np.where(c["overlap"], _HIDDEN_BY_OVERLAP, 1.0)
        scheduling = _SCHEDULING * hidden / steps**0.9 + np.where(c["overlap"] & (steps > 1), 0.05, 0.0)
        ms = self._fixed_ms + attention + np.where(c["graph"], 0.0, eager) + ALL_REDUCES * reduce / 1000 + scheduling
        return ms, 1 + (steps - 1) / 512 + 0.004 * _above(steps - 10)

    def _loaded(self, c: Settings) -> tuple[Array, Array, Array]:
        """At 128 streams: ms per step with its share of prefill, a factor for waiting, and the batch that fits."""
        m, steps = self.machine, c["k"].astype(float)
        packed = c["kv"] != "auto"
        fits = _above(c["memf"].astype(float) - m.weights_share) / (m.kv_share * np.where(packed, 0.5, 1.0))
        wanted = np.minimum(STREAMS, c["mrr"].astype(float))
        batch = np.minimum(wanted, np.maximum(fits, 1.0))
        full = batch / STREAMS
        over = np.log2(self._channels(c) / m.channels_best[1])
        bend = 1 + m.channels_bend[1] * _below(over) ** 2 + 0.02 * _above(over) ** 2
        usual = 1 + m.channels_bend[1] * _below(np.log2(m.channels_default / m.channels_best[1])) ** 2
        reduce = _pick(c["proto"], {"auto": 150.0, "LL": self._ll_us, "LL128": 138.0, "Simple": 143.0})
        reduce = reduce * _pick(c["algo"], {"auto": 1.0, "Ring": 1.0, "Tree": 1.18}) * bend / usual
        reduce = np.where(c["custom_ar"], m.custom_us[1], reduce)
        attention = _pick(c["backend"], {name: ms for name, (_, ms) in _ATTENTION.items()})
        attention = attention * np.where(packed, np.where(c["backend"] == "triton", 0.88, 0.70), 1.0)
        attention = attention * np.where(c["kv"] == "fp8_e4m3", 1.03, 1.0)
        captured = c["graph"] & (c["graph_bs"] >= batch)
        graph = np.where(captured, 0.5 * _above(c["graph_bs"] - batch) / STREAMS, _EAGER[1])
        hidden = np.where(c["overlap"], _HIDDEN_BY_OVERLAP, 1.0)
        ms = self._loaded_ms * (0.45 + 0.55 * full) + attention * full + graph
        ms = ms + ALL_REDUCES * reduce * (0.35 + 0.65 * full) / 1000 + 2.2 * _SCHEDULING * hidden / steps**0.9
        waiting = 1 + m.admission * (steps - 1) + np.where(c["overlap"], 0.01, 0.0) * _above(steps - 8)
        retracted = 1 + 0.10 * _above(wanted - fits) / STREAMS
        return ms + self._prefill(c, full), waiting * retracted, batch

    def _prefill(self, c: Settings, full: Array) -> Array:
        """Prefill's ms per decode step: small chunks are inefficient, large ones stall decode."""
        doublings = np.log2(c["chunk"] / _BEST_CHUNK)
        chunk = 1 + 0.10 * _above(-doublings) ** 1.5 + 0.05 * _above(doublings) ** 1.3
        reduce = _pick(c["proto"], {"auto": 1.0, "LL": 1.35, "LL128": 1.03, "Simple": 1.0})
        reduce = reduce * _pick(c["algo"], {"auto": 1.0, "Ring": 1.0, "Tree": 1.1})
        reduce = reduce * (1 + 0.03 * _below(np.log2(self._channels(c) / 8)) ** 2)
        reduce = np.where(c["custom_ar"], 1.25, reduce)
        return np.asarray(_PREFILL * full * chunk * (0.6 + 0.4 * reduce))

    def _status(self, c: Settings) -> np.ndarray:
        found = np.full(len(c["k"]), "ok", dtype=object)
        for status, holds in self.rules:
            found[(found == "ok") & holds(c)] = status
        if "memf" in self.names:
            graphs = np.where(c["graph"], c["graph_bs"], 0) / 256
            used = c["memf"] + _GRAPH_MEMORY * graphs + _CHUNK_MEMORY * c["chunk"] / 16384
            used = used + np.where(c["backend"] == "torch_native", 0.03, 0) + np.where(c["custom_ar"], 0.01, 0)
            found[(found == "ok") & (used > _MEMORY_LIMIT)] = "oom"
            found[(found == "ok") & (c["memf"] - self.machine.weights_share < _LEAST_CACHE)] = "crash"
        return found

    def _values(self, c: Settings) -> Array:
        ms, delay = self._single(c)
        loaded, waiting, batch = self._loaded(c)
        return np.stack([1000 / (ms * delay), 1000 * batch / (loaded * waiting)], axis=1)

    def point(self, assignment: Mapping[str, Any]) -> Points:
        """The canonical point of an assignment, shape (1, knobs)."""
        row = [list(v).index(assignment.get(n, self.BASELINE[n])) for n, v in self._knobs.items()]
        return self._canonical(np.array([row], dtype=np.int64))

    def _true_values(self, points: Points) -> Array:
        c = self._of_points(points)
        return np.where((self._status(c) == "ok")[:, None], self._values(c), np.nan)

    def truth(self, assignment: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.py`."""
        c = self._settings([assignment])
        status = str(self._status(c)[0])
        single, through = self._values(c)[0]
        values = {"single_stream": float(single), "throughput": float(through)}
        return {"status": status, "values": values if status == "ok" else None}

    def evaluate(self, assignment: Mapping[str, Any], rng: Generator) -> Mapping[str, Any]:
        """See `protocol.py`."""
        found = self.truth(assignment)
        status = found["status"]
        if status == "ok" and rng.random() < self.noise.failures:
            status = "hang" if rng.random() < 0.25 else "crash"
        if status != "ok":
            seconds = {"hang": 600.0, "crash": rng.uniform(20, 45), "oom": rng.uniform(45, 80)}[status]
            return {"status": status, "values": None, "seconds": float(seconds)}
        clocks = rng.normal(0, 0.5 * self.noise.between)  # both objectives move together
        values = {}
        for name, value in found["values"].items():
            error = clocks + rng.normal(0, 0.87 * self.noise.between) + rng.normal(0, self.noise.within / REPEATS**0.5)
            if rng.random() < self.noise.outliers:
                error -= abs(rng.normal(0, self.noise.outlier))
            values[name] = float(value * np.exp(error))
        c = self._settings([assignment])
        capture = 25 * (0.5 + float(c["graph_bs"][0]) / 256) if c["graph"][0] else 0.0
        return {"status": "ok", "values": values, "seconds": float(150 + capture + rng.uniform(0, 15))}
