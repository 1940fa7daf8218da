"""Numbers at rates of arrivals stand beside those at levels in everything that is written out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support import exports, findings, records

from tuner.domain.front import Estimate, Front
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Measured, Metric
from tuner.domain.space import Objective, Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.export.base import Number
from tuner.export.bench import bench_csv, write_parquet
from tuner.export.manifest import manifest
from tuner.export.measurement_table import measurements_csv
from tuner.export.report import Findings, report_of
from tuner.export.report_formats import report_html, report_markdown
from tuner.export.standings import estimates_by_load, front_of, launches_by_candidate
from tuner.export.table import front_csv

WANTED = {
    "workload": {"levels": [1, 128], "rates": [2, 5]},
    "objectives": [{"level": 1}, {"metric": "ttft_p99_ms", "rate": 5}],
    "limits": [{"metric": "ttft_p99_ms", "rate": 2, "max": 90}],
}


@pytest.fixture
def space() -> Space:
    return Space.model_validate({**records.space().model_dump(by_alias=True), **WANTED})


def launch(trial: int, single: float, waits: tuple[float, float], *, steps: int) -> AttemptRecord:
    levels = (records.level(1, single), records.level(128, 2000.0))
    rates = (records.at_rate(2, waits[0]), records.at_rate(5, waits[1]))
    return records.attempt(
        trial,
        records.candidate(decode_steps=steps),
        records.measured_report(outcome=Measured((*levels, *rates), simulated=True)),
        purpose=Purpose.BASELINE if steps == 1 else Purpose.SEARCH,
    )


@pytest.fixture
def attempts() -> list[AttemptRecord]:
    return [
        launch(0, 60.0, (80.0, 400.0), steps=1),
        launch(1, 80.0, (85.0, 450.0), steps=2),
        launch(2, 70.0, (95.0, 100.0), steps=4),
        launch(3, 55.0, (85.0, 500.0), steps=8),
    ]


@pytest.fixture
def front(space: Space, attempts: list[AttemptRecord]) -> Front:
    return front_of(space, attempts)


def test_the_front_trades_what_was_asked_at_a_level_against_what_was_asked_at_a_rate(front: Front) -> None:
    assert [s.trial for s in front.members] == [1, 0]
    assert [value.center for value in front.members[0].values] == [80.0, 450.0]
    assert [s.trial for s in front.beaten] == [3]


def test_a_limit_at_a_rate_keeps_what_breaks_it_off_the_front(front: Front) -> None:
    (over,) = front.infeasible
    assert (over.trial, over.broken) == (2, {"ttft_p99_ms@2/s max": pytest.approx(5 / 90)})


def test_picks_take_the_single_stream_for_the_lowest_load_and_the_rate_for_the_highest(front: Front) -> None:
    assert (front.pick("single-stream").trial, front.pick("throughput").trial) == (1, 0)


def test_the_fronts_table_has_a_column_for_each(front: Front) -> None:
    header = front_csv(front).splitlines()[0]
    assert ",output_tok_s@1," in header
    assert ",ttft_p99_ms@5/s," in header


def test_estimates_come_in_the_order_of_loads_levels_before_rates(attempts: list[AttemptRecord]) -> None:
    found = estimates_by_load(attempts[:1], Metric.TTFT_P99_MS, launches_by_candidate(attempts))
    assert [str(load) for load in found] == ["C=1", "C=128", "2 req/s", "5 req/s"]
    assert found[LoadPoint(rate=5)].center == pytest.approx(400.0)


def test_the_report_tells_rates_in_words_tables_and_drawings_of_their_own(
    space: Space, attempts: list[AttemptRecord]
) -> None:
    found = Findings(replace(findings.findings().study, space=space), attempts)
    assert [line.unit for line in report_of(found).headlines] == [
        "tok/s (output_tok_s at C=1)",
        "ms (ttft_p99_ms at 5 req/s)",
    ]
    assert "| 5 req/s | 640" in report_markdown(found)
    page = report_html(found)
    assert 'id="figure-load-output_tok_s"' in page
    assert 'id="figure-arrivals-output_tok_s"' in page


def test_without_rates_there_is_no_drawing_of_arrivals() -> None:
    assert "figure-arrivals" not in report_html(findings.findings())


def test_long_tables_have_whole_levels_and_rates(attempts: list[AttemptRecord]) -> None:
    rows = list(csv.DictReader(io.StringIO(measurements_csv(attempts, ()).decode())))
    assert {(row["level"], row["rate"]) for row in rows} == {("1", ""), ("128", ""), ("", "2"), ("", "5")}


def test_a_benchs_tables_tell_how_many_requests_were_in_flight_at_a_rate(tmp_path: Path) -> None:
    levels = (records.level(8, 300.0), records.at_rate(5, 400.0))
    rows = list(csv.DictReader(io.StringIO(bench_csv(levels))))
    assert {(row["level"], row["rate"], row["in_flight"]) for row in rows} == {("8", "", ""), ("", "5", "9")}
    write_parquet(levels, tmp_path / "b.parquet")
    frame = pd.read_parquet(tmp_path / "b.parquet")
    assert frame["level"].dropna().unique().tolist() == [8]


def test_an_export_names_the_rate_for_people_and_programs() -> None:
    number = Number(Objective(metric=Metric.TTFT_P99_MS, rate=5), Estimate(400.0), None)
    assert str(number).startswith("ttft_p99_ms at 5 req/s: 400")
    export = exports.export(numbers=(number,))
    (result,) = json.loads(manifest(export))["results"]
    assert (result["level"], result["rate"]) == (None, 5.0)
    assert [str(found.load) for found in export.recorded.numbers] == ["5 req/s"]
