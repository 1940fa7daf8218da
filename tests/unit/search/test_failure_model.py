"""Who is to blame for a failed launch."""

from __future__ import annotations

import numpy as np
from support.search_spaces import failed, history, lattice, scored

from tuner.domain.outcome import FailureClass
from tuner.search.failure_model import CHANCE, FailureModel
from tuner.search.history import Observation
from tuner.search.lattice import Points

GRID = lattice()
NAMES = [axis.name for axis in GRID.axes]


def at(**values: int) -> Points:
    """The baseline with some knobs at other indices."""
    point = GRID.baseline.copy()
    for name, index in values.items():
        point[NAMES.index(name)] = index
    return GRID.canonical(point[None])[0]


def model(*observations: Observation) -> FailureModel:
    return FailureModel(GRID, history(GRID, observations), failure_seconds=200.0)


def chance(of: FailureModel, point: Points) -> float:
    return float(of.assess(point[None]).chance[0])


def test_without_failures_only_untried_values_carry_risk() -> None:
    calm = model(scored(0, GRID.baseline, (0, 0)))
    assert chance(calm, GRID.baseline) == CHANCE
    assert CHANCE < chance(calm, at(backend=1)) < 0.2


def test_a_value_that_failed_twice_and_never_worked_is_blamed() -> None:
    seen = model(scored(0, GRID.baseline, (0, 0)), failed(1, at(backend=1)), failed(2, at(backend=1, steps=3)))
    assert chance(seen, at(backend=1, fraction=4)) > 0.7
    assert chance(seen, at(fraction=4)) < 0.2
    assert any("backend == flashinfer" in rule for rule in seen.suspects(at(backend=1)))


def test_one_failure_alone_condemns_nothing() -> None:
    seen = model(scored(0, GRID.baseline, (0, 0)), failed(1, at(backend=1)))
    risk = seen.assess(at(backend=1, fraction=4)[None])
    assert risk.witnesses[0] <= 1


def test_running_out_of_memory_is_hardly_ever_put_down_to_chance() -> None:
    def after(failure: FailureClass) -> float:
        tried = (scored(0, GRID.baseline, (0, 0)), failed(1, at(fraction=5, steps=2), failure, 60))
        return chance(model(*tried), at(fraction=5, steps=2, channels=2))

    assert after(FailureClass.OOM_RUNTIME) > after(FailureClass.CUDA_FAULT) + 0.1


def test_a_success_lets_a_value_off() -> None:
    before = (scored(0, GRID.baseline, (0, 0)), failed(1, at(backend=1)), failed(2, at(backend=1, steps=3)))
    after = (*before, scored(3, at(backend=1, graph=0), (0, 0)))
    assert chance(model(*after), at(backend=1, graph=0, steps=5)) < 0.5
    assert chance(model(*after), at(backend=1, steps=2)) > 0.4, "the pair with graph=on is what is left to blame"


def test_a_pair_of_innocent_values_can_be_guilty_together() -> None:
    seen = model(
        scored(0, GRID.baseline, (0, 0)), scored(1, at(backend=2), (0, 0)), scored(2, at(steps=7), (0, 0)),
        failed(3, at(backend=2, steps=7)), failed(4, at(backend=2, steps=7, fraction=4)),
        failed(5, at(backend=2, steps=6)),
    )  # fmt: skip
    assert chance(seen, at(backend=2, steps=7, channels=3)) > 0.5
    assert chance(seen, at(backend=2)) < 0.3


def test_an_edge_on_a_scale_is_found() -> None:
    seen = model(
        scored(0, GRID.baseline, (0, 0)), scored(1, at(fraction=3), (0, 0)),
        failed(2, at(fraction=5), FailureClass.OOM_RUNTIME, 60), failed(3, at(fraction=5, steps=2), seconds=60),
    )  # fmt: skip
    assert chance(seen, at(fraction=5, steps=6)) > 0.5
    assert chance(seen, at(fraction=1)) < 0.3


def test_an_inactive_knob_is_never_blamed() -> None:
    seen = model(scored(0, GRID.baseline, (0, 0)), failed(1, at(graph=0)), failed(2, at(graph=0, steps=2)))
    assert not any("graph_size" in rule for rule in seen.suspects(at(graph=0)))


def test_the_cost_of_failing_is_that_of_the_likeliest_cause() -> None:
    seen = model(
        scored(0, GRID.baseline, (0, 0)),
        failed(1, at(backend=1), seconds=600), failed(2, at(backend=1, steps=3), seconds=600),
        failed(3, at(fraction=5), seconds=50), failed(4, at(fraction=5, steps=3), seconds=50),
    )  # fmt: skip
    risk = seen.assess(np.stack([at(backend=1, channels=2), at(fraction=5, channels=2)]))
    assert risk.seconds.tolist() == [600, 50]


def test_when_everything_failed_nothing_breaks() -> None:
    seen = model(failed(0, GRID.baseline), failed(1, at(backend=1)))
    assert np.isfinite(seen.assess(np.stack([at(steps=2), at(backend=2)])).chance).all()


def test_between_what_worked_and_what_failed_an_edge_may_lie_anywhere() -> None:
    out_of_memory = FailureClass.OOM_RUNTIME
    seen = model(
        scored(0, GRID.baseline, (0, 0)),
        failed(1, at(fraction=5), out_of_memory, 60), failed(2, at(fraction=5, steps=2), out_of_memory, 60),
    )  # fmt: skip
    chances = [chance(seen, at(fraction=index, steps=6)) for index in (2, 3, 4, 5)]
    assert chances == sorted(chances)
    assert chances[0] < 0.2 < chances[1] < chances[2] < chances[3]


def test_a_pair_of_categories_that_failed_twice_in_different_company_is_suspect() -> None:
    seen = model(
        scored(0, GRID.baseline, (0, 0)), scored(1, at(backend=2), (0, 0)), scored(2, at(channels=1), (0, 0)),
        scored(3, at(graph=0, steps=3), (0, 0)),
        failed(4, at(backend=2, graph=0, steps=4)), failed(5, at(backend=2, graph=0, channels=3)),
    )  # fmt: skip
    assert chance(seen, at(backend=2, graph=0, fraction=1)) > 0.5
    assert chance(seen, at(backend=2, fraction=1)) < 0.3
