"""The front's table: every engine's baseline is named, and changes are those of a configuration's own engine."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from support import records
from support.commands import runner

from tuner.cli.front_plot import front_plot
from tuner.cli.front_view import front_document, front_notes, front_table
from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front
from tuner.domain.proof import ArmResult, Confirmation, Effect
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Purpose
from tuner.export.base import numbers_of
from tuner.export.standings import front_of

KNOBS = {"steps": {"values": [1, 4], "flag": "--s"}, "graphs": {"switch": True, "flag": "--g"}}
_ids = itertools.count(1)


@pytest.fixture
def study() -> StudyRecord:
    """A study of two engines with a knob that only the second one has."""
    space = Space.model_validate(
        {
            "name": "two",
            "model": "m",
            "engines": {"sglang": {}, "vllm": {"knobs": {"own": {"switch": True, "flag": "--own"}}}},
            "knobs": KNOBS,
            "workload": {"levels": [1, 128]},
        }
    )
    return replace(records.study(), space=space)


def launch(trial: int, candidate: Candidate, single: float, loaded: float, purpose: Purpose) -> AttemptRecord:
    return records.attempt(trial, candidate, records.measured_report(single, loaded), id=next(_ids), purpose=purpose)


def front(study: StudyRecord, *, vllm: tuple[float, float]) -> Front:
    """Two baselines and a faster configuration of each engine."""
    start, other = {"steps": 1, "graphs": False}, {"steps": 1, "graphs": False, "own": False}
    sglang = Candidate.of(study.space, "sglang", start), Candidate.of(study.space, "sglang", {**start, "steps": 4})
    second = Candidate.of(study.space, "vllm", other), Candidate.of(study.space, "vllm", {**other, "own": True})
    return front_of(
        study.space,
        [
            launch(0, sglang[0], 60.0, 2000.0, Purpose.BASELINE),
            launch(1, second[0], *vllm, Purpose.BASELINE),
            launch(2, sglang[1], 90.0, 2100.0, Purpose.SEARCH),
            launch(3, second[1], 70.0, 2900.0, Purpose.SEARCH),
        ],
    )


def test_help_says_what_keeps_a_configuration_on_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = " ".join(runner(tmp_path, monkeypatch, capsys)("study", "front", "--help").out.split())
    assert "at least as good on every objective, and better beyond noise on one of them" in told


def cells(study: StudyRecord, found: Front) -> list[tuple[str, str]]:
    """(trials, configuration) of each row."""
    table = front_table(study, found)
    first, last = table.columns[0], table.columns[-1]
    return list(zip(map(str, first.cells), map(str, last.cells), strict=True))


def test_intervals_from_within_a_launch_are_told_as_such(study: StudyRecord) -> None:
    single = front(study, vllm=(95.0, 2500.0))
    assert front_notes(study, single, None)[0].startswith("± and [ ] are 95 % intervals within a launch")
    candidate = single.members[0].candidate
    repeated = front_of(study.space, [launch(n, candidate, 60.0 + n, 2000.0, Purpose.BASELINE) for n in range(3)])
    assert front_notes(study, repeated, None)[0] == "± and [ ] are 95 % intervals"


def test_the_second_engines_baseline_is_named_as_one(study: StudyRecord) -> None:
    rows = cells(study, front(study, vllm=(95.0, 2500.0)))
    assert ("1", "vllm: baseline") in rows
    assert ("3", "vllm: own=on") in rows


def test_both_baselines_stand_below_the_front_where_they_are_no_members(study: StudyRecord) -> None:
    rows = cells(study, front(study, vllm=(40.0, 1500.0)))
    assert rows == [("2", "sglang: steps=4"), ("3", "vllm: own=on"), ("0", "sglang: baseline"), ("1", "vllm: baseline")]


def test_gains_are_reckoned_from_the_first_engines_baseline_all_the_same(study: StudyRecord) -> None:
    found = front(study, vllm=(95.0, 2500.0))
    document = front_document(study, found, ())
    (second,) = [standing for standing in document["front"] if standing["trials"] == [1]]
    assert (second["changes"], second["is_baseline"]) == ({}, False)
    assert second["objectives"]["throughput"]["gain"]["center"] == pytest.approx(0.25)


def test_the_plot_marks_both_baselines(study: StudyRecord) -> None:
    plot = front_plot(front(study, vllm=(40.0, 1500.0)))
    assert plot is not None
    assert "".join(plot.splitlines()[:-1]).count("◆") == 2


def test_a_baseline_that_could_not_be_measured_still_tells_what_others_change(study: StudyRecord) -> None:
    start = Candidate.of(study.space, "sglang", {"steps": 1, "graphs": False})
    failed = records.attempt(0, start, records.failed_report(), id=next(_ids), purpose=Purpose.BASELINE)
    other = Candidate.of(study.space, "sglang", {"steps": 4, "graphs": False})
    found = front_of(study.space, [failed, launch(1, other, 90.0, 1900.0, Purpose.SEARCH)])
    assert cells(study, found) == [("1", "sglang: steps=4")]


def test_a_confirmed_configuration_of_the_second_engine_gains_over_the_same_baseline_as_all_others(
    study: StudyRecord,
) -> None:
    found = front(study, vllm=(95.0, 2500.0))
    standings = {standing.trial: standing for standing in (*found.members, *found.beaten)}
    values = {0: (60.0, 2000.0), 1: (96.0, 2400.0), 3: (72.0, 3000.0)}
    arms = []
    for trial, speeds in values.items():
        over_its_own = tuple(Effect(goal.label, 0.5) for goal in found.goals) if trial == 3 else ()
        own = tuple(Estimate(speed, launches=3) for speed in speeds)
        arms.append(ArmResult(standings[trial].candidate, trial, (trial,), {}, 3, 0, own, over_its_own))
    confirmed = Confirmation(tuple(arms), 3, arms[-1], (), 0.02, simulated=True)
    gains = [one.gain for one in numbers_of(found, standings[3], confirmed)]
    assert [gain and gain.ratio for gain in gains] == [pytest.approx(1.2), pytest.approx(1.5)]
