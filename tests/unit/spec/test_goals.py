"""What objectives and limits ask for: what cannot be measured is refused, what tells nothing apart is warned of."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from support.space_files import Errors, Load

from tuner.spec import space_schema

RATES = "workload: {levels: [1, 8], rates: [5]}\n"


@pytest.mark.parametrize("metric", ["output_tok_s", "request_s"])
def test_throughput_at_a_rate_is_warned_of_since_it_is_the_rate_itself(load: Load, metric: str) -> None:
    (warning,) = load(f"{RATES}objectives: [{{level: 1}}, {{metric: {metric}, rate: 5}}]\n").warnings
    assert str(warning).startswith("s.yaml:4:26 objectives[1]: at a fixed rate, ")
    assert "until the server saturates (a latency or goodput_s tells configurations apart there" in str(warning)


@pytest.mark.parametrize("metric", ["ttft_p99_ms", "decode_tok_s", "output_tok_per_joule"])
def test_what_a_faster_server_does_better_at_a_rate_is_not(load: Load, metric: str) -> None:
    assert not load(f"{RATES}objectives: [{{metric: {metric}, rate: 5}}]\n").warnings


def test_a_bound_on_throughput_at_a_rate_says_that_the_server_must_keep_up(load: Load) -> None:
    assert not load(f"{RATES}limits: [{{metric: request_s, rate: 5, min: 4.9}}]\n").warnings


@pytest.mark.parametrize(
    "wanted", ["objectives: [{metric: goodput_s, rate: 5}]", "limits: [{metric: goodput_s, level: 8, min: 1}]"]
)
def test_goodput_needs_to_be_told_which_requests_are_good(load: Load, errors: Errors, wanted: str) -> None:
    (problem,) = errors(f"{RATES}{wanted}\n")
    assert "[0].metric: goodput_s counts good requests, and nothing says which are good" in problem
    assert "give workload.goodput" in problem
    load(f"workload: {{levels: [1, 8], rates: [5], goodput: {{ttft_ms: 500}}}}\n{wanted}\n")


@pytest.mark.parametrize(
    ("objective", "sound"),
    [({"level": 1}, True), ({"rate": 2.5}, True), ({}, False), ({"level": 1, "rate": 2.5}, False)],
)
def test_editors_know_that_a_load_is_a_level_or_a_rate(objective: dict[str, float], sound: bool) -> None:
    document = {"name": "t", "model": "m", "engines": {"engine": {}}, "objectives": [objective]}
    assert Draft202012Validator(space_schema()).is_valid(document) is sound


@pytest.mark.parametrize(
    ("bound", "problem"),
    [
        ("min_of_baseline: -3", "must be above 0: it is a share of the baseline's value (0.95 is 95 % of it)"),
        ("max_of_baseline: 0", "must be above 0"),
        ("min_of_baseline: 30", "30 is 3,000 % of the baseline's value: a share is meant (for 30 % write 0.3)"),
        ("max_of_baseline: 105", "a share is meant (for 105 % write 1.05)"),
    ],
)
def test_a_bound_relative_to_the_baseline_is_a_share(errors: Errors, bound: str, problem: str) -> None:
    (found,) = errors(f"limits: [{{metric: output_tok_s, level: 1, {bound}}}]\n")
    key = bound.partition(":")[0]
    assert found.startswith(f"s.yaml:3:60 limits[0].{key}: ")
    assert problem in found


def test_a_configuration_may_have_to_be_several_times_as_good_as_the_baseline(load: Load) -> None:
    load("limits: [{metric: output_tok_s, level: 1, min_of_baseline: 3}]\n")
