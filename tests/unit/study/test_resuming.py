"""What may change when a study goes on, and what may not."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from support import records

from tuner.domain.trial import Purpose
from tuner.errors import MachineUnfit, SpecError, StudyError, UserError
from tuner.store import Store, open_store
from tuner.study.options import BudgetOptions, StartOptions
from tuner.study.preparing import prepare_start
from tuner.study.resuming import ResumeOptions, prepare_resume
from tuner.trial.machine import machine_facts, model_config_hash

SPACE = """\
name: tiny
model: org/m
engines:
  simulated: {}
knobs:
  nccl_proto: {values: [unset, LL, LL128], env: NCCL_PROTO}
  decode_steps: {int: {low: 1, high: 8, log: true}, flag: --num-continuous-decode-steps, default: 1}
workload: {input_tokens: 16, output_tokens: 16, levels: [1, 4]}
budget: {trials: 6, hours: 2}
"""
STEPS = "  decode_steps: {int: {low: 1, high: 8, log: true}, flag: --num-continuous-decode-steps, default: 1}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


@pytest.fixture
def store(store: Store, file: Path) -> Store:
    """It holds the study `night`."""
    store.create_study(prepare_start(StartOptions(str(file), name="night")).record)
    return store


def edited(file: Path, old: str, new: str) -> ResumeOptions:
    assert old in SPACE
    file.write_text(SPACE.replace(old, new), encoding="utf-8")
    return ResumeOptions(str(file))


def test_a_study_resumes_unchanged_and_says_nothing(store: Store) -> None:
    prepared = prepare_resume(store, "night")
    assert prepared.record == store.study("night")
    assert prepared.changes == ()


def test_comments_order_and_description_of_the_file_may_change(store: Store, file: Path) -> None:
    options = edited(file, "name: tiny\nmodel: org/m\n", "model: org/m  # the same\nname: tiny\ndescription: new\n")
    assert prepare_resume(store, "night", options).changes == ()


def test_the_budget_of_the_file_is_taken_and_told(store: Store, file: Path) -> None:
    prepared = prepare_resume(store, "night", edited(file, "trials: 6, hours: 2", "trials: 9"))
    assert prepared.record.space.budget.trials == 9
    assert prepared.changes == ("budget.trials: 6 → 9", "budget.hours: 2 → none")


def test_the_command_line_has_the_last_word_and_is_kept_for_the_next_resume(store: Store, file: Path) -> None:
    changes = BudgetOptions(trials=12, gpu_hours=3.5, stop_below=0.01)
    prepared = prepare_resume(store, "night", ResumeOptions(budget=changes))
    assert prepared.changes == (
        "budget.trials: 6 → 12",
        "budget.gpu_hours: none → 3.5",
        "budget.stop_below_gain: none → 0.01",
    )
    store.change_study(prepared.record)
    again = prepare_resume(store, "night", edited(file, "trials: 6", "trials: 7"))
    assert again.record.space.budget.trials == 12
    assert again.record == store.study("night")


def test_the_sampler_may_change_if_there_is_one_of_that_name(store: Store) -> None:
    prepared = prepare_resume(store, "night", ResumeOptions(sampler="random"))
    assert prepared.record.sampler == "random"
    assert prepared.changes == ("sampler: tuner → random; what the launches so far showed stays",)
    with pytest.raises(UserError, match="no sampler randm"):
        prepare_resume(store, "night", ResumeOptions(sampler="randm"))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[unset, LL, LL128]", "[unset, LL]", "knobs.nccl_proto.values: [None, 'LL', 'LL128'] → [None, 'LL']"),
        (
            "  decode_steps:",
            "  more: {values: [1, 2], env: NCCL_NTHREADS, default: 1}\n  decode_steps:",
            "knobs.more is new",
        ),
        ("output_tokens: 16", "output_tokens: 32", "workload.output_tokens: 16 → 32"),
        ("model: org/m", "model: org/other", "model: org/m → org/other"),
    ],
)
def test_a_file_that_says_something_else_is_refused_and_the_difference_is_named(
    store: Store, file: Path, old: str, new: str, named: str
) -> None:
    with pytest.raises(StudyError) as caught:
        prepare_resume(store, "night", edited(file, old, new))
    assert named in caught.value.message
    assert caught.value.hint is not None
    assert "--warm-start night" in caught.value.hint


def test_a_knob_that_is_gone_is_named(store: Store, file: Path) -> None:
    with pytest.raises(StudyError, match=r"knobs\.decode_steps is gone"):
        prepare_resume(store, "night", edited(file, STEPS, ""))


def test_a_file_that_is_no_space_is_an_error_of_the_file(store: Store, file: Path) -> None:
    with pytest.raises(SpecError):
        prepare_resume(store, "night", edited(file, "trials: 6", "trails: 6"))


def test_a_space_that_was_changed_in_the_database_is_refused(store: Store, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "tuner.db") as database:
        (text,) = database.execute("SELECT space FROM tuner_study").fetchone()
        document = json.loads(text)
        document["knobs"]["nccl_proto"]["values"] = ["LL"]
        database.execute("UPDATE tuner_study SET space = ?", (json.dumps(document),))
    with pytest.raises(StudyError, match="stored space of study night is not the one"):
        prepare_resume(store, "night")


def test_a_budget_that_nothing_can_have_is_a_mistake_of_the_command_line(store: Store) -> None:
    with pytest.raises(SpecError) as caught:
        prepare_resume(store, "night", ResumeOptions(budget=BudgetOptions(timeout_s=1e12, gpu_hours=1e300)))
    assert [str(problem).partition(": must be")[0] for problem in caught.value.problems] == [
        "command line: budget.hours",
        "command line: budget.gpu_hours",
    ]


def test_engines_that_were_chosen_at_the_start_stay_chosen(tmp_path: Path, file: Path) -> None:
    both = SPACE.replace("  simulated: {}", "  simulated: {}\n  vllm: {}").replace(STEPS, "")
    file.write_text(both, encoding="utf-8")
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        start = StartOptions(str(file), name="one", engines=("simulated",), warm_start=("other",), model="org/x")
        store.create_study(prepare_start(start).record)
        prepared = prepare_resume(store, "one", ResumeOptions(str(file)))
    assert list(prepared.record.space.engines) == ["simulated"]
    assert prepared.changes == ()


@pytest.mark.parametrize("hidden", [64, 128])
def test_a_model_whose_configuration_was_changed_is_another_one(tmp_path: Path, file: Path, hidden: int) -> None:
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text('{"hidden_size": 64}', encoding="utf-8")
    file.write_text(SPACE.replace("org/m", str(config.parent)), encoding="utf-8")
    facts = {**machine_facts().summary(), "model_config": str(model_config_hash(str(config.parent)))}
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        # Simulated studies go on anywhere: this one passes for a measured one.
        record = replace(prepare_start(StartOptions(str(file), name="night")).record, simulated=False)
        store.create_study(record)
        attempt = store.open_attempt(
            "night",
            trial=0,
            attempt=1,
            purpose=Purpose.BASELINE,
            candidate=records.candidate(),
            run_dir=str(tmp_path / "run"),
            owner="box:1:2:3",
            ttl=30,
        )
        store.finish_attempt(attempt.id, records.measured_report(machine=facts, versions={"simulated": "1"}))
        config.write_text(f'{{"hidden_size": {hidden}}}', encoding="utf-8")
        if hidden == 64:
            prepare_resume(store, "night")
        else:
            with pytest.raises(MachineUnfit, match="model_config"):
                prepare_resume(store, "night")
        prepare_resume(store, "night", other_machine=True)
