"""Studies without servers: the simulated engine's performance model and noise, sampled directly, so that many fit.

Everything else is the product: search, store, coordinator, confirmation, ablation. What a launch would measure comes
from `tuner.engines.simulated.model` (the truth) and `tuner.engines.simulated.noise` (what real launches add to it).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.knob import Knob
from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, Measurement, Metric
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Outcome, TrialReport, TrialRequest
from tuner.engines.simulated.model import truth
from tuner.engines.simulated.modelfile import SimModel, load_model
from tuner.engines.simulated.noise import Drift, LaunchNoise
from tuner.execution.base import Finished, Update, key_of
from tuner.search.study import open_search
from tuner.store import Store, open_store
from tuner.study.launches import Means
from tuner.study.loop import Coordinator
from tuner.study.stopping import StopSwitch

ENGINE = "simulated"
FLAVOR = "sglang"
_LAUNCH_S = 180.0
"""Time that a launch takes, as far as the machine's slow heating is concerned."""
_SAMPLED_AT_S = range(0, 60, 4)
"""Seconds of simulated time at which a launch's speed is looked at; their mean is what a benchmark would see."""

SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Memory, where the system offers it: launches that take no time would wait for the disk."""

DEAD_KNOBS = {
    "reduce_in_fp32": {"switch": True, "flag": "--triton-attention-reduce-in-fp32"},
    "prefetch_depth": {"values": [None, 1, 2, 4, 8, 16], "ordered": True, "flag": "--prefetch-depth"},
}
"""Accepted by the simulated engine without any effect."""

LIVE_KNOBS = {
    "custom_all_reduce": {"switch": True, "flag": "--enable-custom-all-reduce"},
    "nccl_proto": {
        "values": [None, "LL", "LL128", "Simple"],
        "env": "NCCL_PROTO",
        "when": "custom_all_reduce == off",
    },
    "nccl_algo": {
        "values": [None, "Ring", "ring,tree;allreduce:tree"],
        "env": "NCCL_ALGO",
        "when": "custom_all_reduce == off",
    },
    "attention_backend": {"values": ["triton", "flashinfer"], "flag": "--attention-backend", "default": "triton"},
    "decode_steps": {
        "int": {"low": 1, "high": 8, "log": True}, "flag": "--num-continuous-decode-steps", "default": 1,
    },
    "chunked_prefill": {
        "values": [2048, 4096, 8192], "ordered": True, "flag": "--chunked-prefill-size", "default": 8192,
    },
}  # fmt: skip


def space_of(knobs: Mapping[str, object], trials: int) -> Space:
    """A space of the simulated engine at the model's own workload."""
    return Space.model_validate(
        {
            "name": "modelled",
            "model": "none",
            "engines": {ENGINE: {"knobs": knobs}},
            "workload": {"levels": [1, 128], "input_tokens": 512, "output_tokens": 128},
            "budget": {"trials": trials},
        }
    )


def baseline_of(space: Space) -> Candidate:
    """Every knob at the engine's default, or left out."""
    knobs = space.knobs_of(ENGINE)
    return Candidate.of(
        space,
        ENGINE,
        {name: False if knob.switch and knob.default is None else knob.default for name, knob in knobs.items()},
    )


@dataclass(frozen=True)
class Machine:
    """A simulated machine: its model, its noise, and how it heats up.

    Attributes:
        seed: of its noise.
        scale: multiplies the noise that the model file states.
        heat: share of speed lost over the first `heat_s` seconds.
        heat_s: how long heating takes.
    """

    seed: int
    scale: float = 1.0
    heat: float = 0.0
    heat_s: float = 3600.0
    model: SimModel = field(default_factory=lambda: load_model("sm120"))

    def true_rates(self, space: Space, candidate: Candidate) -> Mapping[int, float] | FailureClass:
        """Output tok/s by level without noise, or how the launch fails."""
        asked = _settings(space.knobs_of(ENGINE), candidate)
        found = truth(self.model, FLAVOR, asked, levels=space.workload.levels)
        if found.failure is None:
            return found.rates
        named = re.search(r"class=(\w+)", found.failure.fault)
        return FailureClass(named[1]) if named else FailureClass.NCCL_HANG

    def launch(self, request: TrialRequest, at_s: float) -> Outcome:
        """One noisy launch that begins `at_s` seconds after the machine was cool."""
        rates = self.true_rates(request.space, request.candidate)
        if isinstance(rates, FailureClass):
            return Failure(rates, Phase.WEIGHTS, ("modelled",))
        noise = LaunchNoise(
            self.model.noise,
            seed=self.seed * 1_000_003 + request.trial * 101 + request.attempt,
            scale=self.scale,
            full_batch=self.model.workload.full_batch,
            drift=Drift(self.heat, self.heat_s, 0.0),
            wall_clock=lambda: at_s,
        )
        levels = tuple(_level(c, rate * _mean_speed(noise, c, i)) for i, (c, rate) in enumerate(rates.items()))
        return Measured(levels, simulated=True)


