"""What a failure is called that no log tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import trials

from tuner.domain.outcome import FAILURES, Action, Failure, FailureClass, Phase
from tuner.errors import MachineUnfit, Problem, SpecError, UserError
from tuner.trial.naming import not_measured
from tuner.trial.process import LaunchRefused


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


def test_a_starved_host_is_no_fault_of_the_candidate() -> None:
    policy = FAILURES[FailureClass.HOST_STARVED]
    assert (policy.fault, policy.teaches_sampler, policy.action) == ("machine", False, Action.RETRY_WAIT)
