"""What a search is to see of each launch while the machine drifts, and whoever else compares launches over time."""

from __future__ import annotations

import pytest
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.failure_memory import SetAside
from tuner.domain.measurement import Measured, MeasuredInPart
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Outcome, Purpose
from tuner.study.memory import second_chance
from tuner.study.restating import restated

SPACE = Space.model_validate(
    {
        "name": "toy",
        "model": "m",
        "engines": {"simulated": {}},
        "knobs": {"a": {"values": [1, 2, 3], "flag": "--a"}, "b": {"switch": True, "env": "B"}},
        "workload": {"levels": [1, 16]},
        "limits": [
            {"metric": "output_tok_s", "level": 16, "min_of_baseline": 0.9},
            {"metric": "output_tok_s", "level": 1, "min": 45},
        ],
    }
)
RELATIVE, ABSOLUTE = "output_tok_s@16 min", "output_tok_s@1 min"


def launch(when: float, alone: float, loaded: float, *, a: int = 1, purpose: Purpose = Purpose.SEARCH) -> AttemptRecord:
    outcome = Measured((records.level(1, alone), records.level(16, loaded)), simulated=True)
    return ended(when, outcome, a=a, purpose=purpose)


def ended(when: float, outcome: Outcome, *, a: int = 1, purpose: Purpose = Purpose.SEARCH) -> AttemptRecord:
    candidate = Candidate("simulated", {"a": a, "b": False})
    report = records.measured_report(outcome=outcome)
    return records.attempt(int(when), candidate, report, purpose=purpose, started_at=when)


def baselines(speeds: tuple[float, ...]) -> list[AttemptRecord]:
    """Three at the start, then one every ten seconds; alone they are an eighth as fast."""
    first = [launch(when, (400 + when) / 8, 400 + when, purpose=Purpose.BASELINE) for when in (0.0, 1.0, 2.0)]
    later = enumerate(speeds, start=1)
    return [*first, *(launch(10.0 * n, speed / 8, speed, purpose=Purpose.SENTINEL) for n, speed in later)]


SLOWER = baselines((401.0, 280.7, 280.7))
STEADY = baselines((401.0, 400.5, 401.5))


def test_before_anything_drifts_nothing_is_restated() -> None:
    assert restated(SPACE, [*STEADY, launch(15.0, 50.0, 400.0, a=2)]) == {}


def test_a_launch_keeps_its_share_of_the_baseline_of_its_time() -> None:
    early, late = launch(5.0, 55.0, 440.0, a=2), launch(35.0, 38.5, 308.0, a=2)
    seen = restated(SPACE, [*SLOWER, early, late])
    assert seen[5].values == pytest.approx((38.5, 308.0), rel=0.01)
    assert seen[35].values == (38.5, 308.0)
    assert seen[5].violations[RELATIVE] == pytest.approx(seen[35].violations[RELATIVE], abs=0.01)
    assert seen[5].violations[RELATIVE] == pytest.approx(1 - 308 / (0.9 * 280.7), abs=0.01)


def test_an_absolute_limit_is_seen_as_the_launch_would_keep_it_now() -> None:
    early = launch(5.0, 55.0, 440.0, a=2)
    assert restated(SPACE, [*SLOWER, early])[5].violations[ABSOLUTE] == pytest.approx(1 - 38.5 / 45, abs=0.01)


def test_whether_a_limit_was_kept_whose_level_nobody_knows_is_not_told() -> None:
    between = [launch(15.0, 37.5, 300.0, a=2), launch(16.0, 50.0, 400.0, a=3), launch(17.0, 25.0, 200.0, a=3)]
    seen = restated(SPACE, [*SLOWER, *between])
    assert RELATIVE not in seen[15].violations, "broken against the launch before, kept against the one after"
    assert seen[16].violations[RELATIVE] < 0 < seen[17].violations[RELATIVE]
    assert seen[15].doubt[1] > 5 * restated(SPACE, [*SLOWER, launch(35.0, 38.5, 308.0)])[35].doubt[1]


def test_a_launch_that_was_cut_short_is_restated_as_far_as_it_was_measured() -> None:
    part = ended(5.0, MeasuredInPart((records.level(1, 55.0),), simulated=True, reason="beaten"), a=2)
    found = restated(SPACE, [*SLOWER, part])[5]
    assert found.values == (pytest.approx(38.5, rel=0.01), None)
    assert found.violations == {}


def test_values_that_were_set_aside_get_their_second_chance_beside_what_would_be_best_now() -> None:
    early, late = launch(5.0, 51.0, 410.0, a=2), launch(35.0, 40.0, 310.0, a=3)
    aside = SetAside("simulated", (("b", "on"),), FailureClass.UNSUPPORTED, failed=(6, 7), rivals=(5,), chance=0.1)
    chance = second_chance(SPACE, aside, [*SLOWER, early, late])
    assert chance is not None
    assert chance.values == {"a": 3, "b": True}
    on_a_steady_machine = second_chance(SPACE, aside, [*STEADY, early, late])
    assert on_a_steady_machine is not None
    assert on_a_steady_machine.values["a"] == 2
