"""Statistics of interleaved launches, against known distributions and scipy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tuner.study.inference import Contrast, Launch, Rounds, holm

ARMS = ("base", "x", "y", "z")
PROOF_PAGE = Path(__file__).parents[3] / "docs" / "proof.md"


def series(
    rng: np.random.Generator, rounds: int, *, noise: float = 0.01, drift: float = 0.0, **effects: float
) -> Rounds:
    return Rounds(
        [
            Launch(arm, block, 100.0 * math.exp(effects.get(arm, 0.0) - drift * block + rng.normal(0.0, noise)))
            for block in range(rounds)
            for arm in ARMS
        ]
    )


def test_the_interval_covers_the_truth_in_95_of_100_series_whatever_drifts() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1500):
        contrast = series(rng, 3, drift=0.03, x=0.05).contrast("x", "base")
        assert contrast is not None
        interval = contrast.interval()
        assert interval is not None
        hits += interval.contains(math.expm1(0.05))
    low, high = stats.binom.ppf([0.0005, 0.9995], 1500, 0.95)
    assert low <= hits <= high


def test_equal_arms_are_called_different_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(2)
    p_values = [c.p_value for _ in range(1500) if (c := series(rng, 3).contrast("x", "base")) is not None]
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_without_holes_the_estimate_is_the_mean_of_the_differences_within_rounds() -> None:
    rounds = series(np.random.default_rng(3), 5)
    value = {(launch.arm, launch.block): math.log(launch.value) for launch in rounds.launches}
    differences = [value["x", block] - value["base", block] for block in range(5)]
    contrast = rounds.contrast("x", "base")
    assert contrast is not None
    assert contrast.estimate == pytest.approx(np.mean(differences))
    assert contrast.df == (5 - 1) * (len(ARMS) - 1)


def test_with_two_arms_it_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(4)
    logs = rng.normal(0.0, 0.02, (2, 6))
    rows = [Launch(arm, block, math.exp(logs[i, block])) for i, arm in enumerate("ab") for block in range(6)]
    contrast = Rounds(rows).contrast("a", "b")
    assert contrast is not None
    assert contrast.p_value == pytest.approx(stats.ttest_rel(logs[0], logs[1]).pvalue)


def test_a_launch_that_failed_leaves_a_hole_and_no_bias() -> None:
    effects = {"base": 0.0, "x": 0.1, "y": -0.05}
    rows = [
        Launch(arm, block, math.exp(effect - 0.5 * block))
        for block in range(3)
        for arm, effect in effects.items()
        if (arm, block) != ("x", 2)
    ]
    contrast = Rounds(rows).contrast("x", "base")
    assert contrast is not None
    assert contrast.estimate == pytest.approx(0.1)
    assert Rounds(rows).together("x", "base") == 2


def test_arms_that_no_round_links_are_not_compared() -> None:
    rounds = Rounds([Launch("a", 1, 1.0), Launch("b", 2, 2.0)])
    assert rounds.contrast("a", "b") is None
    assert rounds.contrast("a", "never launched") is None


def test_arms_that_a_third_one_links_are_compared() -> None:
    rows = [Launch("a", 1, 2.0), Launch("c", 1, 1.0), Launch("b", 2, 3.0), Launch("c", 2, 1.0)]
    contrast = Rounds(rows).contrast("a", "b")
    assert contrast is not None
    assert contrast.estimate == pytest.approx(math.log(2 / 3))


def test_one_round_gives_an_estimate_without_interval() -> None:
    contrast = Rounds([Launch("a", 1, 1.1), Launch("b", 1, 1.0)]).contrast("a", "b")
    assert contrast is not None
    assert contrast.estimate == pytest.approx(math.log(1.1))
    assert (contrast.interval(), contrast.chance_above, contrast.smallest, contrast.p_value) == (None, None, None, 1.0)


def test_launches_outside_the_rounds_tell_the_noise_and_nothing_else() -> None:
    rows = [Launch("a", 1, 1.1), Launch("b", 1, 1.0), Launch("a", 2, 1.3), Launch("b", 2, 1.0)]
    logs = [math.log(1.1), math.log(1.3)]
    group = [2.0, 2.1, 1.9]
    alone, helped = Rounds(rows).contrast("a", "b"), Rounds(rows, [group, [5.0]]).contrast("a", "b")
    assert alone is not None
    assert helped is not None
    assert helped.estimate == pytest.approx(alone.estimate)
    assert (alone.df, helped.df) == (1, 3)
    residuals = 2 * 2 * ((logs[1] - logs[0]) / 4) ** 2
    pooled = (residuals + 2 * np.var(np.log(group), ddof=1)) / 3
    assert helped.error == pytest.approx(math.sqrt(pooled * 2 / 2))


def test_the_interval_with_launches_outside_the_rounds_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(1500):
        values = {
            (arm, block): 100 * math.exp(effect + 0.05 * block + rng.normal(0.0, 0.02))
            for block in range(2)
            for arm, effect in {"base": 0.0, "x": 0.1}.items()
        }
        rows = [Launch(arm, block, value) for (arm, block), value in values.items()]
        contrast = Rounds(rows, [np.exp(rng.normal(5.0, 0.02, 3)).tolist()]).contrast("x", "base")
        assert contrast is not None
        interval = contrast.interval()
        assert interval is not None
        hits += interval.contains(math.expm1(0.1))
    low, high = stats.binom.ppf([0.0005, 0.9995], 1500, 0.95)
    assert low <= hits <= high


def test_values_that_have_no_logarithm_are_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        Rounds([Launch("a", 1, 0.0)])


@pytest.mark.parametrize(("df", "error"), [(4, 0.01), (12, 0.005), (60, 0.02)])
def test_the_smallest_gain_is_the_one_that_shows_in_four_of_five_series(df: int, error: float) -> None:
    smallest = Contrast(0.0, error, df).smallest
    assert smallest is not None
    shift = math.log1p(smallest) / error
    critical = stats.t.ppf(0.975, df)
    power = stats.nct.sf(critical, df, shift) + stats.nct.cdf(-critical, df, shift)
    assert power == pytest.approx(0.8, abs=0.03)


def test_the_manual_says_how_many_launches_tell_two_of_four_configurations_apart() -> None:
    lines = PROOF_PAGE.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith(("| deviation from", "| launches each"))]
    deviations, told = ([cell.strip() for cell in line.split("|")[2:-1]] for line in table)

    def needed(deviation: float) -> int:
        contrasts = ((n, Contrast(0.0, deviation * math.sqrt(2 / n), 3 * (n - 1))) for n in range(2, 100))
        return next(n for n, contrast in contrasts if contrast.smallest is not None and contrast.smallest <= 0.02)

    assert deviations
    assert [needed(float(share.removesuffix(" %")) / 100) for share in deviations] == [int(count) for count in told]


def test_holm_steps_down_and_never_orders_otherwise() -> None:
    # The example of Holm's procedure with four tests: 0.005·4, 0.01·3, then 0.03·2, and 0.04 raised to it.
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"only": 0.6}) == {"only": 0.6}
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_the_interval_of_a_level_covers_the_next_rounds_too_whether_rounds_differ_or_not() -> None:
    rng = np.random.default_rng(8)
    for luck in (0.0, 0.01, 0.03):
        hits = 0
        for _ in range(600):
            shared = rng.normal(0.0, luck, 3)
            rows = [Launch(arm, i, math.exp(shared[i] + rng.normal(0.0, 0.01))) for arm in ARMS[:2] for i in range(3)]
            error = Rounds(rows).level_error(3)
            assert error is not None
            hits += abs(float(np.mean([math.log(row.value) for row in rows if row.arm == "base"]))) <= error
        assert 0.92 <= hits / 600 <= 0.99


def test_the_interval_of_a_level_is_that_of_its_launches_and_not_of_differences() -> None:
    speeds = {"base": (279.1, 278.3, 277.7), "x": (301.7, 301.4, 300.3)}
    rounds = Rounds([Launch(arm, i, value) for arm, values in speeds.items() for i, value in enumerate(values)])
    error, contrast = rounds.level_error(3), rounds.contrast("x", "base")
    assert error is not None
    assert contrast is not None
    assert contrast.error < error / 3, "rounds move both arms alike"
    alone = [stats.t.ppf(0.975, 2) * np.std(np.log(values), ddof=1) / math.sqrt(3) for values in speeds.values()]
    assert error == pytest.approx(np.mean(alone), rel=0.1), "nearly all the scatter is the rounds', seen but once"


def test_a_single_round_tells_nothing_of_levels_but_what_replicates_say() -> None:
    rows = [Launch("base", 0, 100.0), Launch("x", 0, 110.0)]
    assert Rounds(rows).level_error(1) is None
    error = Rounds(rows, [[99.0, 100.0, 101.0]]).level_error(1)
    assert error == pytest.approx(stats.t.ppf(0.975, 2) * np.std(np.log([99.0, 100.0, 101.0]), ddof=1))
