"""What a failure is called that no log tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import trials

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.outcome import FAILURES, Action, Failure, FailureClass, Phase
from tuner.domain.trial import Purpose, TrialRequest
from tuner.errors import MachineUnfit, Problem, SpecError, UserError
from tuner.trial.naming import failure_of, not_measured
from tuner.trial.process import LaunchRefused
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble


def test_a_missing_model_folder_stops_the_study_with_what_to_do(tmp_path: Path) -> None:
    outcome = trials.run(tmp_path, model="/no/such/model").outcome
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.phase) == (FailureClass.MODEL_ACCESS, Phase.PREFLIGHT)
    assert outcome.evidence == ("no model folder /no/such/model",)
    assert str(outcome.detail).startswith("give an existing folder, or a name on the Hugging Face hub")
    assert FAILURES[outcome.failure_class].action is Action.STOP


@pytest.mark.parametrize(
    ("error", "failure_class", "phase"),
    [
        (SpecError([Problem("space.yaml", 1, 1, "knobs", "no such flag")]), FailureClass.BAD_FLAG, Phase.PREFLIGHT),
        (MachineUnfit("vllm is not installed"), FailureClass.ENV_SETUP, Phase.PREFLIGHT),
        (UserError("unknown engine"), FailureClass.ENV_SETUP, Phase.PREFLIGHT),
        (LaunchRefused("python: not found"), FailureClass.ENV_SETUP, Phase.SPAWN),
        (LaunchRefused("the guard did not start", is_late=True), FailureClass.HOST_STARVED, Phase.SPAWN),
    ],
)
def test_what_kept_a_trial_from_its_server(
    error: MachineUnfit | UserError | LaunchRefused, failure_class: FailureClass, phase: Phase
) -> None:
    failure = not_measured(error)
    assert (failure.failure_class, failure.phase) == (failure_class, phase)
    assert failure.evidence[0] in str(error)


def test_of_a_launch_that_was_stuck_what_was_seen_comes_before_the_last_lines_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-12-01 05:20:00] Cache flushed successfully!\n")
    seen = "the measurement was not done after 301 s (budget.benchmark_timeout_s: 300)"
    space = trials.space()
    candidate = Candidate.of(space, "simulated", {"kv": "auto"})
    request = TrialRequest("s", 0, 1, Purpose.SEARCH, candidate, space, space.workload, str(tmp_path))
    plan = LaunchPlan("simulated", ("sglang",), {}, "127.0.0.1", 1)
    failure = failure_of(LaunchFailed(LaunchTrouble.DEADLINE, Phase.SERVING, seen), log, plan, request)
    assert failure.failure_class is FailureClass.ENGINE_STALL
    assert failure.evidence == (seen, "[2026-12-01 05:20:00] Cache flushed successfully!")


def test_a_starved_host_is_no_fault_of_the_candidate() -> None:
    policy = FAILURES[FailureClass.HOST_STARVED]
    assert (policy.fault, policy.teaches_sampler, policy.action) == ("machine", False, Action.RETRY_WAIT)
