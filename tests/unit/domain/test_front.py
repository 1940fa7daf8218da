"""The front: who is beaten, who is not, and which one a rule picks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front, Standing, beats, ends_of_load, gain_over
from tuner.domain.measurement import Metric
from tuner.domain.space import Objective
from tuner.errors import NothingFeasible, StudyError

ALONE = Objective(metric=Metric.OUTPUT_TOK_S, level=1)
LOADED = Objective(metric=Metric.OUTPUT_TOK_S, level=128)
LATENCY = Objective(metric=Metric.TTFT_P99_MS, level=128)
GOALS = (ALONE, LOADED)


def near(center: float, half: float | None = None) -> Estimate:
    return Estimate(center) if half is None else Estimate(center, center - half, center + half)


def standing(trial: int, *values: float | Estimate, **changes: object) -> Standing:
    estimates = tuple(v if isinstance(v, Estimate) else near(v) for v in values)
    fields: dict[str, object] = {"trials": (trial,), "candidate": Candidate("e", {"k": trial}), "values": estimates}
    return Standing(**(fields | changes))  # type: ignore[arg-type]


def members(*standings: Standing, goals: tuple[Objective, ...] = GOALS) -> list[int]:
    return [s.trial for s in Front.of(goals, standings).members]


class TestBeating:
    def test_worse_on_everything_is_beaten(self) -> None:
        assert members(standing(1, 60, 2000), standing(2, 90, 2300)) == [2]

    def test_a_trade_off_keeps_both_best_on_the_first_objective_first(self) -> None:
        assert members(standing(1, 60, 2400), standing(2, 90, 2300)) == [2, 1]

    def test_equal_values_keep_both(self) -> None:
        assert members(standing(2, 60, 2000), standing(1, 60, 2000)) == [1, 2]

    def test_differences_within_noise_beat_nobody(self) -> None:
        a, b = standing(1, near(60, 1), near(2000, 50)), standing(2, near(61, 1), near(2030, 50))
        assert members(a, b) == [2, 1]

    def test_one_difference_beyond_noise_is_enough_when_the_others_are_no_worse(self) -> None:
        a, b = standing(1, near(60, 1), near(2000, 50)), standing(2, near(60.2, 1), near(2200, 50))
        assert members(a, b) == [2]

    def test_a_slight_loss_on_one_objective_keeps_it_from_beating(self) -> None:
        a, b = standing(1, near(60, 1), near(2000, 50)), standing(2, near(59.9, 1), near(2200, 50))
        assert members(a, b) == [1, 2]

    def test_noise_of_both_sides_adds_in_squares(self) -> None:
        a = standing(1, near(100, 3), 1.0)
        assert not beats(standing(2, near(104.9, 4), 1.0), a, [True, True])
        assert beats(standing(2, near(105.1, 4), 1.0), a, [True, True])

    def test_lower_latency_is_better(self) -> None:
        goals = (ALONE, LATENCY)
        assert members(standing(1, 60, 900), standing(2, 60, 300), goals=goals) == [2]

    def test_a_configuration_over_a_limit_is_never_a_member_and_beats_nobody(self) -> None:
        fast = standing(2, 99, 9999, broken={"ttft_p99_ms@128 max": 0.2})
        front = Front.of(GOALS, [standing(1, 60, 2000), fast])
        assert [s.trial for s in front.members] == [1]
        assert front.infeasible == (fast,)

    @given(
        st.lists(
            st.tuples(*[st.tuples(st.floats(1, 100), st.floats(0, 5))] * 2),
            min_size=1,
            max_size=12,
        )
    )
    def test_every_study_has_a_front_and_every_outsider_was_beaten(self, drawn: list) -> None:
        standings = [standing(i, *(near(c, h) for c, h in row)) for i, row in enumerate(drawn)]
        front = Front.of(GOALS, standings)
        assert front.members
        assert all(any(beats(other, s, [True, True]) for other in standings) for s in front.beaten)
        assert not any(beats(other, s, [True, True]) for s in front.members for other in standings)
        for index in range(len(GOALS)):  # the best measured value of each objective is never lost
            best = max(s.values[index].center for s in standings)
            assert max(s.values[index].center for s in front.members) == best


class TestPicking:
    FRONT = Front.of(
        (LOADED, ALONE),
        [
            standing(0, 2370, 63.6, is_baseline=True),
            standing(3, 2320, 90.0),
            standing(4, 2000, 91.0),
            standing(5, 2390, 60.0),
            standing(6, 2360, 50.0, trials=(6, 9)),
            standing(7, 3000, 99.0, broken={"x": 1.0}),
        ],
    )

    @pytest.mark.parametrize(
        ("rule", "trial"),
        [("single-stream", 4), ("throughput", 5), ("knee", 3), ("baseline", 0), ("6", 6), ("9", 6), ("7", 7)],
    )
    def test_each_rule_has_its_pick(self, rule: str, trial: int) -> None:
        assert self.FRONT.pick(rule).trial == trial

    def test_the_knee_does_not_depend_on_units(self) -> None:
        goals = (LATENCY, ALONE)
        rows = [standing(1, 100.0, 60.0), standing(2, 130.0, 90.0), standing(3, 400.0, 92.0)]
        thousandth = [standing(s.trial, s.values[0].center / 1000, s.values[1].center) for s in rows]
        assert Front.of(goals, rows).pick("knee").trial == Front.of(goals, thousandth).pick("knee").trial == 2

    def test_an_unknown_rule_lists_the_known_ones(self) -> None:
        with pytest.raises(StudyError, match="no such pick: fastest") as caught:
            self.FRONT.pick("fastest")
        assert caught.value.hint == "choose single-stream, throughput, knee, baseline or a trial number"

    def test_a_trial_without_measurement_cannot_be_picked(self) -> None:
        with pytest.raises(StudyError, match="trial 42 has no measurement") as caught:
            self.FRONT.pick("42")
        assert caught.value.hint == "on the front: 5, 0, 3, 4"

    @pytest.mark.parametrize("rule", ["single-stream", "throughput", "knee"])
    def test_an_empty_front_has_nothing_to_pick(self, rule: str) -> None:
        front = Front.of(GOALS, [standing(1, 1, 1, broken={"x": 1.0})])
        with pytest.raises(NothingFeasible):
            front.pick(rule)

    def test_without_baseline_there_is_none_to_pick(self) -> None:
        with pytest.raises(StudyError, match="the baseline has no measurement"):
            Front.of(GOALS, [standing(1, 1, 1)]).pick("baseline")


class TestGains:
    def test_a_gain_is_a_ratio(self) -> None:
        gain = gain_over(near(90.0), near(60.0))
        assert gain is not None
        assert (gain.ratio, gain.low, gain.high) == (1.5, None, None)

    def test_its_interval_joins_both(self) -> None:
        gain = gain_over(Estimate(100.0, 97.0, 103.0), Estimate(100.0, 96.0, 104.0))
        assert gain is not None
        # About the root of the sum of squares: 3 and 4 per cent give 5.
        assert gain.low == pytest.approx(0.95, abs=0.003)
        assert gain.high == pytest.approx(1.05, abs=0.003)

    def test_an_exact_baseline_leaves_the_own_interval(self) -> None:
        gain = gain_over(Estimate(100.0, 90.0, 120.0), Estimate(50.0, 50.0, 50.0))
        assert gain is not None
        assert (gain.low, gain.high) == (pytest.approx(1.8), pytest.approx(2.4))

    def test_nothing_is_compared_with_zero(self) -> None:
        assert gain_over(near(1.0), near(0.0)) is None

    def test_a_front_without_baseline_has_no_gains(self) -> None:
        front = Front.of(GOALS, [standing(1, 1, 1)])
        assert front.gains(front.members[0]) == (None, None)


class TestPickingBeyondLuck:
    """Launches that were repeated count for more than a single one that shone."""

    AGAIN = Estimate(80.0, 79.0, 81.0, launches=4)
    LOADED_AGAIN = Estimate(2300.0, 2280.0, 2320.0, launches=4)

    def test_one_lucky_launch_does_not_win_over_what_was_launched_again(self) -> None:
        lucky, proven = standing(1, near(85, 9), near(2310, 90)), standing(2, self.AGAIN, self.LOADED_AGAIN)
        front = Front.of(GOALS, [lucky, proven])
        assert [front.pick(rule).trial for rule in ("single-stream", "throughput", "knee")] == [2, 2, 2]

    def test_with_nothing_but_single_launches_the_best_of_them_is_picked(self) -> None:
        base = standing(3, Estimate(60.0, launches=3), Estimate(2400.0, launches=3), is_baseline=True)
        front = Front.of(GOALS, [standing(1, near(85, 9), near(2310, 90)), base])
        assert front.pick("single-stream").trial == 1

    def test_a_trial_can_be_picked_by_number_whatever_its_launches(self) -> None:
        lucky, proven = standing(1, near(85, 9), near(2310, 90)), standing(2, self.AGAIN, self.LOADED_AGAIN)
        assert Front.of(GOALS, [lucky, proven]).pick("1").trial == 1


def goal(metric: Metric = Metric.OUTPUT_TOK_S, **load: float) -> Objective:
    return Objective.model_validate({"metric": metric, **load})


@pytest.mark.parametrize(
    ("goals", "ends"),
    [
        ([goal(level=1), goal(level=128)], (0, 1)),
        ([goal(level=128), goal(level=1), goal(level=8)], (1, 0)),
        ([goal(level=8)], (0, 0)),
        ([goal(Metric.TPOT_P50_MS, level=1), goal(Metric.TTFT_P99_MS, rate=5)], (0, 1)),
        ([goal(Metric.TTFT_P99_MS, rate=5), goal(level=128)], (0, 1)),
        ([goal(level=1), goal(level=128), goal(Metric.TTFT_P99_MS, rate=5)], (0, 1)),
        ([goal(Metric.TTFT_P99_MS, rate=5), goal(Metric.TTFT_P99_MS, rate=1)], (1, 0)),
        ([goal(Metric.TTFT_P99_MS, level=128), goal(level=128)], (0, 1)),
        ([goal(level=128), goal(Metric.TTFT_P99_MS, level=128)], (1, 0)),
    ],
)
def test_lowest_and_highest_load_are_found_among_levels_and_rates(
    goals: list[Objective], ends: tuple[int, int]
) -> None:
    assert ends_of_load(goals) == ends


class TestNothingFeasible:
    def test_it_tells_by_how_much_the_baseline_breaks_its_limits_and_who_comes_closest(self) -> None:
        limit = "output_tok_s@128 min"
        start = standing(0, 60, 2000, is_baseline=True, broken={limit: 0.13})
        near_miss, far = (standing(n, 70, 2100, broken={limit: share}) for n, share in ((3, 0.02), (4, 0.5)))
        error = Front.of(GOALS, [start, near_miss, far]).nothing_feasible()
        assert str(error).endswith("; the baseline itself breaks output_tok_s@128 min by 13.0 %")
        assert error.hint is not None
        assert error.hint.startswith("trial 3 comes closest: it breaks output_tok_s@128 min by 2.0 %; ")

    def test_without_any_launch_there_is_nobody_to_name(self) -> None:
        error = Front.of(GOALS, []).nothing_feasible()
        assert str(error) == "no configuration was measured that keeps every limit"
        assert error.hint == "loosen the limit, or give the search more launches"
