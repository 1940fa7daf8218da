"""Small spaces and histories for the tests of the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.search.history import Ending, History, Observation
from tuner.search.lattice import Axis, Lattice, Points

ENGINE = "sglang"

KNOBS: Mapping[str, Any] = {
    "backend": {"values": ["triton", "flashinfer", "fa3"], "flag": "--attention-backend"},
    "graph": {"switch": True, "flag": "--cuda-graph"},
    "graph_size": {"int": {"low": 8, "high": 256, "log": True}, "flag": "--graph-bs", "when": "graph == on"},
    "steps": {"int": {"low": 1, "high": 8}, "flag": "--steps"},
    "fraction": {"float": {"low": 0.7, "high": 0.95, "step": 0.05}, "flag": "--mem-fraction"},
    "channels": {"values": ["unset", 1, 2, 4, 8], "ordered": True, "env": "NCCL_MAX_NCHANNELS"},
}

BASELINE: Mapping[str, Any] = {"backend": "triton", "graph": True, "graph_size": 32, "steps": 1, "fraction": 0.8}


def space(knobs: Mapping[str, Any] = KNOBS, **more: Any) -> Space:
    """A space of one engine; `unset` among values is spelled None here, as the reader of space files makes it."""
    plain = {name: _without_words(knob) for name, knob in knobs.items()}
    engines = {ENGINE: {"knobs": plain}}
    once = {"baseline_launches": 1}
    return Space.model_validate({"name": "test", "model": "m", "engines": engines, "budget": once, **more})


def _without_words(knob: Mapping[str, Any]) -> Mapping[str, Any]:
    if "values" not in knob:
        return knob
    return {**knob, "values": [None if value == "unset" else value for value in knob["values"]]}


def candidate(of: Space, values: Mapping[str, Any] = BASELINE, engine: str = ENGINE) -> Candidate:
    """A candidate of the test engine."""
    return Candidate.of(of, engine, values)


def lattice(of: Space | None = None, baseline: Mapping[str, Any] = BASELINE) -> Lattice:
    """The lattice of a space's test engine."""
    chosen = of or space()
    return Lattice(chosen, ENGINE, candidate(chosen, baseline))


def scored(trial: int, point: Points, values: Sequence[float], seconds: float = 180.0) -> Observation:
    """A measured trial; values are logs, larger is better."""
    logs = np.array(values, dtype=float)
    return Observation(trial, point, Ending.SCORED, logs, np.zeros(0), np.zeros(len(logs)), None, seconds)


def failed(
    trial: int, point: Points, failure: FailureClass = FailureClass.NCCL_HANG, seconds: float = 600.0
) -> Observation:
    """A failed trial of a study with two objectives."""
    return Observation(trial, point, Ending.FAILED, np.full(2, np.nan), np.zeros(0), np.zeros(2), failure, seconds)


def history(of: Lattice, observations: Sequence[Observation]) -> History:
    """A history of two objectives and no limits."""
    return History(observations, of.dimensions, 2, 0)


def _smooth(axis: Axis, size: float, rng: np.random.Generator) -> np.ndarray:
    """Effects of an axis' values on two objectives: independent for categories, a parabola on a scale."""
    if not axis.ordinal:
        return rng.normal(0, size, (len(axis.values), 2))
    place = np.array(axis.positions)[:, None]
    return 2 * size * (rng.normal(size=2) * place - rng.normal(size=2) * (place - rng.random(2)) ** 2)


def additive(of: Lattice, seed: int = 0, size: float = 0.1) -> Callable[[Points], np.ndarray]:
    """A made-up truth: both log objectives are sums of one effect per knob; zero at the baseline."""
    rng = np.random.default_rng(seed)
    tables = [_smooth(axis, size, rng) for axis in of.axes]
    for table, start in zip(tables, of.baseline, strict=True):
        table -= table[start].copy()

    def truth(point: Points) -> np.ndarray:
        return np.sum([table[i] for table, i in zip(tables, point, strict=True)], axis=0)

    return truth
