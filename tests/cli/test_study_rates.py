"""A study whose objective and limit are at rates of arrivals, from space file to `tuner verify`: real processes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from support.commands import tuner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SPACE = Path(__file__).parents[1] / "data" / "spaces" / "rates.yaml"
ALONE, ARRIVALS, LIMIT = "tpot_p50_ms@1", "ttft_p99_ms@12/s", "goodput_s@2/s min"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the finished study `night`."""
    folder = tmp_path_factory.mktemp("rates")
    shutil.copy(SPACE, folder)
    started = tuner(folder, "study", "start", "--space", "rates.yaml", "--name", "night", "--yes")
    assert "measured at C=1 and 2, 12 req/s" in started.stderr
    assert "minimize time to first token (p99) at 12 req/s" in started.stderr
    assert "limit: goodput at 2 req/s ≥ 80 % of the baseline's" in started.stderr
    return folder


def test_the_plan_and_the_space_tell_rates_beside_levels(folder: Path) -> None:
    shown = json.loads(tuner(folder, "space", "show", "rates.yaml", "--json").stdout)
    assert (shown["levels"], shown["rates"]) == ([1], [2, 12])
    assert [(goal["level"], goal["rate"]) for goal in shown["objectives"]] == [(1, None), (None, 12)]
    assert "measured at C=1 and 2, 12 req/s" in tuner(folder, "space", "show", "rates.yaml").stdout


def test_trials_and_front_speak_of_the_rate(folder: Path) -> None:
    trials = json.loads(tuner(folder, "study", "trials", "night", "--json").stdout)["trials"]
    (row,) = [trial["objectives"][ARRIVALS] for trial in trials if trial["trial"] == 0]
    assert (row["metric"], row["level"], row["rate"]) == ("ttft_p99_ms", None, 12)
    assert row["center"] > 0
    assert ARRIVALS in tuner(folder, "study", "trials", "night").stdout
    one = json.loads(tuner(folder, "study", "show", "night", "0", "--json").stdout)
    assert [(level["level"], level["rate"]) for level in one["levels"]] == [(1, None), (None, 2), (None, 12)]
    assert all(level["in_flight"] >= 1 for level in one["levels"] if level["rate"])
    assert "12 req/s" in tuner(folder, "study", "show", "night", "0").stdout
    front = json.loads(tuner(folder, "study", "front", "night", "--json").stdout)
    assert [goal["label"] for goal in front["objectives"]] == [ALONE, ARRIVALS]
    assert set(front["baseline"]["objectives"]) == {ALONE, ARRIVALS}
    assert ARRIVALS in tuner(folder, "study", "front", "night").stdout


def test_a_batch_of_two_waits_under_arrivals_and_is_found_out(folder: Path) -> None:
    """Alone it streams as fast; what arrives twelve times a second queues behind it."""
    trials = json.loads(tuner(folder, "study", "trials", "night", "--json").stdout)["trials"]
    waits: dict[bool, list[float]] = {True: [], False: []}
    for trial in trials:
        found = trial["objectives"][ARRIVALS]
        if found is not None:
            waits[trial["settings"].get("max_running") == 2].append(found["center"])
    assert waits[True], "the search looked at no batch of two"
    assert min(waits[True]) > max(waits[False])


def test_it_is_confirmed_at_the_rate(folder: Path) -> None:
    done = json.loads(tuner(folder, "study", "confirm", "night", "--launches", "2", "--top", "1", "--json").stdout)
    labels = {effect["objective"] for arm in done["arms"] for effect in arm["effects"]}
    assert labels == {ALONE, ARRIVALS}
    assert all(value["center"] is not None for arm in done["arms"] for value in arm["values"])


def test_the_report_draws_and_tabulates_rates(folder: Path) -> None:
    tuner(folder, "study", "report", "night", "-o", "r.html")
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert 'id="figure-arrivals-ttft_p50_ms"' in page
    text = tuner(folder, "study", "report", "night", "--format", "md").stdout
    assert "ttft_p99_ms at 12 req/s" in text
    assert "| baseline |" in text
    assert " | 12 req/s | " in text
    rows = list(csv.DictReader(io.StringIO(tuner(folder, "study", "report", "night", "--format", "csv").stdout)))
    assert {(row["level"], row["rate"]) for row in rows} == {("1", ""), ("", "2.0"), ("", "12.0")}
    tuner(folder, "study", "report", "night", "-o", "r.parquet")
    assert len(pd.read_parquet(folder / "r.parquet").query("rate == 12")) > 0


def test_the_exported_configuration_keeps_its_promise_at_the_rate(folder: Path) -> None:
    tuner(folder, "export", "night", "--pick", "single-stream", "-o", "best.sh")
    assert "ttft_p99_ms at 12 req/s:" in (folder / "best.sh").read_text()
    tuner(folder, "export", "night", "--pick", "single-stream", "--format", "json", "-o", "best.json")
    results = json.loads((folder / "best.json").read_text())["results"]
    assert [(result["level"], result["rate"]) for result in results] == [(1, None), (None, 12)]
    # A busy machine may slow the time-lapsed server down by much.
    verified = json.loads(tuner(folder, "verify", "best.sh", "--tolerance", "0.9", "--json").stdout)
    assert [(check["level"], check["rate"]) for check in verified["checks"]] == [(1, None), (None, 12)]
    assert verified["holds"]
