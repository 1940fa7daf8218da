"""A study does not launch again what running servers said does nothing, and keeps what a verification launch found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from support import records
from support.scripted import ScriptedExecutor, measured

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import MeasuredInPart
from tuner.domain.space import Space
from tuner.domain.study import AttemptState, StudyRecord
from tuner.domain.trial import Activity, KnobActivity, Outcome, Purpose, TrialRequest
from tuner.engines.nccl_log import NcclReading
from tuner.execution.base import Finished, Update
from tuner.search.base import Search
from tuner.search.study import open_search
from tuner.store import Store, driver_url, open_store
from tuner.study.events import Noted, StudyEvent
from tuner.study.launches import Means
from tuner.study.loop import Coordinator
from tuner.study.silence import inactive_knobs
from tuner.study.stopping import StopSwitch
from tuner.study.verify_knobs import KnobCheck, record_check

SPACE = Space.model_validate(
    {
        "name": "toy",
        "model": "m",
        "engines": {"simulated": {}},
        "knobs": {
            "own": {"switch": True, "flag": "--own"},
            "proto": {"values": [None, "LL", "Simple"], "env": "NCCL_PROTO"},
            "steps": {"values": [1, 2, 4, 8], "ordered": True, "flag": "--steps", "default": 1},
        },
        "workload": {"levels": [1, 8]},
        "budget": {"trials": 40, "baseline_launches": 1, "sentinel_every": 0, "confirm_launches": 0},
    }
)
BASELINE = Candidate.of(SPACE, "simulated", {"own": True, "proto": None, "steps": 1})
BYPASSED = KnobActivity("proto", Activity.INACTIVE, "the engine's own all-reduce serves it", rests_on=("own",))


DEAD = KnobActivity("steps", Activity.INACTIVE, "nothing reads it", rests_on=())

Said = Callable[[Candidate], tuple[KnobActivity, ...]]


def own_bypasses(candidate: Candidate) -> tuple[KnobActivity, ...]:
    """`proto` does nothing while `own` is on."""
    return (BYPASSED,) if candidate.values["own"] and candidate.values["proto"] is not None else ()


class TellingExecutor(ScriptedExecutor):
    """Its servers say what does nothing."""

    def __init__(self, said: Said, outcome: Callable[[TrialRequest], Outcome]) -> None:
        super().__init__(outcome)
        self._said = said

    def poll(self, timeout_s: float) -> Sequence[Update]:
        request = self._queue[0] if self._queue else None
        updates = super().poll(timeout_s)
        if request is None:
            return updates
        return [
            Finished(update.key, replace(update.report, activity=self._said(request.candidate)))
            if isinstance(update, Finished)
            else update
            for update in updates
        ]


def speed(request: TrialRequest) -> float:
    values = request.candidate.values
    steps = values["steps"]
    assert isinstance(steps, int)
    return 50.0 + steps + (10 if values["own"] else 5 if values["proto"] == "LL" else 0)


def search_of(url: str) -> Search:
    baselines = {"simulated": BASELINE}
    return open_search(SPACE, storage_url=driver_url(url), study_name="toy", baselines=baselines, seed=3)


def run(store: Store, url: str, root: Path, events: list[StudyEvent], said: Said = own_bypasses) -> TellingExecutor:
    executor = TellingExecutor(said, lambda request: measured({1: speed(request), 8: 8 * speed(request)}))
    coordinator = Coordinator(
        store.study("toy"),
        baselines={"simulated": BASELINE},
        means=Means(
            store=store,
            search=search_of(url),
            executor=executor,
            owner="test",
            run_root=root,
            gpus=0,
            phase_limits=lambda attempts: {},
            notify=events.append,
            stop=StopSwitch(),
        ),
    )
    coordinator.run()
    return executor


def started(store: Store) -> None:
    store.create_study(StudyRecord("toy", SPACE, "", "h", "tuner", 3, True, "0", 1.0))


def bypassed(request: TrialRequest) -> bool:
    return bool(request.candidate.values["own"]) and request.candidate.values["proto"] is not None


def test_what_does_nothing_is_launched_once_and_then_answered_from_memory(sqlite_url: str, tmp_path: Path) -> None:
    events: list[StudyEvent] = []
    with open_store(sqlite_url) as store:
        started(store)
        executor = run(store, sqlite_url, tmp_path, events)
    launched = {request.candidate.fingerprint for request in executor.requests}
    assert len(launched) == len(executor.requests), "nothing is launched twice"
    assert sum(map(bypassed, executor.requests)) == 1
    # Everything that differs for the server: 3 × 4 with NCCL's all-reduce, 4 with the engine's own.
    assert sum(not bypassed(request) for request in executor.requests) == 3 * 4 + 4
    notes = [event.text for event in events if isinstance(event, Noted)]
    assert any("proto does nothing where own is on" in note for note in notes)


def test_a_knob_that_does_nothing_at_all_is_left_alone_and_told_of_once(sqlite_url: str, tmp_path: Path) -> None:
    events: list[StudyEvent] = []
    with open_store(sqlite_url) as store:
        started(store)
        executor = run(store, sqlite_url, tmp_path, events, lambda _: (DEAD,))
    assert {request.candidate.values["steps"] for request in executor.requests} == {1}
    assert len({r.candidate.fingerprint for r in executor.requests}) == len(executor.requests) == 2 * 3
    notes = [event.text for event in events if isinstance(event, Noted)]
    assert notes.count("steps takes no part in the search: nothing reads it") == 1
    assert not any("was not launched" in note for note in notes)


def test_a_verification_launch_is_kept_without_a_number_and_spares_the_search_its_launches(
    sqlite_url: str, tmp_path: Path
) -> None:
    candidate = Candidate.of(SPACE, "simulated", {"own": True, "proto": "LL", "steps": 1})
    outcome = MeasuredInPart((), True, "launched to see which settings act")
    report = records.measured_report(activity=(BYPASSED,), outcome=outcome, artifacts={})
    with open_store(sqlite_url) as store:
        started(store)
        check = KnobCheck((BYPASSED,), NcclReading(), "CUSTOM", report)
        kept = record_check(store, search_of(sqlite_url), "toy", candidate, tmp_path / "toy" / "knobs-1", check)
        assert (kept.purpose, kept.state) == (Purpose.VERIFY, AttemptState.PARTIAL)
        executor = run(store, sqlite_url, tmp_path, [])
        attempts = store.attempts("toy")
    assert inactive_knobs(attempts, candidate) == {"proto": "the engine's own all-reduce serves it"}
    assert not any(map(bypassed, executor.requests))
    assert [a.purpose for a in attempts].count(Purpose.VERIFY) == 1
    assert all(a.told for a in attempts)
