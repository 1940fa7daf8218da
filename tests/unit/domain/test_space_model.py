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
        ({"metric": "ttft_p99_ms", "rate": 5, "max": 2000}, "time to first token (p99) at 5 req/s ≤ 2,000 ms"),
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


def test_rates_must_be_measured() -> None:
    with pytest.raises(ValidationError, match=r"rate 5 is not sent: the workload has no rates \(add it to"):
        space(objectives=[{"metric": "ttft_p99_ms", "rate": 5}])
    with pytest.raises(ValidationError, match=r"rate 5 is not among the workload's rates 1, 2\.5"):
        space(workload={"rates": [1, 2.5]}, limits=[{"metric": "ttft_p99_ms", "rate": 5, "max": 1}])
    space(workload={"rates": [5]}, objectives=[{"metric": "ttft_p99_ms", "rate": 5.0}])


def test_a_level_and_a_rate_of_the_same_number_are_two_loads() -> None:
    both = space(workload={"levels": [1, 5], "rates": [5]}, objectives=[{"level": 5}, {"rate": 5}])
    assert [goal.label for goal in both.goals] == ["output_tok_s@5", "output_tok_s@5/s"]


@pytest.mark.parametrize("kind", [Objective, Limit])
def test_a_load_is_named_by_one_key(kind: type[Objective] | type[Limit]) -> None:
    fields = {"metric": "ttft_p99_ms", **({"max": 1} if kind is Limit else {})}
    with pytest.raises(ValidationError, match=r"give level \(requests in flight at any time\) or rate \(arrivals"):
        kind.model_validate(fields)
    with pytest.raises(ValidationError, match="give level or rate, not both"):
        kind.model_validate(fields | {"level": 1, "rate": 1})


def test_a_space_without_rates_is_written_as_it_was_before_there_were_any() -> None:
    """Its hash tells whether a study may go on."""
    assert Objective(level=8).model_dump(mode="json") == {"metric": "output_tok_s", "level": 8, "name": None}
    limit = Limit.model_validate({"metric": "ttft_p99_ms", "rate": 5, "max": 500})
    assert limit.model_dump(mode="json", exclude_none=True) == {"metric": "ttft_p99_ms", "rate": 5.0, "max": 500.0}
    assert Limit.model_validate(limit.model_dump(mode="json")) == limit
