"""Every warning about a study, from stored launches that give rise to it – and none from launches that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured, Metric
from tuner.domain.output import Agreement, Answer, OutputReport
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity, LaunchKind, Purpose, TrialReport
from tuner.domain.warnings import WarningCode
from tuner.export.standings import front_of
from tuner.study.confirm import confirmation_of
from tuner.study.looked_at import metrics_looked_at
from tuner.study.summary import baselines_of
from tuner.study.warnings import warnings_of

SPACE = Space.model_validate(
    {
        "name": "toy",
        "model": "m",
        "engines": {"simulated": {}},
        "knobs": {"steps": {"int": {"low": 1, "high": 4}, "flag": "--steps"}, "proto": {"values": ["LL"], "env": "P"}},
        "workload": {"levels": [1, 128]},
    }
)
MACHINE = {"driver": "590.44", "gpus": "H200"}


def report(single: float, loaded: float = 2000.0, codes: tuple[str, ...] = (), **changes: object) -> TrialReport:
    levels = (records.level(1, single), records.level(128, loaded))
    outcome = Measured(tuple(replace(level, warnings=codes) for level in levels), simulated=False)
    return records.measured_report(**{"outcome": outcome, "machine": MACHINE, "activity": (), **changes})


def launch(trial: int, found: TrialReport, steps: int = 2, purpose: Purpose = Purpose.SEARCH) -> AttemptRecord:
    started = 1000.0 + 60 * trial
    return records.attempt(trial, Candidate("simulated", {"steps": steps}), found, purpose=purpose, started_at=started)


def baseline(trial: int, found: TrialReport) -> AttemptRecord:
    return launch(trial, found, purpose=Purpose.BASELINE)


def seen(attempts: list[AttemptRecord], space: Space = SPACE) -> dict[WarningCode, str]:
    cautions = warnings_of(space, attempts, front_of(space, attempts))
    return {caution.code: caution.detail for caution in cautions}


QUIET = [baseline(trial, report(60.0 + trial / 100)) for trial in range(4)]


def test_of_a_study_of_latencies_the_throughput_is_looked_at_too() -> None:
    wanted = {
        "objectives": [{"metric": "ttft_p50_ms", "level": 1}],
        "limits": [{"metric": "itl_p99_ms", "level": 1, "max": 9}],
    }
    space = Space.model_validate({**SPACE.model_dump(by_alias=True), **wanted})
    assert metrics_looked_at(space) == {Metric.TTFT_P50_MS, Metric.ITL_P99_MS, Metric.OUTPUT_TOK_S}


def test_a_quiet_study_gives_rise_to_no_warning() -> None:
    assert seen(QUIET) == {}


def test_launches_of_one_configuration_that_differ_are_noisy() -> None:
    found = seen([baseline(trial, report(60.0 + 5 * (trial % 2))) for trial in range(4)])
    assert found[WarningCode.NOISY].startswith("single_stream: ")


def test_a_baseline_that_gets_steadily_slower_betrays_drift() -> None:
    found = seen([baseline(trial, report(60.0 - trial)) for trial in range(6)])
    assert found[WarningCode.MACHINE_DRIFTS] == "single_stream: -8.7%"


def test_a_baseline_that_is_slower_after_its_first_launches_betrays_drift() -> None:
    first = [baseline(trial, report(speed)) for trial, speed in enumerate((60.0, 59.8, 60.1))]
    sentinel = launch(12, report(57.0), purpose=Purpose.SENTINEL)
    found = seen([*first, sentinel])
    assert found[WarningCode.MACHINE_DRIFTS] == "single_stream: -4.9% from trial 12 on"
    # One that lies within what the first ones differ by is none, and nor is one that was launched in another way.
    assert WarningCode.MACHINE_DRIFTS not in seen([*first, launch(12, report(59.4), purpose=Purpose.SENTINEL)])
    warm = replace(report(57.0), kind=LaunchKind.WARM)
    assert WarningCode.MACHINE_DRIFTS not in seen([*first, launch(12, warm, purpose=Purpose.SENTINEL)])


def test_a_baseline_that_never_ran_leaves_nothing_to_compare_with() -> None:
    found = seen([baseline(0, records.failed_report()), launch(1, report(70.0))])
    assert found[WarningCode.BASELINE_FAILED] == "simulated"


@pytest.mark.parametrize(
    ("fact", "value", "code"),
    [
        ("driver", "591.0", WarningCode.OTHER_MACHINE),
        ("gpu_slowed_by", "thermal_software 12%, power_cap 90%", WarningCode.THROTTLED),
        ("gpu_used_before_mib", "4, 20000", WarningCode.DIRTY_GPU),
    ],
)
def test_what_the_machine_did_is_told(fact: str, value: str, code: WarningCode) -> None:
    found = seen([*QUIET, launch(9, report(60.0, machine={**MACHINE, fact: value}))])
    assert code in found


def test_a_gpu_at_its_power_limit_is_no_warning() -> None:
    machine = {**MACHINE, "gpu_slowed_by": "power_cap 90%", "gpu_used_before_mib": "4, 900"}
    assert seen([*QUIET[:3], baseline(3, report(60.0, machine=machine))]) == {}


def test_a_lucky_single_launch_on_the_front_is_a_candidate_only() -> None:
    assert seen([*QUIET, launch(9, report(90.0), steps=3)]) == {WarningCode.TOO_FEW_LAUNCHES: "1 of 1"}


def confirmed(first: int, rounds: int, values: dict[int, float], start: float = 60.0) -> list[AttemptRecord]:
    """Rounds of a confirmation: the baseline and each number of steps with its speed."""
    found = []
    for block in range(rounds):
        for place, (steps, value) in enumerate({2: start, **values}.items()):
            trial = first + block * (len(values) + 1) + place
            made = launch(trial, report(value + block / 100), steps=steps, purpose=Purpose.CONFIRM)
            found.append(replace(made, block=block + 1))
    return found


@pytest.mark.parametrize(("rounds", "trials"), [(1, (10, 12)), (2, (10,))])
def test_what_two_rounds_of_a_confirmation_compared_is_no_mere_candidate_any_more(
    rounds: int, trials: tuple[int, ...]
) -> None:
    """One round compares nothing; what is on the front beside the finalist stays a candidate."""
    beside = launch(10, report(80.0, 2500.0), steps=1)
    attempts = [*QUIET, beside, *confirmed(11, rounds, {3: 90.0})]
    found = confirmation_of(SPACE, attempts, baselines_of(attempts))
    cautions = {c.code: c for c in warnings_of(SPACE, attempts, front_of(SPACE, attempts), found)}
    assert cautions[WarningCode.TOO_FEW_LAUNCHES].detail == f"{len(trials)} of 2"
    assert set(cautions[WarningCode.TOO_FEW_LAUNCHES].trials) == set(trials)


def test_a_winner_at_the_end_of_its_range_asks_for_a_wider_one() -> None:
    winner = [launch(trial, report(90.0, 2500.0), steps=4) for trial in (9, 10, 11)]
    assert seen([*QUIET, *winner]) == {WarningCode.WINNER_AT_EDGE: "steps=4"}


def test_the_winner_is_the_one_that_was_confirmed_where_there_is_one() -> None:
    searched = [*QUIET, *(launch(number, report(90.0 + number / 100), steps=4) for number in range(4, 7))]
    searched += [launch(number, report(80.0 + number / 100), steps=3) for number in range(7, 10)]
    for speeds, at_edge in (({4: 90.0}, True), ({3: 80.0}, False), ({3: 60.0}, False)):
        launches = [*searched, *confirmed(10, 3, speeds)]
        found = confirmation_of(SPACE, launches, baselines_of(launches))
        told = {c.code: c for c in warnings_of(SPACE, launches, front_of(SPACE, launches), found)}
        assert (WarningCode.WINNER_AT_EDGE in told) is at_edge
        assert not at_edge or told[WarningCode.WINNER_AT_EDGE].trials == (4,)


TWO = SPACE.model_copy(update={"engines": dict.fromkeys(("simulated", "vllm"), SPACE.engines["simulated"])})


def two_engines(facts: dict[str, str], versions: dict[str, str]) -> list[AttemptRecord]:
    """A quiet baseline of each engine, each with its own NCCL, and one more launch of vLLM under other conditions."""
    other = Candidate("vllm", {"steps": 2})
    ours = {**MACHINE, "nccl": "2.27.5 (/a)"}, {"simulated": "1", "torch": "2.9"}
    theirs = {**MACHINE, "nccl": "2.28.9 (/b)"}, {"vllm": "0.26.0", "torch": "2.11"}
    found = [baseline(trial, report(60.0 + trial / 100, machine=ours[0], versions=ours[1])) for trial in range(2)]
    for trial, (machine, own) in enumerate(
        [theirs, theirs, ({**theirs[0], **facts}, {**theirs[1], **versions})], start=2
    ):
        launched = report(70.0 + trial / 100, machine=machine, versions=own)
        found.append(records.attempt(trial, other, launched, purpose=Purpose.BASELINE, started_at=1000.0 + 60 * trial))
    return found


def test_two_engines_with_libraries_of_their_own_run_on_one_machine() -> None:
    assert WarningCode.OTHER_MACHINE not in seen(two_engines({}, {}), TWO)


@pytest.mark.parametrize(
    ("facts", "versions", "told"),
    [
        ({"nccl": "2.29.0 (/b)"}, {}, "different: nccl"),
        ({"driver": "591.0"}, {"torch": "2.12"}, "different: driver, torch version"),
        ({}, {"vllm": "0.33.0"}, "different: vllm version"),
    ],
)
def test_an_engine_s_own_libraries_and_version_are_compared_with_its_own_launches(
    facts: dict[str, str], versions: dict[str, str], told: str
) -> None:
    assert seen(two_engines(facts, versions), TWO)[WarningCode.OTHER_MACHINE] == told


def test_an_inactive_knob_on_the_front_is_named_with_its_reason() -> None:
    idle = (KnobActivity("proto", Activity.INACTIVE, "custom all-reduce is on"),)
    found = seen([*QUIET[:3], baseline(3, report(60.0, activity=idle))])
    assert found == {WarningCode.INACTIVE_KNOB: "proto: custom all-reduce is on"}


def test_codes_of_levels_are_counted_and_unknown_ones_passed_over() -> None:
    found = seen([*QUIET[:3], baseline(3, report(60.0, codes=("prefix_cache_hit", "of_another_version")))])
    assert found == {WarningCode.PREFIX_CACHE_HIT: "C=1 in 1 of 4 launches, C=128 in 1 of 4 launches"}


def test_an_output_check_that_is_off_or_forgives_much_is_told() -> None:
    off = SPACE.model_copy(update={"output_check": SPACE.output_check.model_copy(update={"enabled": False})})
    assert WarningCode.OUTPUT_UNCHECKED in seen(QUIET, off)
    shaky = OutputReport(loaded=Agreement(0.4, 0.1, 64))
    found = seen([*QUIET[:3], baseline(3, report(60.0, output=shaky))])
    assert found == {WarningCode.OUTPUT_UNSTABLE: "only 40% of its tokens are the same"}


@pytest.mark.parametrize(("second", "undecided"), [(-1.001, True), (-2.0, False)])
def test_a_model_that_cannot_decide_makes_the_output_check_weak(second: float, undecided: bool) -> None:
    answer = Answer("ab", ("a", "b"), (-1.0, -1.0), ({"a": -1.0, "x": second}, {"b": -1.0, "y": second}))
    found = seen([*QUIET[:3], baseline(3, report(60.0, output=OutputReport(answers=(answer,))))])
    assert (WarningCode.OUTPUT_UNDECIDED in found) is undecided


def test_every_warning_says_what_to_do() -> None:
    assert all(code.meaning and code.advice for code in WarningCode)
