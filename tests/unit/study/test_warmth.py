"""Warm against plain launches of a baseline: told when they differ, silent when not. The truth is known here."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import LaunchKind, Purpose
from tuner.domain.warnings import WarningCode
from tuner.study.warmth import warm_difference

SPACE = Space.model_validate(
    {"name": "toy", "model": "m", "engines": {"simulated": {}}, "knobs": {"steps": {"values": [1, 2], "flag": "--s"}}}
)
BASELINE, OTHER = Candidate("simulated", {"steps": 1}), Candidate("simulated", {"steps": 2})
NOISE = 0.01


def launch(
    trial: int,
    purpose: Purpose,
    single: float,
    kind: LaunchKind,
    candidate: Candidate = BASELINE,
    *,
    between: float | None = None,
) -> AttemptRecord:
    levels = (records.level(1, single), records.level(32, between or 10 * single), records.level(128, 20 * single))
    report = records.measured_report(outcome=Measured(levels, simulated=True))
    return records.attempt(trial, candidate, replace(report, kind=kind), purpose=purpose)


def study(effect: float, seed: int, *, searched: LaunchKind = LaunchKind.WARM) -> list[AttemptRecord]:
    """Four launches of a baseline in the search, three in the confirmation; being warm changes speeds by `effect`."""
    chance = random.Random(seed)
    speeds = [100 * (1 + chance.gauss(0, NOISE)) for _ in range(7)]
    first = [launch(n, Purpose.BASELINE, speed * (1 + effect), searched) for n, speed in enumerate(speeds[:4])]
    later = [launch(n, Purpose.CONFIRM, speed, LaunchKind.PLAIN) for n, speed in enumerate(speeds[4:], start=4)]
    return first + later


def test_a_difference_beyond_noise_is_told_with_its_interval() -> None:
    (caution,) = warm_difference(SPACE, study(-0.10, seed=1))
    assert caution.code is WarningCode.WARM_DIFFERS
    shown = re.search(r"single_stream: \S+ \[(\S+)%, (\S+)%\]", caution.detail)
    assert shown is not None
    assert float(shown[1]) < -10 < float(shown[2]) < 0
    assert "(4 and 3 launches)" in caution.detail
    assert caution.trials == (0, 1, 2, 3)


def test_a_difference_at_a_load_that_is_no_objective_is_told_as_well() -> None:
    first = [launch(n, Purpose.BASELINE, 100.0 + n / 10, LaunchKind.WARM, between=2200.0 + n) for n in range(4)]
    later = [launch(n, Purpose.CONFIRM, 99.6 + n / 10, LaunchKind.PLAIN, between=2000.0 + n) for n in range(4, 7)]
    (caution,) = warm_difference(SPACE, first + later)
    assert "warm against plain output_tok_s at C=32: +9." in caution.detail
    assert "single_stream" not in caution.detail


def test_a_true_difference_is_found_and_no_difference_seldom_told() -> None:
    found = sum(any(warm_difference(SPACE, study(-0.06, seed))) for seed in range(300))
    false = sum(any(warm_difference(SPACE, study(0.0, seed))) for seed in range(300))
    assert found >= 270
    # At most one study in twenty, within what chance allows of 300.
    assert false <= 27


def test_launches_that_fell_back_to_plain_ones_are_no_warm_launches() -> None:
    assert not list(warm_difference(SPACE, study(-0.10, seed=1, searched=LaunchKind.PLAIN)))


def test_a_finalist_that_was_chosen_for_its_luck_accuses_nobody() -> None:
    lucky = [launch(n, Purpose.SEARCH, 120.0 + n / 10, LaunchKind.WARM, OTHER) for n in range(10, 13)]
    honest = [launch(n, Purpose.CONFIRM, 100.0 + n / 10, LaunchKind.PLAIN, OTHER) for n in range(13, 16)]
    assert not list(warm_difference(SPACE, study(0.0, seed=3) + lucky + honest))
