"""From launches to the front: pooling, noise, limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from support import findings, records

from tuner.domain.measurement import Measured, SpreadKind
from tuner.domain.space import Limit, Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose, TrialReport
from tuner.export.base import numbers_of
from tuner.export.standings import front_of
from tuner.export.table import front_csv, front_frame, front_markdown

_ids = itertools.count(1)


def launch(
    trial: int, report: TrialReport | None = None, purpose: Purpose = Purpose.SEARCH, **values: object
) -> AttemptRecord:
    return records.attempt(trial, records.candidate(**values), report, id=next(_ids), purpose=purpose)  # type: ignore[arg-type]


def baseline(trial: int, single: float = 60.0, loaded: float = 2000.0) -> AttemptRecord:
    return launch(trial, records.measured_report(single, loaded), Purpose.BASELINE, decode_steps=1)


@pytest.fixture
def space() -> Space:
    return records.space()


def test_launches_of_one_configuration_are_one_standing(space: Space) -> None:
    launches = [
        launch(trial, records.measured_report(speed), decode_steps=4)
        for trial, speed in ((3, 90.0), (7, 94.0), (8, 91.0))
    ]
    (only,) = front_of(space, launches).members
    assert only.trials == (3, 7, 8)
    assert only.values[0].center == 91.0
    assert only.values[0].launches == 3


def test_failures_and_running_launches_are_no_numbers(space: Space) -> None:
    attempts = [baseline(0), launch(1, records.failed_report(), decode_steps=2), launch(2, None, decode_steps=3)]
    assert [s.trials for s in front_of(space, attempts).members] == [(0,)]


def test_with_one_launch_the_spread_is_the_one_within_it(space: Space) -> None:
    value = front_of(space, [baseline(0)]).members[0].values[0]
    assert (value.low, value.high, value.spread_kind) == (59.0, 61.0, SpreadKind.WITHIN_LAUNCH)


def test_two_launches_that_tell_no_noise_yet_have_an_interval_over_both_of_theirs(space: Space) -> None:
    value = front_of(space, [baseline(0, 50.0), baseline(1, 60.0)]).members[0].values[0]
    assert (value.center, value.low, value.high, value.launches) == (55.0, 49.0, 61.0, 2)


def test_noise_from_launch_to_launch_is_learned_from_repeats_and_holds_for_all(space: Space) -> None:
    repeats = [baseline(trial, single) for trial, single in enumerate((59.0, 60.0, 61.0, 60.0))]
    once = launch(9, records.measured_report(90.0), decode_steps=4)
    front = front_of(space, [*repeats, once])
    assert front.baseline is not None
    four, one = front.baseline.values[0], front.pick("9").values[0]
    assert four.spread_kind is one.spread_kind is SpreadKind.BETWEEN_LAUNCHES
    # sd of the logarithms 0.01361, Student's factor 3.182 at 3 degrees of freedom: 4.3 % for one launch, half for 4.
    assert one.high == pytest.approx(90.0 * 1.0443, rel=1e-3)
    assert four.high == pytest.approx(60.0 * 1.0219, rel=1e-3)


def test_the_baseline_is_that_of_the_first_engine(space: Space) -> None:
    front = front_of(space, [launch(5, records.measured_report(70.0), decode_steps=4), baseline(6)])
    assert front.baseline is not None
    assert front.baseline.trial == 6
    assert [s.is_baseline for s in front.members] == [s.trial == 6 for s in front.members]


def test_limits_relative_to_the_baseline_use_its_median(space: Space) -> None:
    keeps = Limit.model_validate({"metric": "output_tok_s", "level": 128, "min_of_baseline": 0.97})
    strict = space.model_copy(update={"limits": (keeps,)})
    attempts = [
        baseline(0, loaded=2000.0),
        launch(1, records.measured_report(90.0, 1945.0), decode_steps=2),
        launch(2, records.measured_report(95.0, 1935.0), decode_steps=3),
    ]
    front = front_of(strict, attempts)
    assert [s.trial for s in front.infeasible] == [2]
    assert front.infeasible[0].broken == {"output_tok_s@128 min": pytest.approx(1 - 1935 / 1940)}


def test_a_limit_on_a_metric_that_was_not_measured_is_broken(space: Space) -> None:
    limit = Limit.model_validate({"metric": "itl_p99_ms", "level": 128, "max": 50})
    front = front_of(space.model_copy(update={"limits": (limit,)}), [baseline(0)])
    assert front.infeasible[0].broken == {"itl_p99_ms@128 max": 1.0}


def test_a_launch_measured_in_part_has_no_standing(space: Space) -> None:
    part = records.measured_report()
    assert isinstance(part.outcome, Measured)
    cut = replace(part, outcome=replace(part.outcome, levels=part.outcome.levels[:1]))
    assert front_of(space, [launch(1, cut)]).members == ()


class TestTable:
    @pytest.fixture
    def attempts(self) -> list[AttemptRecord]:
        odd = launch(2, records.measured_report(90.0, 2400.0), nccl_proto="a|b\nc", decode_steps=2)
        return [baseline(0), launch(1, records.measured_report(50.0, 1000.0), decode_steps=8), odd]

    def test_every_configuration_has_a_row_members_first(self, space: Space, attempts: list[AttemptRecord]) -> None:
        frame = front_frame(front_of(space, attempts))
        assert list(frame["trials"]) == ["2", "0", "1"]
        assert list(frame["place"]) == ["front", "beaten", "beaten"]
        assert frame["simulated"].all()

    def test_a_gain_is_a_share_with_its_interval_and_the_baseline_has_none(
        self, space: Space, attempts: list[AttemptRecord]
    ) -> None:
        frame = front_frame(front_of(space, attempts))
        faster, baseline, slower = frame["single_stream gain"]
        assert (faster, slower) == (0.5, pytest.approx(50 / 60 - 1))
        assert math.isnan(baseline)
        low, high = frame.loc[0, ["single_stream gain low", "single_stream gain high"]]
        assert 0.4 < low < 0.5 < high < 0.6

    def test_people_read_numbers_as_other_tables_print_them(self, space: Space, attempts: list[AttemptRecord]) -> None:
        fast = launch(3, records.measured_report(80.0, 18270.4), decode_steps=3)
        lines = front_markdown(front_of(space, [*attempts, fast])).splitlines()
        assert "| throughput [tok/s] | throughput launches | throughput gain |" in lines[0]
        (row,) = [line for line in lines if line.startswith("| front | False | 3 |")]
        assert "| 18,270 ±12.0 | 1 | +813.5 % [+808.0 %, +819.1 %] |" in row

    def test_what_was_confirmed_has_the_numbers_of_the_confirmation_alone(self) -> None:
        study, found = findings.findings().study, findings.confirmation()
        front = front_of(study.space, findings.attempts())
        winner = front.pick("5")
        told = {one.goal.label: one for one in numbers_of(front, winner, found)}["single_stream"]
        frame = front_frame(front, found).set_index("trials")
        row = frame.loc["5 7 9 11"]
        assert winner.values[0].launches == 4
        assert (row["confirmed"], row["single_stream launches"]) == (True, 3)
        assert (row["single_stream"], row["single_stream low"]) == (told.estimate.center, told.estimate.low)
        assert told.gain is not None
        assert row["single_stream gain"] == told.gain.ratio - 1
        assert not frame.loc["3", "confirmed"]

    def test_markdown_keeps_its_columns_whatever_the_values(self, space: Space, attempts: list[AttemptRecord]) -> None:
        lines = front_markdown(front_of(space, attempts)).splitlines()
        assert len(lines) == 2 + 3
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1

    def test_csv_holds_every_row_in_full_precision(self, space: Space, attempts: list[AttemptRecord]) -> None:
        import io

        import pandas as pd

        front = front_of(space, attempts)
        from_csv, frame = pd.read_csv(io.StringIO(front_csv(front))), front_frame(front)
        assert list(from_csv["throughput gain high"][[0, 2]]) == list(frame["throughput gain high"][[0, 2]])
        assert list(from_csv.columns) == list(frame.columns)

    def test_a_study_without_measurements_is_an_empty_table(self, space: Space) -> None:
        assert front_csv(front_of(space, [])).strip() == ""
