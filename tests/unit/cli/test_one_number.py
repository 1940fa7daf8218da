"""A confirmed configuration is told by one number everywhere: that of the confirmation's own launches."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from support.commands import Run, runner, store_night

from tuner.cli.front_view import conclude
from tuner.domain.study import StudyState
from tuner.domain.warnings import WarningCode
from tuner.store import open_store
from tuner.study.agenda import StudyEnd


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands where the confirmed study `night` is stored."""
    store_night(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def numbers(line: str) -> list[str]:
    """What stands in a line as `90.0 ±0.3` or `+41.5 % [+40.5, +42.5]`."""
    return re.findall(r"[\d.,]+ ±[\d.]+|[+-][\d.]+ % \[[^]]+\]", line)


def test_the_front_tells_a_confirmed_configuration_as_the_confirmation_does(tuner: Run) -> None:
    front, proof = tuner("study", "front", "night").out, tuner("study", "confirm", "night", "--dry-run").out
    for trials, trial in (("5, 7, 9, 11", "5"), ("0, 1, 6, 8, 10", "0")):
        (row,) = [line for line in front.splitlines() if line.strip().startswith(trials)]
        (arm,) = [line for line in proof.splitlines() if re.match(rf"\s*{trial} +3 \(", line)]
        assert "3 to confirm" in row
        assert numbers(row) == numbers(arm) != []
    assert "the numbers of its launches `to confirm` alone" in front


def test_a_table_of_the_front_tells_it_as_the_confirmation_does(tuner: Run) -> None:
    arms = json.loads(tuner("study", "confirm", "night", "--dry-run", "--json").out)["arms"]
    rows = {row["trials"]: row for row in csv.DictReader(tuner("export", "night", "--format", "csv").out.splitlines())}
    (arm,) = [arm for arm in arms if arm["trial"] == 5]
    row = rows["5 7 9 11"]
    for value, effect in zip(arm["values"], arm["effects"], strict=True):
        label = value["objective"]
        assert float(row[label]) == pytest.approx(value["center"])
        assert float(row[f"{label} high"]) == pytest.approx(value["high"])
        assert int(row[f"{label} launches"]) == value["launches"] == 3
        assert float(row[f"{label} gain"]) == pytest.approx(effect["change"])
        assert float(row[f"{label} gain low"]) == pytest.approx(effect["low"])


def test_a_study_ends_with_one_result_of_its_chosen_configuration(
    tuner: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "night" / "5" / "1"
    folder.mkdir(parents=True)
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        conclude(store, "night", StudyEnd(StudyState.FINISHED, "done"), as_json=False)
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if "to confirm" in line and "nccl_proto=LL" in line)
    told = [numbers(line) for line in shown.splitlines() if "of the confirmation)" in line]
    assert [one for line in told for one in line] == numbers(row) != []


def test_a_study_ends_with_what_is_to_be_done_and_leaves_remarks_to_the_front(
    tuner: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "night" / "5" / "1").mkdir(parents=True)
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        conclude(store, "night", StudyEnd(StudyState.FINISHED, "done"), as_json=False)
    at_end, on_demand = capsys.readouterr().out, tuner("study", "front", "night").out
    assert WarningCode.OUTLIERS.meaning in on_demand
    assert WarningCode.OUTLIERS.meaning not in at_end
    assert "1 remark on single measurements: tuner study front night" in at_end
    to_do = [line for line in on_demand.splitlines() if line.startswith("warning: ") and "far off" not in line]
    assert [line for line in at_end.splitlines() if line.startswith("warning: ")] == to_do != []


def test_programs_get_both_each_under_a_name_of_its_own(tuner: Run) -> None:
    document = json.loads(tuner("study", "front", "night", "--json").out)
    standings = {tuple(s["trials"]): s for s in (*document["front"], *document["beaten"])}
    winner, other = standings[5, 7, 9, 11], standings[3,]
    assert winner["objectives"]["single_stream"]["launches"] == 4
    assert winner["confirmed"]["single_stream"]["launches"] == 3
    assert winner["confirmed"]["single_stream"]["gain"]["center"] > 0.4
    assert other["confirmed"] is None
