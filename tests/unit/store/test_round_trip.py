"""Whatever a worker reports is what is read again: any text, any number, any length."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import LevelResult, Measured, Measurement
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import KnobActivity, Purpose, TrialReport
from tuner.secrets import is_secret_name
from tuner.store import open_store
from tuner.store.columns import clean_text

texts = st.text(max_size=12).map(clean_text)
names = texts.filter(lambda name: not is_secret_name(name) and not name.startswith("-"))
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**31 - 1)
small_maps = st.dictionaries(names, texts, max_size=3)
tuples = st.lists(names, max_size=3).map(tuple)
st.register_type_strategy(float, numbers)
st.register_type_strategy(int, counts)

measurements = st.builds(Measurement, repeats=st.lists(numbers, max_size=3).map(tuple), level=counts)
levels = st.builds(
    LevelResult,
    errors=st.dictionaries(texts, counts, max_size=2),
    measurements=st.lists(measurements, max_size=3).map(tuple),
    warnings=tuples,
)
plans = st.builds(
    LaunchPlan,
    engine=texts,
    argv=tuples,
    env=small_maps,
    host=texts,
    pass_env=tuples,
    unset_env=tuples,
    cwd=st.none() | texts,
    model=texts,
    served_model=texts,
    engine_version=st.none() | texts,
    labels=small_maps,
)
failures = st.builds(Failure, failure_class=st.sampled_from(FailureClass), evidence=tuples, blames=tuples, detail=texts)
reports = st.builds(
    TrialReport,
    outcome=failures | st.builds(Measured, levels=st.lists(levels, max_size=2).map(tuple), warnings=tuples),
    plan=st.none() | plans,
    phase_seconds=st.dictionaries(st.sampled_from(Phase), numbers, max_size=4),
    activity=st.lists(st.builds(KnobActivity, knob=texts, reason=texts), max_size=2).map(tuple),
    versions=small_maps,
    machine=small_maps,
    artifacts=st.dictionaries(names, names, max_size=2),
    notes=tuples,
)
values = st.none() | st.booleans() | counts | numbers | names


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(report=reports, assignment=st.dictionaries(names, values, max_size=4), trial=counts)
def test_any_report_and_any_candidate_survive_the_database(
    tmp_path: Path, report: TrialReport, assignment: dict[str, bool | int | float | str | None], trial: int
) -> None:
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        store.create_study(records.study())
        attempt = store.open_attempt(
            "night",
            trial=trial,
            attempt=1,
            purpose=Purpose.SEARCH,
            candidate=Candidate("simulated", assignment),
            run_dir=str(tmp_path),
            owner="box:1:2:3",
            ttl=1,
        )
        store.finish_attempt(attempt.id, report)
        (kept,) = store.attempts("night")
        store.delete_study("night")
    assert kept.report == report
    assert kept.candidate.fingerprint == Candidate("simulated", assignment).fingerprint
