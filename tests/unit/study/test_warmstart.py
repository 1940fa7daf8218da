"""Which earlier studies may teach a new one, how far they are believed, and what they say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.scripted import failed, measured

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.study import StudyRecord
from tuner.domain.trial import Outcome, Purpose, TrialReport
from tuner.errors import StudyError
from tuner.search.base import PriorObservation
from tuner.store import Store
from tuner.study.options import StartOptions
from tuner.study.preparing import Prepared, prepare_start
from tuner.study.warmstart import hints_for, teachers_of, weigh

SPACE = """\
name: tiny
model: org/m
engines:
  simulated: {}
knobs:
  nccl_proto: {values: [unset, LL, LL128], env: NCCL_PROTO}
  decode_steps: {int: {low: 1, high: 8}, flag: --num-continuous-decode-steps, default: 1}
workload: {input_tokens: 16, output_tokens: 16, levels: [1, 4]}
budget: {trials: 6}
"""
START = {"nccl_proto": None, "decode_steps": 1}
TWO_STEPS = {"nccl_proto": None, "decode_steps": 2}


def prepared(folder: Path, name: str = "new", *, text: str = SPACE, warm_start: tuple[str, ...] = ()) -> Prepared:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return prepare_start(StartOptions(str(file), name=name, warm_start=warm_start))


class Night:
    """An earlier study: launches are recorded as its coordinator would."""

    def __init__(self, store: Store, record: StudyRecord, version: str = "1") -> None:
        store.create_study(record)
        self._store, self._record, self._version = store, record, version
        self._trials = 0

    def launch(self, values: dict[str, object], outcome: Outcome, purpose: Purpose = Purpose.SEARCH) -> None:
        candidate = Candidate.of(self._record.space, "simulated", values)  # type: ignore[arg-type]
        attempt = self._store.open_attempt(
            self._record.name,
            trial=self._trials,
            attempt=1,
            purpose=purpose,
            candidate=candidate,
            run_dir="/runs",
            owner="box:1:2:3",
            ttl=1,
        )
        self._trials += 1
        versions = {"simulated": self._version}
        report = TrialReport(outcome, None, versions=versions, started_at=10.0, finished_at=70.0)
        self._store.finish_attempt(attempt.id, report)


def ended(store: Store, folder: Path, name: str = "night", *, text: str = SPACE, version: str = "1") -> None:
    night = Night(store, prepared(folder, name, text=text).record, version)
    night.launch(START, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    night.launch(START, measured({1: 52.0, 4: 104.0}), Purpose.BASELINE)
    night.launch(TWO_STEPS, measured({1: 61.2, 4: 91.8}))
    night.launch({"nccl_proto": "LL", "decode_steps": 1}, failed(FailureClass.NCCL_HANG))
    night.launch({"nccl_proto": "LL128", "decode_steps": 1}, failed(FailureClass.GPU_BUSY))


def of(hints: tuple[PriorObservation, ...], **values: object) -> list[PriorObservation]:
    return [h for h in hints if all(h.candidate.values[name] == value for name, value in values.items())]


def test_gains_are_reckoned_from_the_baseline_there(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    new = prepared(tmp_path, warm_start=("night",))
    hints = hints_for(store, new)
    (two,) = of(hints, decode_steps=2)
    assert two.ratios == pytest.approx((61.2 / 51, 91.8 / 102))
    assert (two.study, two.trial, two.failure, two.seconds) == ("night", 2, None, 60.0)


def test_only_failures_of_the_candidates_own_fault_are_passed_on(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    hints = hints_for(store, prepared(tmp_path, warm_start=("night",)))
    assert [(h.candidate.values["nccl_proto"], h.failure) for h in hints if h.failure is not None] == [
        ("LL", FailureClass.NCCL_HANG)
    ]


def test_a_study_that_names_no_other_hears_of_none(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    assert hints_for(store, prepared(tmp_path)) == ()


def test_a_study_of_the_same_kind_is_offered_and_one_that_is_named_is_not_offered_again(
    store: Store, tmp_path: Path
) -> None:
    ended(store, tmp_path)
    ended(store, tmp_path, "older")
    offered = teachers_of(store, prepared(tmp_path)).offered
    assert {e.name for e in offered} == {"night", "older"}
    assert (offered[0].measured, offered[0].failures, offered[0].differs) == (2, 1, ())
    chosen = teachers_of(store, prepared(tmp_path, warm_start=("night",)))
    assert [e.name for e in chosen.named] == ["night"]
    assert [e.name for e in chosen.offered] == ["older"]


@pytest.mark.parametrize(
    ("text", "version", "told"),
    [
        (SPACE.replace("org/m", "org/other"), "1", "model org/other"),
        (SPACE, "0.9", "simulated 0.9"),
        (SPACE.replace("input_tokens: 16", "input_tokens: 512"), "1", "the workload"),
    ],
)
def test_each_difference_is_told_and_adds_doubt(
    store: Store, tmp_path: Path, text: str, version: str, told: str
) -> None:
    ended(store, tmp_path, "same")
    ended(store, tmp_path, "other", text=text, version=version)
    new = prepared(tmp_path)
    same, other = (weigh(store.study(n), store.attempts(n), new) for n in ("same", "other"))
    assert (same.differs, other.differs) == ((), (told,))
    assert other.doubt > same.doubt
    trust = [next(h.trust for h in e.hints if h.failure is not None) for e in (same, other)]
    assert trust[1] <= trust[0] < 1.0
    assert [e.name for e in teachers_of(store, new).offered] == ["same", "other"]


@pytest.mark.parametrize(
    ("goal", "told"),
    [("{level: 1}", ()), ("{metric: ttft_p99_ms, rate: 2}", ("the workload",))],
)
def test_how_requests_arrive_matters_where_something_is_asked_at_a_rate(
    store: Store, tmp_path: Path, goal: str, told: tuple[str, ...]
) -> None:
    arriving = SPACE.replace("levels: [1, 4]", "levels: [1, 4], rates: [2]") + f"objectives: [{{level: 4}}, {goal}]\n"
    ended(store, tmp_path, text=arriving)
    other = arriving.replace("rates: [2]", "rates: [2], arrivals: constant")
    earlier = weigh(store.study("night"), store.attempts("night"), prepared(tmp_path, text=other))
    assert earlier.differs == told


def test_a_study_with_nothing_to_say_is_not_offered_and_cannot_be_named(store: Store, tmp_path: Path) -> None:
    night = Night(store, prepared(tmp_path, "failed").record)
    night.launch(START, failed(FailureClass.OOM_WEIGHTS), Purpose.BASELINE)
    assert teachers_of(store, prepared(tmp_path)).offered == ()
    with pytest.raises(StudyError, match="failed cannot warm-start this one: it measured nothing"):
        teachers_of(store, prepared(tmp_path, warm_start=("failed",)))
    with pytest.raises(StudyError, match="no study nobody"):
        teachers_of(store, prepared(tmp_path, warm_start=("nobody",)))


def test_a_real_study_hears_nothing_of_a_simulated_one(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    new = prepared(tmp_path)
    real = replace(new, record=replace(new.record, simulated=False))
    assert "simulated" in weigh(store.study("night"), store.attempts("night"), real).obstacle


def test_a_real_study_on_another_machine_says_nothing_here(store: Store, tmp_path: Path) -> None:
    night = Night(store, replace(prepared(tmp_path, "night").record, simulated=False))
    night.launch(START, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    new = prepared(tmp_path)
    real = replace(new, record=replace(new.record, simulated=False))
    attempts = store.attempts("night")
    here = real.machine.summary()
    for machine, expected in (({**here}, ""), ({**here, "cpu": "another"}, "another machine (cpu: another there")):
        seen = [replace(a, report=replace(a.report, machine=machine)) for a in attempts if a.report is not None]
        assert expected in weigh(store.study("night"), seen, real).obstacle
        assert bool(weigh(store.study("night"), seen, real).obstacle) == bool(expected)


@pytest.mark.parametrize(
    ("there", "here", "obstacle", "differs"),
    [
        (0, 4, "one of the two uses no GPU", ()),
        (2, 4, "", ("2 GPUs a launch",)),
        (4, 4, "", ()),
    ],
)
def test_gains_on_another_number_of_gpus_are_doubted_and_those_without_gpus_not_heard(
    store: Store, tmp_path: Path, there: int, here: int, obstacle: str, differs: tuple[str, ...]
) -> None:
    def real(name: str, gpus: int) -> Prepared:
        new = prepared(tmp_path, name, text=f"{SPACE}hardware: {{gpus: {gpus}}}\n")
        return replace(new, record=replace(new.record, simulated=False))

    night = Night(store, real("night", there).record)
    night.launch(START, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    new = real("new", here)
    attempts = store.attempts("night")
    machine = new.machine.summary()
    seen = [replace(a, report=replace(a.report, machine=machine)) for a in attempts if a.report is not None]
    earlier = weigh(store.study("night"), seen, new)
    assert (earlier.obstacle, earlier.differs) == (obstacle, differs)
    assert (earlier.doubt > 0.1) == bool(differs)


def test_a_machine_that_is_not_known_beforehand_adds_doubt(store: Store, tmp_path: Path) -> None:
    night = Night(store, replace(prepared(tmp_path, "night").record, simulated=False))
    night.launch(START, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    new = prepared(tmp_path)
    real = replace(new, record=replace(new.record, simulated=False), elsewhere=True)
    attempts = store.attempts("night")
    seen = [replace(a, report=replace(a.report, machine={"cpu": "another"})) for a in attempts if a.report is not None]
    earlier = weigh(store.study("night"), seen, real)
    assert earlier.obstacle == ""
    assert earlier.doubt > 0.05
    assert "machine" in earlier.differs[0]


def test_what_this_space_cannot_say_is_left_out(store: Store, tmp_path: Path) -> None:
    wide = SPACE.replace("workload:", "  extra: {values: [1, 2], env: NCCL_NTHREADS, default: 1}\nworkload:").replace(
        "high: 8", "high: 16"
    )
    night = Night(store, prepared(tmp_path, "wide", text=wide).record)
    start = {**START, "extra": 1}
    night.launch(start, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    night.launch({**start, "decode_steps": 16}, measured({1: 70.0, 4: 100.0}))
    night.launch({**start, "extra": 2}, measured({1: 80.0, 4: 100.0}))
    night.launch({**start, "decode_steps": 4}, measured({1: 60.0, 4: 100.0}))
    hints = hints_for(store, prepared(tmp_path, warm_start=("wide",)))
    assert [(h.candidate.values["decode_steps"], h.ratios[0]) for h in hints] == [(1, 1.0), (4, 1.2)]
    assert all("extra" not in h.candidate.values for h in hints)


def test_an_objective_that_was_not_measured_there_has_no_gain(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    three = SPACE.replace("levels: [1, 4]", "levels: [1, 8]")
    hints = hints_for(store, prepared(tmp_path, text=three, warm_start=("night",)))
    (two,) = of(hints, decode_steps=2)
    assert two.ratios[0] == pytest.approx(1.2)
    assert two.ratios[1] is None


def test_where_this_baseline_was_measured_there_gains_are_reckoned_from_it(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    other = SPACE.replace("simulated: {}", "simulated: {baseline: {set: {decode_steps: 2}}}")
    earlier = weigh(store.study("night"), store.attempts("night"), prepared(tmp_path, text=other))
    (two,) = of(earlier.hints, decode_steps=2)
    (one,) = [h for h in of(earlier.hints, decode_steps=1) if h.failure is None]
    assert two.ratios == (1.0, 1.0)
    assert one.ratios == pytest.approx((51 / 61.2, 102 / 91.8))
    assert earlier.differs == ("the baseline",)


def test_what_happened_after_the_new_study_began_is_not_heard_of_so_that_a_resumed_one_hears_the_same(
    store: Store, tmp_path: Path
) -> None:
    ended(store, tmp_path)
    new = prepared(tmp_path, warm_start=("night",))
    before = replace(new, record=replace(new.record, created_at=store.attempts("night")[1].finished_at or 0.0))
    assert [h.trial for h in hints_for(store, before)] == [0]


def test_a_study_that_was_deleted_meanwhile_is_missed_by_nobody(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    new = prepared(tmp_path, warm_start=("night",))
    store.delete_study("night")
    assert hints_for(store, new) == ()


@pytest.mark.slow
def test_of_very_many_configurations_the_best_are_heard(store: Store, tmp_path: Path) -> None:
    wide = SPACE.replace("high: 8", "high: 400")
    night = Night(store, prepared(tmp_path, "wide", text=wide).record)
    night.launch(START, measured({1: 50.0, 4: 100.0}), Purpose.BASELINE)
    for steps in range(2, 140):
        night.launch({**START, "decode_steps": steps}, measured({1: 50.0 + steps, 4: 100.0 - steps / 10}))
    hints = hints_for(store, prepared(tmp_path, text=wide, warm_start=("wide",)))
    assert len(hints) == 120
    heard = {h.candidate.values["decode_steps"] for h in hints}
    assert {1, 139} <= heard
    assert all(ratio is not None and math.isfinite(ratio) for h in hints for ratio in h.ratios)
