"""The failure table: every class is complete, and says the same as the public definition of the classes."""

from __future__ import annotations

import pytest

from tuner.domain.outcome import FAILURES, Action, FailureClass

# class → (what a trial gets, what the baseline gets), as the classes were defined from public reports.
DEFINED = {
    "oom_weights": ("mark_infeasible", "stop"),
    "kv_too_small": ("mark_infeasible", "stop"),
    "oom_graph": ("mark_infeasible", "stop"),
    "oom_runtime": ("mark_infeasible", "stop"),
    "gpu_busy": ("retry_wait", "stop_if_steady"),
    "graph_capture": ("mark_infeasible", "stop"),
    "custom_allreduce": ("mark_infeasible", "stop"),
    "shm_too_small": ("stop", "stop"),
    "nccl_config": ("mark_infeasible", "stop"),
    "nccl_hang": ("mark_infeasible", "stop"),
    "engine_stall": ("retry_same_once", "stop"),
    "cuda_fault": ("retry_same_once", "stop"),
    "unsupported": ("mark_infeasible", "stop"),
    "jit_toolchain": ("mark_infeasible", "stop"),
    "driver_mismatch": ("stop", "stop"),
    "bad_flag": ("mark_infeasible", "stop"),
    "model_access": ("stop", "stop"),
    "env_setup": ("stop", "stop"),
    "port_in_use": ("retry_wait", "retry_wait"),
    "host_oom": ("retry_wait", "stop"),
}


@pytest.mark.parametrize("failure_class", FailureClass)
def test_every_class_says_whose_fault_what_next_and_what_to_do(failure_class: FailureClass) -> None:
    policy = FAILURES[failure_class]
    assert policy.fault in {"candidate", "machine", "study", "tuner"}
    assert len(policy.words.split()) >= 5
    assert not policy.words.endswith(".")
    assert policy.words == policy.words.strip()


@pytest.mark.parametrize("failure_class", FailureClass)
def test_a_class_that_retries_says_how_often_and_what_then(failure_class: FailureClass) -> None:
    policy = FAILURES[failure_class]
    retries = policy.action in (Action.RETRY_SAME_ONCE, Action.RETRY_WAIT)
    assert retries == (policy.retries > 0) == (policy.then is not None)
    if policy.then is not None:
        assert policy.then in (Action.MARK_INFEASIBLE, Action.STOP)
    if policy.action is Action.RETRY_SAME_ONCE:
        assert policy.retries == 1


@pytest.mark.parametrize("failure_class", FailureClass)
def test_only_what_every_trial_would_hit_stops_the_study(failure_class: FailureClass) -> None:
    policy = FAILURES[failure_class]
    assert (policy.action is Action.STOP) == (policy.fault == "study")
    if policy.fault in ("study", "tuner"):
        assert not policy.teaches_sampler


@pytest.mark.parametrize(("name", "actions"), DEFINED.items())
def test_actions_are_those_of_the_definition(name: str, actions: tuple[str, str]) -> None:
    policy = FAILURES[FailureClass(name)]
    assert (policy.action, policy.baseline_action) == actions


def test_the_unknown_is_tried_once_more_and_never_stops_a_study() -> None:
    policy = FAILURES[FailureClass.UNKNOWN]
    assert policy.action is Action.RETRY_SAME_ONCE
    assert Action.STOP not in (policy.action, policy.baseline_action, policy.then)
