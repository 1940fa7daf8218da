"""What the launches of a series show, with the baseline's first launches beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured
from tuner.domain.proof import Finding
from tuner.domain.space import Limit, Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import LaunchKind, Purpose
from tuner.study.confirm import confirmation_of

SPACE = Space.model_validate(
    {"name": "toy", "model": "m", "engines": {"simulated": {}}, "knobs": {"steps": {"values": [1, 2], "flag": "--s"}}}
)
BASELINE, OTHER = Candidate("simulated", {"steps": 1}), Candidate("simulated", {"steps": 2})
FIRST = (31.1, 31.5, 32.6)
ROUNDS = {1: (32.1, 38.7), 2: (32.5, 46.7)}


def launch(trial: int, candidate: Candidate, speed: float, **changes: object) -> AttemptRecord:
    levels = (records.level(1, speed), records.level(128, 20 * speed))
    kind = changes.pop("kind", LaunchKind.PLAIN)
    report = records.measured_report(outcome=Measured(levels, simulated=True), kind=kind)
    return records.attempt(trial, candidate, report, **changes)


def study(first: LaunchKind = LaunchKind.PLAIN) -> list[AttemptRecord]:
    found = [launch(n, BASELINE, speed, purpose=Purpose.BASELINE, kind=first) for n, speed in enumerate(FIRST)]
    found.append(launch(3, OTHER, 46.6))
    for block, (base, other) in ROUNDS.items():
        for candidate, speed in ((BASELINE, base), (OTHER, other)):
            found.append(launch(len(found), candidate, speed, purpose=Purpose.CONFIRM, block=block))
    return found


def effect_of(attempts: list[AttemptRecord]) -> tuple[float, float, Finding]:
    """Estimate, half width and verdict of the second configuration on the first objective, in logarithms."""
    found = confirmation_of(SPACE, attempts, {"simulated": BASELINE})
    assert found is not None
    effect = found.arms[1].effects[0]
    assert effect.change is not None
    assert effect.low is not None
    assert effect.high is not None
    return math.log1p(effect.change), (math.log1p(effect.high) - math.log1p(effect.low)) / 2, effect.finding


def test_the_baselines_first_launches_tell_the_noise_of_two_rounds_and_not_the_effect() -> None:
    estimate, half, finding = effect_of(study())
    differences = [math.log(other / base) for base, other in ROUNDS.values()]
    assert estimate == pytest.approx(np.mean(differences))
    scatter = np.var(differences, ddof=1) / 2 + 2 * np.var(np.log(FIRST), ddof=1)
    assert half == pytest.approx(3.182446 * math.sqrt(scatter / 3), rel=1e-5)  # t at 97.5 %, 1 + 2 degrees of freedom
    assert finding is Finding.FASTER


def test_warm_launches_tell_nothing_of_plain_ones() -> None:
    estimate, half, finding = effect_of(study(LaunchKind.WARM))
    assert estimate == pytest.approx(effect_of(study())[0])
    assert half > 1
    assert finding is Finding.NOISE


def test_values_of_whole_rounds_stand_in_the_ratio_that_the_effect_says() -> None:
    found = confirmation_of(SPACE, study(), {"simulated": BASELINE})
    assert found is not None
    base, other = (arm.values[0] for arm in found.arms)
    assert base is not None
    assert other is not None
    assert found.arms[1].effects[0].change == pytest.approx(other.center / base.center - 1)
    assert base.center == pytest.approx(math.sqrt(32.1 * 32.5))


def test_a_limit_is_judged_by_the_same_means_that_are_told() -> None:
    space = SPACE.model_copy(
        update={"limits": (Limit.model_validate({"metric": "output_tok_s", "level": 1, "min_of_baseline": 0.95}),)}
    )
    speeds = ((BASELINE, (11399, 9674, 11467)), (OTHER, (9700, 10028, 12800)))
    rounds = [
        launch(2 * block + turn, candidate, values[block], purpose=Purpose.CONFIRM, block=block)
        for block in range(3)
        for turn, (candidate, values) in enumerate(speeds)
    ]
    found = confirmation_of(
        space, [launch(9, BASELINE, 11000, purpose=Purpose.BASELINE), *rounds], {"simulated": BASELINE}
    )
    assert found is not None
    base, other = found.arms
    assert other.values[0] is not None
    assert base.values[0] is not None
    assert other.values[0].center / base.values[0].center == pytest.approx(0.9948, abs=1e-4)
    assert other.broken == {}, "the median launch has 12 % less than the baseline's, the mean half a percent"


def test_the_interval_of_a_number_holds_the_launches_that_it_is_made_of() -> None:
    found = confirmation_of(SPACE, study(LaunchKind.WARM), {"simulated": BASELINE})
    assert found is not None
    for arm, speeds in zip(found.arms, zip(*ROUNDS.values(), strict=True), strict=True):
        value = arm.values[0]
        assert value is not None
        assert value.low is not None
        assert value.high is not None
        assert value.low < min(speeds) < max(speeds) < value.high
