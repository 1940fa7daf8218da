"""Whatever a worker reports is what is read again: any text, any number, any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart, Measurement, Metric, SpreadKind
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.output import Agreement, Answer, OutputReport, TaskScore
from tuner.domain.trial import Activity, KnobActivity, LaunchKind, Purpose, TrialReport
from tuner.secrets import is_secret_name
from tuner.store import Store, open_store
from tuner.store.columns import clean_text

Strategy = st.SearchStrategy[Any]

# What follows a word such as `-APIKEY` is hidden on purpose, and so does not come back as it was.
text = st.text(max_size=12).map(clean_text).filter(lambda word: not is_secret_name(word))
name = text.filter(lambda word: not word.startswith("-"))
number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**31 - 1)
switch = st.booleans()
load = st.integers(1, 2**31 - 1).map(lambda level: LoadPoint(level=level)) | st.floats(1e-9, 1e9).map(
    lambda rate: LoadPoint(rate=rate)
)


def maybe(strategy: Strategy) -> Strategy:
    return st.none() | strategy


def many(strategy: Strategy, most: int = 3) -> Strategy:
    return st.lists(strategy, max_size=most).map(tuple)


def table(key: Strategy, value: Strategy) -> Strategy:
    return st.dictionaries(key, value, max_size=3)


EVERY_FIELD: dict[type, dict[str, Strategy]] = {
    Measurement: {
        "metric": st.sampled_from(Metric),
        "load": load,
        "repeats": many(number),
        "center": number,
        "low": maybe(number),
        "high": maybe(number),
        "spread_kind": st.sampled_from(SpreadKind),
        "samples": count,
    },
    LevelResult: {
        "load": load,
        "asked": count,
        "completed": count,
        "errors": table(text, count),
        "measurements": many(st.deferred(lambda: build(Measurement))),
        "duration_s": number,
        "client_cpu_share": maybe(number),
        "client_lag_ms": maybe(number),
        "warnings": many(text),
        "in_flight": count,
        "client_processes": count,
        "prompt_tokens": maybe(number),
        "cached_share": maybe(number),
    },
    Measured: {
        "levels": many(st.deferred(lambda: level_results()), most=2),
        "simulated": switch,
        "warnings": many(text),
    },
    MeasuredInPart: {
        "levels": many(st.deferred(lambda: level_results()), most=2),
        "simulated": switch,
        "reason": text,
    },
    Failure: {
        "failure_class": st.sampled_from(FailureClass),
        "phase": st.sampled_from(Phase),
        "evidence": many(text),
        "blames": many(text),
        "detail": text,
        "exit_code": maybe(st.integers(-64, 255)),
    },
    LaunchPlan: {
        "engine": text,
        "argv": many(name),
        "env": table(name, text),
        "host": text,
        "port": count,
        "pass_env": many(text),
        "unset_env": many(text),
        "extra_ports": many(count),
        "gpus": many(count),
        "cwd": maybe(text),
        "trial_only_env": many(text),
        "simulated": switch,
        "model": text,
        "served_model": text,
        "engine_version": maybe(text),
    },
    KnobActivity: {
        "knob": text,
        "state": st.sampled_from(Activity),
        "reason": text,
        "rests_on": maybe(many(text)),
    },
    Answer: {
        "text": text,
        "pieces": many(name),
        "logprobs": many(number),
        "rivals": many(table(name, number)),
    },
    Agreement: {
        "share": number,
        "drift": maybe(number),
        "compared": count,
        "excused": count,
        "different": count,
        "worst": count,
    },
    TaskScore: {"right": count, "asked": count},
    OutputReport: {
        "alone": maybe(st.deferred(lambda: build(Agreement))),
        "loaded": maybe(st.deferred(lambda: build(Agreement))),
        "least_share": maybe(number),
        "most_drift": maybe(number),
        "prompts": many(name),
        "answers": many(st.deferred(lambda: build(Answer))),
        "task": maybe(st.deferred(lambda: build(TaskScore))),
    },
    TrialReport: {
        "outcome": st.deferred(lambda: build(Failure) | build(MeasuredInPart) | build(Measured)),
        "kind": st.sampled_from(LaunchKind),
        "plan": maybe(st.deferred(lambda: build(LaunchPlan))),
        "phase_seconds": table(st.sampled_from(Phase), number),
        "activity": many(st.deferred(lambda: build(KnobActivity))),
        "versions": table(name, text),
        "machine": table(name, text),
        "artifacts": table(name, name),
        "started_at": number,
        "finished_at": number,
        "notes": many(text),
        "output": maybe(st.deferred(lambda: build(OutputReport))),
    },
}
"""One strategy for every field of every noun that is stored; none of them may be left to its default."""


def build(noun: type) -> Strategy:
    return st.builds(noun, **EVERY_FIELD[noun])


def level_results() -> Strategy:
    """In a closed loop the level alone says how many requests are in flight."""
    return build(LevelResult).map(lambda found: found if found.load.rate else replace(found, in_flight=None))


@pytest.mark.parametrize("noun", EVERY_FIELD, ids=lambda noun: noun.__name__)
def test_a_field_that_is_added_to_a_noun_is_stored_too(noun: type) -> None:
    """Fails until the field has a strategy above; the next test then fails until it has a column."""
    assert {field.name for field in fields(noun)} == set(EVERY_FIELD[noun])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One database for all examples, each of which takes its study away again."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('store')}/tuner.db") as opened:
        yield opened


@settings(max_examples=40)
@given(
    report=build(TrialReport),
    assignment=table(name, maybe(switch | count | number | name)),
    trial=count,
)
def test_any_report_and_any_candidate_survive_the_database(
    store: Store, report: TrialReport, assignment: dict[str, bool | int | float | str | None], trial: int
) -> None:
    store.create_study(records.study())
    try:
        attempt = store.open_attempt(
            "night",
            trial=trial,
            attempt=1,
            purpose=Purpose.SEARCH,
            candidate=Candidate("simulated", assignment),
            run_dir="/runs/night",
            owner="box:1:2:3",
            ttl=1,
        )
        store.finish_attempt(attempt.id, report)
        (kept,) = store.attempts("night")
    finally:
        store.delete_study("night")
    assert kept.report == report
    assert kept.candidate.fingerprint == Candidate("simulated", assignment).fingerprint
