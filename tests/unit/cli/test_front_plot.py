"""The front as characters."""

from __future__ import annotations

from tuner.cli.front_plot import front_plot
from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front, Standing
from tuner.domain.space import Objective

GOALS = (Objective(level=1, name="single_stream"), Objective(level=128, name="throughput"))


def standing(trial: int, single: float, loaded: float, **changes: object) -> Standing:
    values = (Estimate(single), Estimate(loaded))
    return Standing((trial,), Candidate("simulated", {"a": trial}), values, **changes)  # type: ignore[arg-type]


def test_each_configuration_has_its_mark_and_its_place() -> None:
    slow, fast = standing(0, 60.0, 2400.0, is_baseline=True), standing(1, 90.0, 2300.0)
    beaten, broken = standing(2, 59.0, 2290.0), standing(3, 95.0, 1000.0, broken={"x": 0.5})
    plot = front_plot(Front.of(GOALS, [slow, fast, beaten, broken]))
    assert plot is not None
    lines = plot.splitlines()
    assert lines[0] == "single_stream [tok/s]"
    rows = {mark: next(index for index, line in enumerate(lines) if "│" in line and mark in line) for mark in "●◆·×"}
    assert rows["×"] < rows["●"] < rows["◆"]
    assert "throughput [tok/s]" in lines[-2]


def test_one_objective_or_one_point_is_no_plot() -> None:
    only = standing(0, 60.0, 2400.0)
    assert front_plot(Front.of(GOALS, [only])) is None
    single = Standing((0,), only.candidate, (Estimate(1.0),))
    assert front_plot(Front.of(GOALS[:1], [single, single])) is None