def _mean_speed(noise: LaunchNoise, level: int, place: int) -> float:
    begin = place * (max(_SAMPLED_AT_S) + 4)
    return statistics.fmean(noise.speed(level, begin + at) for at in _SAMPLED_AT_S)


def _level(concurrency: int, rate: float) -> LevelResult:
    load = LoadPoint(level=concurrency)
    row = Measurement(Metric.OUTPUT_TOK_S, load, (rate,), rate)
    return LevelResult(load, 1, 1, {}, (row,), 60.0)


def _settings(knobs: Mapping[str, Knob], candidate: Candidate) -> dict[str, object]:
    """Flag or variable → value, as the server would be given it; a switch that turns something off is turned round."""
    return {
        (knobs[name].flag or knobs[name].env or name): (not value) if knobs[name].inverted else value
        for name, value in candidate.values.items()
    }


class ModelExecutor:
    """Keeps the contract of `tuner.execution.base.Executor`; every launch ends at once."""

    slots = 1

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queue: list[TrialRequest] = []
        self._launches = 0

    def submit(self, request: TrialRequest) -> None:
        self._queue.append(request)

    def poll(self, timeout_s: float) -> Sequence[Update]:
        del timeout_s
        if not self._queue:
            return []
        request = self._queue.pop(0)
        at_s = self._launches * _LAUNCH_S
        self._launches += 1
        plan = LaunchPlan(ENGINE, ("modelled",), {}, "127.0.0.1", 1, simulated=True)
        report = TrialReport(self._machine.launch(request, at_s), plan, started_at=at_s, finished_at=at_s + _LAUNCH_S)
        return [Finished(key_of(request), report)]

    def cancel(self) -> None:
        self._queue.clear()

    def close(self) -> None:
        self._queue.clear()


@dataclass(frozen=True)
class ModelledStudy:
    """An open study on a simulated machine."""

    record: StudyRecord
    baseline: Candidate
    machine: Machine
    store: Store
    coordinator: Coordinator

    @property
    def attempts(self) -> list[AttemptRecord]:
        """All its launches so far."""
        return self.store.attempts(self.record.name)

    def true_change(self, a: Candidate, b: Candidate, objective: int) -> float:
        """True ratio of two configurations on an objective, minus one."""
        level = self.record.space.goals[objective].level
        assert level is not None, "the model knows no arrivals"
        rates = [self.machine.true_rates(self.record.space, c) for c in (a, b)]
        assert not any(isinstance(found, FailureClass) for found in rates), "measured configurations have rates"
        first, second = (found[level] for found in rates if not isinstance(found, FailureClass))
        return math.expm1(math.log(first / second))


@contextlib.contextmanager
def modelled_study(space: Space, machine: Machine, sampler: str) -> Iterator[ModelledStudy]:
    """A study in a database of its own that goes away again."""
    baseline = baseline_of(space)
    baselines = {ENGINE: baseline}
    record = StudyRecord(space.name, space, "", "", sampler, machine.seed, True, "0", 0.0)
    with (
        tempfile.TemporaryDirectory(prefix="tuner-proof-", dir=SCRATCH) as folder,
        open_store(f"sqlite:///{folder}/t.db") as store,
    ):
        store.create_study(record)
        search = open_search(
            space, storage_url=None, study_name=space.name, baselines=baselines, seed=machine.seed, sampler=sampler
        )
        coordinator = Coordinator(
            record,
            baselines=baselines,
            means=Means(
                store=store,
                search=search,
                executor=ModelExecutor(machine),
                owner="benchmark",
                run_root=Path(folder) / "runs",
                gpus=0,
                phase_limits=lambda attempts: {},
                notify=lambda event: None,
                stop=StopSwitch(),
            ),
        )
        yield ModelledStudy(record, baseline, machine, store, coordinator)
