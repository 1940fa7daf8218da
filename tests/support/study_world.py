"""One study on a real store with a real search, whose launches end as a script says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.coordinators import coordinator_of, store_toy
from support.scripted import Script, ScriptedExecutor, measured

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Action
from tuner.domain.space import Space
from tuner.domain.trial import Outcome, TrialRequest
from tuner.store import Store
from tuner.study.agenda import StudyEnd
from tuner.study.events import AttemptEnded, StudyEvent
from tuner.study.loop import Coordinator
from tuner.study.stopping import StopSwitch

KNOBS = {"a": {"values": [1, 2, 3, 4], "flag": "--a"}, "b": {"switch": True, "env": "B"}}


def toy_space(**changes: object) -> Space:
    budget = {"trials": 8, "baseline_launches": 2, "sentinel_every": 0, **changes}
    limits = [{"metric": "output_tok_s", "level": 16, "min_of_baseline": 0.9}]
    document = {
        "name": "toy",
        "model": "m",
        "engines": {"simulated": {"knobs": KNOBS}},
        "workload": {"levels": [1, 16]},
        "limits": limits,
        "budget": budget,
    }
    return Space.model_validate(document)


def speed(request: TrialRequest) -> Outcome:
    """Faster alone with a larger `a`, slower under load."""
    a = int(str(request.candidate.values["a"]))
    return measured({1: 50.0 + a, 16: 400.0 - 30 * a})


@dataclass
class World:
    """One study on one database; `run` makes a new coordinator each time, as a new process would."""

    store: Store
    url: str
    root: Path
    space: Space = field(default_factory=toy_space)
    events: list[StudyEvent] = field(default_factory=list)
    requests: list[TrialRequest] = field(default_factory=list)
    sampler: str = "random"
    warm: bool = False
    owner: str = "test"

    def __post_init__(self) -> None:
        store_toy(self.store, self.space, sampler=self.sampler)

    def coordinator(self, executor: ScriptedExecutor, stop: StopSwitch | None = None) -> Coordinator:
        baselines = {"simulated": Candidate.of(self.space, "simulated", {"a": 1, "b": False})}
        return coordinator_of(
            self.store,
            self.url,
            self.root,
            executor,
            baselines,
            stop=stop,
            notify=self.events.append,
            owner=self.owner,
            warm=self.warm,
        )

    def run(
        self,
        script: Script,
        *,
        stop: StopSwitch | None = None,
        slots: int = 1,
        machine: Callable[[TrialRequest], Mapping[str, str]] = lambda _: {},
    ) -> tuple[StudyEnd, ScriptedExecutor]:
        executor = ScriptedExecutor(script, slots=slots, machine=machine)
        end = self.coordinator(executor, stop).run()
        self.requests += executor.requests
        return end, executor

    @property
    def actions(self) -> list[Action | None]:
        return [event.action for event in self.events if isinstance(event, AttemptEnded)]
