"""Studies whose launches have a known truth, for confirmations and ablations."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.coordinators import coordinator_of, copy_database, store_toy
from support.scripted import ScriptedExecutor, failed, measured

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Outcome, Purpose, TrialRequest
from tuner.store import Store, open_store
from tuner.study.ablate import AblationPlan
from tuner.study.agenda import StudyEnd
from tuner.study.loop import Coordinator
from tuner.study.stopping import StopSwitch

KNOBS = {
    "a": {"values": [1, 2, 3], "ordered": True, "flag": "--a"},
    "b": {"switch": True, "env": "B"},
    "gated": {"values": ["unset", "on"], "env": "GATED", "when": "b == on"},
    "dead": {"switch": True, "env": "DEAD"},
}
START = {"a": 1, "b": False, "dead": False}
TRUTH = {
    "a": {1: (0.0, 0.0), 2: (0.10, 0.0), 3: (0.15, -0.20)},
    "b": {True: (0.06, 0.03)},
    "gated": {"on": (0.05, 0.0)},
}
WINNER = {"a": 2, "b": True, "gated": "on", "dead": True}
"""A configuration that is faster, with a setting that does nothing."""
NOISE = 0.004


def toy_space(*, engines: int = 1, **budget: object) -> Space:
    names = ["simulated", "vllm"][:engines]
    return Space.model_validate(
        {
            "name": "toy",
            "model": "m",
            "engines": {name: {"knobs": KNOBS} for name in names},
            "workload": {"levels": [1, 16]},
            "budget": {"trials": 24, "baseline_launches": 2, "sentinel_every": 0, **budget},
        }
    )


def true_logs(candidate: Candidate) -> tuple[float, float]:
    """Logarithm of the speed alone and under load, over the start's."""
    effects = [TRUTH[name].get(value, (0.0, 0.0)) for name, value in candidate.values.items() if name in TRUTH]
    other = 0.08 if candidate.engine == "vllm" else 0.0
    return sum(e[0] for e in effects) + other, sum(e[1] for e in effects)


@dataclass
class World:
    """One study on one database; launches drift, each has noise of its own."""

    store: Store
    url: str
    root: Path
    space: Space
    seed: int = 1
    drift: float = 0.0
    noise: float = NOISE
    requests: list[TrialRequest] = field(default_factory=list)
    broken: frozenset[str] = frozenset()
    is_stored: bool = False

    def __post_init__(self) -> None:
        if not self.is_stored:
            store_toy(self.store, self.space, seed=self.seed)

    @property
    def baselines(self) -> Mapping[str, Candidate]:
        return {engine: Candidate.of(self.space, engine, START) for engine in self.space.engines}

    @property
    def attempts(self) -> list[AttemptRecord]:
        return self.store.attempts("toy")

    def launch(self, request: TrialRequest) -> Outcome:
        self.requests.append(request)
        if request.candidate.fingerprint in self.broken and request.purpose is Purpose.CONFIRM:
            return failed(FailureClass.OOM_RUNTIME)
        draw = random.Random(f"{self.seed} {request.trial} {request.attempt}")
        alone, loaded = true_logs(request.candidate)
        slower = self.drift * len(self.requests)
        speeds = {
            level: base * math.exp(log - slower + draw.gauss(0.0, self.noise))
            for level, base, log in ((1, 50.0, alone), (16, 400.0, loaded))
        }
        return measured(speeds)

    def coordinator(self, stop: StopSwitch | None = None) -> Coordinator:
        return coordinator_of(self.store, self.url, self.root, ScriptedExecutor(self.launch), self.baselines, stop=stop)

    def run(self) -> StudyEnd:
        return self.coordinator().run()

    def plan(self, winner: Mapping[str, object], rounds: int = 3) -> AblationPlan:
        chosen = Candidate.of(self.space, "simulated", {**START, **winner})  # type: ignore[dict-item]
        record = self.store.study("toy")
        return AblationPlan(
            record, baseline=self.baselines["simulated"], winner=chosen, rounds=rounds, attempts=self.attempts
        )

    def of(self, purpose: Purpose) -> list[AttemptRecord]:
        return [a for a in self.attempts if a.purpose is purpose]


@dataclass(frozen=True)
class Ended:
    """A study that was run once for several tests, each of which goes on with a copy of it."""

    folder: Path
    space: Space
    end: StudyEnd

    @classmethod
    def of(cls, folder: Path, space: Space) -> Ended:
        """Run a study."""
        url = f"sqlite:///{folder}/tuner.db"
        with open_store(url) as store:
            return cls(folder, space, World(store, url, folder / "runs", space).run())

    @contextmanager
    def copy(self, folder: Path) -> Iterator[World]:
        """A world of the same study in another folder."""
        url = copy_database(self.folder / "tuner.db", folder / "tuner.db")
        with open_store(url, create=False) as store:
            yield World(store, url, folder / "runs", self.space, is_stored=True)
