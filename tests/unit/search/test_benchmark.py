"""The search benchmark's own arithmetic, and the points that its problems are matched to."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.problems import full, protocol, small
from benchmarks.problems.disguised import Disguised
from benchmarks.problems.optimum import area
from benchmarks.problems.protocol import ENGINE
from benchmarks.problems.server import ServerProblem
from benchmarks.search import Launch, Run, hypervolume, judge, median_interval, row, share_interval, summary
from benchmarks.search_methods import METHODS
from benchmarks.search_paired import Figures, Study, comparison, read, save

PROBLEMS = Path(protocol.__file__).parent


def test_hypervolume_counts_overlaps_once_and_nothing_below_the_reference() -> None:
    points = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0], [0.5, 9.0], [np.nan, np.nan]])
    assert hypervolume(points, np.array([0.0, 0.0])) == pytest.approx(6.0 + 0.5 * 6.0)
    assert hypervolume(points[:3], np.array([2.5, 0.5])) == pytest.approx(0.25)
    assert area(points[:3], np.zeros(2)) == hypervolume(points[:3], np.zeros(2))


def test_hypervolume_of_three_objectives_is_a_volume() -> None:
    assert hypervolume(np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]]), np.zeros(3)) == pytest.approx(6.0 + 1.0)


def test_a_share_of_all_is_not_certain_and_a_median_may_be_out_of_reach() -> None:
    low, high = share_interval(20, 20)
    assert (round(low, 3), high) == (0.832, 1.0)
    assert median_interval([10.0, 20.0, 30.0, np.inf, np.inf])[1] == np.inf


@pytest.mark.slow
def test_a_family_has_a_problem_of_its_own_for_each_seed() -> None:
    path = PROBLEMS / "drawn.py"
    one, other = protocol.load(path, 0), protocol.load(path, 1)
    assert one.space.knobs_of(ENGINE).keys() != other.space.knobs_of(ENGINE).keys()
    assert one.best_single != other.best_single
    assert protocol.load(path, 0) is one


@pytest.mark.parametrize("seed", [0, 1])
def test_a_disguise_keeps_the_baseline_and_what_fails(seed: int) -> None:
    found, server = Disguised(seed), (small, full)[seed].PROBLEM
    assert found.truth(found.BASELINE)["values"] == pytest.approx(server.truth(server.BASELINE)["values"])
    assert [k["name"] for k in found.KNOBS] != [k["name"] for k in server.KNOBS]
    assert 0 < failing(found) < 1
    assert failing(found) == pytest.approx(failing(server), abs=0.2)


def failing(problem: Disguised | ServerProblem) -> float:
    """The share of random configurations that fail."""
    rng = np.random.default_rng(5)
    drawn = [{k["name"]: k["values"][rng.integers(len(k["values"]))] for k in problem.KNOBS} for _ in range(80)]
    return float(np.mean([problem.truth(assignment)["status"] != "ok" for assignment in drawn]))


def test_coordinate_descent_keeps_what_helps() -> None:
    problem = protocol.load(PROBLEMS / "drawn.py", 0)
    search, rng, lead = METHODS["coordinate-descent"](problem, 0), np.random.default_rng(0), []
    for _ in range(60):
        candidate = search.ask()
        result = problem.evaluate(candidate.values, rng)
        search.tell(result)
        if result["status"] == "ok":
            lead.append(result["values"]["single_stream"])
    assert np.median(lead[30:]) > np.median(lead[:10])


@pytest.mark.slow
def test_the_modelled_server_meets_the_two_known_points() -> None:
    for name in ("small", "full"):
        problem = importlib.import_module(f"benchmarks.problems.{name}").PROBLEM
        quick = {**problem.BASELINE, "proto": "LL", "algo": "Ring", "k": 4}
        assert list(problem.truth(problem.BASELINE)["values"].values()) == pytest.approx([63.6, 2370.0])
        assert list(problem.truth(quick)["values"].values()) == pytest.approx([90.0, 2320.0])
        assert pytest.approx({"small": 94.926, "full": 105.639}[name], abs=1e-3) == problem.BEST_SINGLE


def test_a_study_is_told_by_what_holds_after_each_launch() -> None:
    problem = protocol.load(PROBLEMS / "small.py")
    base = (63.6, 2370.0)
    best = problem.best_single
    truths = [base, (2 * best, 100.0), None, (best / 1.1, base[1]), (best / 1.01, base[1])]
    run = judge(problem, [Launch("hang" if truth is None else "ok", truth, 600.0, 0.1) for truth in truths], 5)
    assert run.launches_to_98 == 5
    assert run.shortfall == pytest.approx([np.log(best / 63.6)] * 3 + [np.log(1.1), np.log(1.01)], abs=1e-3)
    assert run.regret == sorted(run.regret, reverse=True)
    assert list(run.hangs) == [0, 0, 1, 1, 1]


def test_short_studies_say_nothing_of_40_launches() -> None:
    def run(launches: int) -> Run:
        told = [Launch("ok", (63.6, 2370.0), 60.0, 0.001 * n) for n in range(launches)]
        return judge(protocol.load(PROBLEMS / "small.py"), told, launches)

    short = summary([run(20)], 20, [run(100)])
    assert {short[key] for key in ("single_at_40", "hv_regret_at_40", "hangs_at_40")} == {None}
    assert short["ask_s_at_100"] == pytest.approx(0.099)
    assert "– |" in row("tuner", [run(20)], 20)
    whole = summary([run(80)], 80, [run(100)])
    assert (whole["single_at_40"], whole["hangs_at_40"], whole["reached_98"]) == (0.0, 0.0, 0.0)


def test_versions_are_compared_on_the_seeds_that_both_ran(tmp_path: Path) -> None:
    def studies(seeds: range, launches: Sequence[float]) -> dict[Study, Figures]:
        return {Study("small", "tuner", s, 48): Figures(-3.0, 0.2, n) for s, n in zip(seeds, launches, strict=True)}

    save(tmp_path / "before.json", studies(range(4), [30, 40, 35, 49]))
    before = read(tmp_path / "before.json")
    told = comparison(before, studies(range(1, 5), [30, 30, 49, 10])).splitlines()
    assert len(told) == 3
    assert told[-1].startswith("| small | tuner | 3 | +0.000 [+0.000, +0.000], 0 better 0 worse |")
    assert told[-1].endswith("| -5.000 [-17.421, +7.421], 2 better 0 worse |")
