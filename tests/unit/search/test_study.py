"""The search as a study's loop drives it: ask, tell, resume."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest
from support.search_spaces import BASELINE, ENGINE, KNOBS, candidate, space

from tuner.domain.candidate import Candidate
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Metric, MetricAt
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.trial import Cutoff, Purpose
from tuner.errors import InternalError, StudyError, UserError
from tuner.search.base import Infeasible, Partial, PriorObservation, Scored, SpaceExhausted, Verdict
from tuner.search.study import Search, delete_search, open_search

SPACE = space()


def opened(url: str | None = None, of: Space = SPACE, **more: Any) -> Search:
    baselines = {engine: candidate(of, BASELINE, engine) for engine in of.engines}
    return open_search(of, storage_url=url, study_name="s", baselines=baselines, **more)


def verdict(of: Candidate) -> Verdict:
    """A made-up machine: steps help single-stream and cost throughput; flashinfer hangs."""
    if of.values["backend"] == "flashinfer":
        return Infeasible(FailureClass.NCCL_HANG, 600)
    steps = float(of.values["steps"] or 0)
    return Scored((60 + 3 * steps, 2000 - 20 * steps + 10 * float(of.values["fraction"] or 0)), seconds=180)


def launched(search: Search, launches: int) -> Iterator[tuple[int, Candidate]]:
    for _ in range(launches):
        proposal = search.ask()
        yield proposal.trial, proposal.candidate
        search.tell(proposal.trial, verdict(proposal.candidate))


def run(search: Search, launches: int) -> list[tuple[int, Candidate]]:
    return list(launched(search, launches))


@dataclass(frozen=True)
class Stored:
    """A study of 14 launches, the last six proposed by the model, that was begun three times."""

    url: str
    asked: list[tuple[int, Candidate]]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    url = f"sqlite:///{tmp_path_factory.mktemp('resumed')}/study.db"
    return Stored(url, run(opened(url), 5) + run(opened(url), 5) + run(opened(url), 4))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def stored(url: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=url).trials


def at_levels(*levels: int) -> tuple[LoadPoint, ...]:
    return tuple(LoadPoint(level=level) for level in levels)


def test_the_baseline_is_asked_first_as_it_is() -> None:
    proposal = opened().ask()
    assert proposal.purpose is Purpose.BASELINE
    assert proposal.candidate == candidate(SPACE)


def test_a_resumed_study_asks_what_an_uninterrupted_one_would(resumed: Stored) -> None:
    assert resumed.asked == run(opened(), len(resumed.asked))


def test_another_seed_asks_for_other_candidates() -> None:
    assert run(opened(seed=1), 8) != run(opened(seed=2), 8)


def test_knobs_are_optuna_parameters_and_inactive_ones_are_left_out(url: str) -> None:
    search = opened(url)
    search.enqueue(candidate(SPACE, {**BASELINE, "graph": False}), Purpose.SEARCH)
    run(search, 2)
    first, second = stored(url)
    assert first.params == {
        "backend": "triton", "graph": "on", "graph_size": "32", "steps": 1, "fraction": 0.8, "channels": "unset"
    }  # fmt: skip
    assert "graph_size" not in second.params
    assert second.user_attrs["inactive"] == {"graph_size": "32"}


def test_a_failure_is_told_as_pruned_with_a_broken_constraint_and_never_as_a_number(url: str) -> None:
    search = opened(url)
    proposal = search.ask()
    search.tell(proposal.trial, Infeasible(FailureClass.OOM_RUNTIME, 45))
    (trial,) = stored(url)
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.values is None
    assert trial.constraints["launch"] > 0


def test_a_failure_of_the_machine_teaches_nothing_and_its_candidate_may_come_again(url: str) -> None:
    search = opened(url)
    proposal = search.ask()
    search.tell(proposal.trial, Infeasible(FailureClass.GPU_BUSY))
    assert stored(url)[0].state is optuna.trial.TrialState.FAIL
    assert stored(url)[0].constraints == {}


def test_a_value_that_is_no_positive_number_makes_the_trial_infeasible(url: str) -> None:
    search = opened(url)
    for bad in (math.nan, math.inf, 0.0, -5.0):
        search.tell(search.ask().trial, Scored((60.0, bad)))
    assert [trial.state for trial in stored(url)] == [optuna.trial.TrialState.PRUNED] * 4


@pytest.mark.slow
def test_a_trial_measured_in_part_is_no_failure(url: str) -> None:
    search = opened(url)
    proposal = search.ask()
    search.tell(proposal.trial, Partial((60.0, None), "slower than the best beyond noise"))
    (trial,) = stored(url)
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.constraints["launch"] <= 0
    run(search, 25)


def test_limits_are_constraints_and_are_kept_in_the_end() -> None:
    limit = {"metric": "output_tok_s", "level": 128, "min": 1950}
    limited = space(KNOBS, limits=[limit])
    search = opened(of=limited)
    steps = []
    for _ in range(20):
        proposal = search.ask()
        found = verdict(proposal.candidate)
        if isinstance(found, Scored):
            broken = (1950 - found.values[1]) / 1950
            found = Scored(found.values, {limited.limits[0].label: broken}, seconds=180)
            steps.append((float(proposal.candidate.values["steps"] or 0), broken))
        search.tell(proposal.trial, found)
    assert max(s for s, broken in steps if broken <= 0) == 2.0


def test_metrics_and_objective_names_are_there_for_the_dashboard(url: str) -> None:
    search = opened(url)
    proposal = search.ask()
    search.tell(proposal.trial, Scored((60.0, 2000.0), metrics={"ttft_p99_ms@128": 900.0, "odd": math.nan}))
    study = optuna.load_study(study_name="s", storage=url)
    assert study.metric_names == ["single_stream", "throughput"]
    assert study.trials[0].user_attrs["ttft_p99_ms@128"] == 900.0


def test_what_was_asked_and_not_told_is_pending_across_a_restart(url: str) -> None:
    proposal = opened(url).ask()
    again = opened(url)
    assert again.pending == {proposal.trial: proposal}
    again.tell(proposal.trial, verdict(proposal.candidate))
    assert again.pending == {}


def test_an_abandoned_proposal_may_come_again() -> None:
    knobs = {"a": {"values": ["x", "y"], "flag": "--a"}}
    small = space(knobs)
    search = open_search(small, storage_url=None, study_name="s", baselines={ENGINE: candidate(small, {"a": "x"})})
    search.tell(search.ask().trial, Scored((1.0, 1.0)))
    first = search.ask()
    search.abandon(first.trial)
    assert search.ask().candidate == first.candidate


def test_an_enqueued_candidate_comes_next_even_a_known_one() -> None:
    search = opened()
    run(search, 5)
    search.enqueue(candidate(SPACE), Purpose.SENTINEL)
    proposal = search.ask()
    assert (proposal.candidate, proposal.purpose) == (candidate(SPACE), Purpose.SENTINEL)
    assert proposal.why


def test_a_trial_is_told_once() -> None:
    search = opened()
    run(search, 1)
    with pytest.raises(InternalError):
        search.tell(0, Scored((1.0, 1.0)))
    with pytest.raises(InternalError):
        search.tell(7, Scored((1.0, 1.0)))


def test_the_number_of_values_must_fit_the_objectives() -> None:
    search = opened()
    with pytest.raises(InternalError):
        search.tell(search.ask().trial, Scored((1.0,)))


def test_a_name_taken_by_a_study_with_other_objectives_is_refused(url: str) -> None:
    opened(url)
    with pytest.raises(StudyError):
        opened(url, of=space(KNOBS, objectives=[{"metric": "output_tok_s", "level": 1}]))


def test_a_misspelled_sampler_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UserError) as caught:
        opened(sampler="tep")
    assert caught.value.hint is not None
    assert "tpe" in caught.value.hint


def test_deleting_a_search_twice_is_no_error(url: str) -> None:
    run(opened(url), 2)
    delete_search(url, "s")
    delete_search(url, "s")
    assert opened(url).ask().purpose is Purpose.BASELINE


def test_two_engines_share_the_budget_and_one_that_is_used_up_leaves_its_share() -> None:
    two = Space.model_validate(
        {
            "name": "two",
            "model": "m",
            "budget": {"baseline_launches": 1},
            "engines": {
                "sglang": {"knobs": {"a": {"int": {"low": 1, "high": 9}, "flag": "--a"}}},
                "vllm": {"knobs": {"b": {"switch": True, "flag": "--b"}}},
            },
        }
    )
    baselines = {"sglang": Candidate.of(two, "sglang", {"a": 1}), "vllm": Candidate.of(two, "vllm", {"b": True})}
    search = open_search(two, storage_url=None, study_name="s", baselines=baselines)
    engines = []
    for _ in range(11):
        proposal = search.ask()
        engines.append(proposal.candidate.engine)
        search.tell(proposal.trial, Scored((1.0, 1.0)))
    with pytest.raises(SpaceExhausted):
        search.ask()
    assert engines[:4].count("vllm") == 2
    assert (engines.count("vllm"), engines.count("sglang")) == (2, 9)


def test_a_proposal_of_the_model_can_be_explained(resumed: Stored) -> None:
    trial, proposed = resumed.asked[-1]
    search = opened(resumed.url)
    explained = search.explain(trial)
    assert explained.candidate == proposed
    assert [p.objective for p in explained.predictions] == ["single_stream", "throughput"]
    assert all(p.low < p.center < p.high for p in explained.predictions)
    assert explained.failure_chance is not None
    with pytest.raises(StudyError):
        search.explain(999)


def test_importance_finds_the_knob_that_matters(resumed: Stored) -> None:
    ranked = [item for item in opened(resumed.url).importance() if item.objective == "single_stream"]
    assert ranked[0].knob == "steps"
    assert ranked[0].low <= ranked[0].effect <= ranked[0].high
    assert ranked[0].effect == pytest.approx(81 / 63 - 1, abs=0.08)


@pytest.mark.slow
def test_little_is_left_to_win_once_the_best_is_known() -> None:
    search = opened()
    run(search, 3)
    assert search.remaining_gain() is None
    run(search, 37)
    left = search.remaining_gain()
    assert left is not None
    assert left.expected <= left.upper or left.upper == 0
    assert left.upper < 0.03


def test_without_a_model_nothing_is_cut_short() -> None:
    search = opened()
    assert not search.cutoffs(search.ask().trial, at_levels(1, 128))


def launched_throughout(search: Search, of: Space, verdict_for: Callable[[float], Verdict]) -> None:
    """Launches spread over the space, as a search leaves them, without the price of asking for each.

    Args:
        verdict_for: what a launch measures with so many steps.
    """
    for steps, graph, fraction in itertools.product((1, 2, 4, 8), (True, False), (0.7, 0.8, 0.9)):
        one = candidate(of, {**BASELINE, "steps": steps, "graph": graph, "fraction": fraction})
        search.tell(search.propose(one, Purpose.CONFIRM).trial, verdict_for(steps))


def beaten_alone_and_under_load(steps: float) -> Verdict:
    return Scored((60 + 3 * steps, 2000 + 50 * steps), seconds=180)


def next_cutoffs(search: Search, of: Space, loads: Sequence[LoadPoint]) -> Sequence[Cutoff]:
    """What ends a launch of few steps early."""
    one = candidate(of, {**BASELINE, "steps": 1, "fraction": 0.85})
    return search.cutoffs(search.propose(one, Purpose.CONFIRM).trial, loads)


def test_only_what_is_beaten_beyond_noise_is_cut_short() -> None:
    search = opened()
    launched_throughout(search, SPACE, beaten_alone_and_under_load)
    (cutoff,) = next_cutoffs(search, SPACE, at_levels(1, 32, 128))
    (bound,) = cutoff.bounds
    assert bound.at == MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1))
    assert 63 < bound.value < 84
    rival = search.explain(cutoff.rival).candidate
    assert float(rival.values["steps"] or 0) > 1


def test_what_is_beaten_at_its_levels_is_not_measured_at_its_rates() -> None:
    goals = [{"level": 1}, {"metric": "ttft_p99_ms", "rate": 5}]
    arrivals = space(KNOBS, workload={"levels": [1], "rates": [5]}, objectives=goals)
    search = opened(of=arrivals)
    launched_throughout(search, arrivals, lambda steps: Scored((60 + 3 * steps, 400 - 10 * steps), seconds=180))
    (cutoff,) = next_cutoffs(search, arrivals, arrivals.workload.loads)
    assert [bound.at for bound in cutoff.bounds] == [MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1))]


def test_a_candidate_that_may_still_win_under_load_is_measured_there() -> None:
    search = opened()
    # More steps are faster alone and slower under load: nothing beats everything.
    launched_throughout(search, SPACE, lambda steps: Scored((60 + 3 * steps, 2000 - 20 * steps), seconds=180))
    assert not next_cutoffs(search, SPACE, at_levels(1, 128))


def test_a_configuration_over_a_limit_beats_nothing() -> None:
    limited = space(KNOBS, limits=[{"metric": "ttft_p99_ms", "level": 128, "max": 100}])

    def over_a_limit(steps: float) -> Verdict:
        broken = {limited.limits[0].label: 0.5 if steps > 1 else -0.5}
        return Scored((60 + 3 * steps, 2000 + 50 * steps), broken, seconds=180)

    search = opened(of=limited)
    launched_throughout(search, limited, over_a_limit)
    assert not next_cutoffs(search, limited, at_levels(1, 128))


def test_results_of_an_earlier_study_lead_to_its_best_sooner() -> None:
    hints = [
        PriorObservation(candidate(SPACE, {**BASELINE, "steps": s}), ((60 + 3 * s) / 63, (2000 - 20 * s) / 1980), 0.01)
        for s in range(2, 9)
    ]

    def first_of_steps(search: Search, wanted: float) -> int:
        return next(i for i, (_, c) in enumerate(launched(search, 40)) if float(c.values["steps"] or 0) >= wanted)

    warm, cold = opened(hints=hints), opened()
    assert first_of_steps(warm, 3) <= first_of_steps(cold, 3)
