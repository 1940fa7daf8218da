"""A space's goals and limits, and how it hands out knobs and rules."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tuner.domain.measurement import Metric
from tuner.domain.space import Limit, Objective, Space


def space(**fields: Any) -> Space:
    return Space.model_validate({"name": "t", "model": "m", "engines": {"e": {}}} | fields)


def test_without_objectives_the_lowest_and_highest_level_are_optimised() -> None:
    goals = space(workload={"levels": [1, 8, 64]}).goals
    assert [(goal.label, goal.level, goal.metric) for goal in goals] == [
        ("single_stream", 1, Metric.OUTPUT_TOK_S),
        ("throughput", 64, Metric.OUTPUT_TOK_S),
    ]


def test_one_level_gives_one_goal() -> None:
    assert len(space(workload={"levels": [4]}).goals) == 1


def test_rates_go_up_and_latencies_down() -> None:
    assert Objective(level=1).maximize
    assert not Objective(level=1, metric=Metric.TTFT_P99_MS).maximize
    assert Objective(level=1, metric=Metric.TTFT_P99_MS).label == "ttft_p99_ms@1"


@pytest.mark.parametrize(
    ("bound", "measured", "baseline", "violation"),
    [
        ({"max": 200}, 250, None, 0.25),
        ({"max": 200}, 150, None, -0.25),
        ({"min": 200}, 150, None, 0.25),
        ({"min": 200}, 250, None, -0.25),
        ({"min_of_baseline": 0.5}, 40, 100, 0.2),
        ({"max_of_baseline": 2.0}, 150, 100, -0.25),
        ({"min_of_baseline": 0.97}, 10, None, 0.0),
    ],
)
def test_a_limit_tells_by_what_share_it_is_broken(
    bound: dict[str, float], measured: float, baseline: float | None, violation: float
) -> None:
    limit = Limit.model_validate({"metric": "output_tok_s", "level": 1} | bound)
    assert limit.violation(measured, baseline) == pytest.approx(violation)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (
            {"metric": "output_tok_s", "level": 16, "min_of_baseline": 0.97},
            "output token throughput at C=16 ≥ 97 % of the baseline's",
        ),
        ({"metric": "ttft_p99_ms", "level": 128, "max": 4000}, "time to first token (p99) at C=128 ≤ 4,000 ms"),
        (
            {"metric": "e2e_p50_ms", "level": 1, "max_of_baseline": 1.05},
            "time to the whole answer (median) at C=1 ≤ 105 % of the baseline's",
        ),
        ({"metric": "goodput_s", "level": 8, "min": 2.5}, "goodput at C=8 ≥ 2.5 req/s"),
    ],
)
def test_a_limit_says_in_words_what_it_asks_for(limit: dict[str, Any], words: str) -> None:
    assert Limit.model_validate(limit).words == words


def test_every_metric_has_words_of_its_own() -> None:
    assert len({metric.words for metric in Metric}) == len(Metric)


@pytest.mark.parametrize("bounds", [{}, {"max": 1, "min": 0}, {"max": 1, "max_of_baseline": 2}])
def test_a_limit_has_exactly_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        Limit.model_validate({"metric": "output_tok_s", "level": 1} | bounds)


def test_objectives_are_four_at_most_and_differ() -> None:
    levels = [1, 2, 3, 4, 5]
    with pytest.raises(ValidationError):
        space(workload={"levels": levels}, objectives=[{"level": level} for level in levels])
    with pytest.raises(ValidationError, match="second objective"):
        space(objectives=[{"level": 1}, {"level": 1}])
    space(objectives=[{"level": 1}, {"level": 1, "name": "again"}])


def test_levels_must_be_measured() -> None:
    with pytest.raises(ValidationError, match="level 7 is not among"):
        space(limits=[{"metric": "output_tok_s", "level": 7, "min": 1}])


def test_shared_rules_come_before_an_engines_own() -> None:
    of = space(
        engines={"e": {"rules": [{"forbid": "a == 2"}]}, "f": {}},
        rules=[{"forbid": "a == 1"}],
        knobs={"a": {"values": [1, 2, 3], "env": "A"}},
    )
    assert [rule.forbid for rule in of.rules_of("e")] == ["a == 1", "a == 2"]
    assert [rule.forbid for rule in of.rules_of("f")] == ["a == 1"]
    assert [rule.forbid for rule in of.broken_rules("e", {"a": 2})] == ["a == 2"]
    assert not list(of.broken_rules("f", {"a": 2}))


def test_a_space_survives_being_stored() -> None:
    of = space(
        knobs={
            "a": {"values": [None, True, 1, "LL"], "env": "A", "prior": {"likely": [None], "reason": "r"}},
            "b": {"float": {"low": 0.1, "high": 1.0, "log": True}, "flag": "--b", "when": "a == on"},
        },
        engines={"e": {"flags": {"--x": [1, 2], "--y": None, "--z": True}}},
    )
    stored = of.model_dump_json(by_alias=True)
    assert Space.model_validate_json(stored) == of
    assert Space.model_validate_json(stored).knobs["a"].grid == (None, True, 1, "LL")
