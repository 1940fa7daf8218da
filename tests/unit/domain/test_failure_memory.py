"""What a study learns from its failures."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.failure_memory import FailureMemory, Tried, next_step
from tuner.domain.outcome import FAILURES, Action, Failure, FailureClass, Phase
from tuner.domain.values import Value


def failure(failure_class: FailureClass, line: str = "a log line") -> Failure:
    return Failure(failure_class, Phase.GRAPH_CAPTURE, evidence=(line,))


class Study:
    """Collects trials; knobs that a trial does not name have the baseline's values."""

    BASE: ClassVar[dict[str, Value]] = {"attention": "fa3", "graphs": True, "p2p_level": None, "chunk": 2048}

    def __init__(self) -> None:
        self.tried: list[Tried] = []

    def candidate(self, **values: Value) -> Candidate:
        return Candidate("vllm", {**self.BASE, **values})

    def ok(self, **values: Value) -> Study:
        return self._add(None, values)

    def failed(self, failure_class: FailureClass, **values: Value) -> Study:
        return self._add(failure(failure_class), values)

    def second_chance(self, failure_class: FailureClass, **values: Value) -> Study:
        return self._add(failure(failure_class), values, second_chance=True)

    def _add(self, outcome: Failure | None, values: dict[str, Value], second_chance: bool = False) -> Study:
        number = len(self.tried)
        candidate = self.candidate(**values)
        one = Tried(number, candidate, outcome, is_baseline=not values, second_chance=second_chance)
        self.tried.append(one)
        return self

    @property
    def memory(self) -> FailureMemory:
        return FailureMemory(self.tried)


# -- retries


@pytest.mark.parametrize("failure_class", FailureClass)
@pytest.mark.parametrize("is_baseline", [False, True])
def test_every_chain_of_failures_ends(failure_class: FailureClass, is_baseline: bool) -> None:
    steps = [next_step(failure(failure_class), attempt, is_baseline=is_baseline) for attempt in range(1, 8)]
    assert steps[-1] in (Action.MARK_INFEASIBLE, Action.STOP)
    assert Action.STOP_IF_STEADY not in steps
    retries = [step for step in steps if step in (Action.RETRY_SAME_ONCE, Action.RETRY_WAIT)]
    assert len(retries) <= FAILURES[failure_class].retries


def test_a_cuda_fault_is_tried_once_more_and_then_is_the_settings_fault() -> None:
    fault = failure(FailureClass.CUDA_FAULT)
    assert next_step(fault, 1, is_baseline=False) is Action.RETRY_SAME_ONCE
    assert next_step(fault, 2, is_baseline=False) is Action.MARK_INFEASIBLE


def test_a_flag_that_is_refused_is_never_tried_again() -> None:
    assert next_step(failure(FailureClass.BAD_FLAG), 1, is_baseline=False) is Action.MARK_INFEASIBLE
    assert next_step(failure(FailureClass.BAD_FLAG), 1, is_baseline=True) is Action.STOP


def test_a_busy_gpu_is_waited_for_while_its_shortage_shrinks() -> None:
    busy = failure(FailureClass.GPU_BUSY)
    assert next_step(busy, 1, is_baseline=True) is Action.RETRY_WAIT
    assert next_step(busy, 2, is_baseline=True, shrinking=True) is Action.RETRY_WAIT
    assert next_step(busy, 2, is_baseline=True, shrinking=False) is Action.STOP
    assert next_step(busy, 3, is_baseline=False, shrinking=True) is Action.STOP


def test_an_unknown_failure_never_stops_even_the_baseline() -> None:
    assert next_step(failure(FailureClass.UNKNOWN), 1, is_baseline=True) is Action.RETRY_SAME_ONCE
    assert next_step(failure(FailureClass.UNKNOWN), 2, is_baseline=True) is Action.MARK_INFEASIBLE


# -- known bad and set aside


def test_busy_gpus_set_nothing_aside() -> None:
    study = Study().ok().ok(chunk=4096).failed(FailureClass.GPU_BUSY, attention="triton")
    study.failed(FailureClass.GPU_BUSY, attention="triton", chunk=4096)
    assert study.memory.set_aside == ()


def test_one_failure_sets_nothing_aside() -> None:
    study = Study().ok().ok(chunk=4096).failed(FailureClass.CUDA_FAULT, attention="triton")
    assert study.memory.set_aside == ()


def test_a_value_whose_trials_all_fail_alike_is_set_aside_with_its_evidence() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton").failed(
        FailureClass.CUDA_FAULT, attention="triton", chunk=4096
    )
    (aside,) = study.memory.set_aside
    assert aside.settings == (("attention", "triton"),)
    assert aside.failure_class is FailureClass.CUDA_FAULT
    assert aside.failed == (2, 3)
    assert aside.rivals == (0, 1)
    assert aside.evidence == "a log line"
    assert aside.covers(study.candidate(attention="triton", graphs=False))
    assert not aside.covers(study.candidate(graphs=False))


def test_one_success_lets_a_value_off() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton")
    study.failed(FailureClass.CUDA_FAULT, attention="triton", chunk=4096)
    study.ok(attention="triton", graphs=False)
    assert all(aside.settings != (("attention", "triton"),) for aside in study.memory.set_aside)


def test_failures_of_different_classes_set_nothing_aside() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton")
    study.failed(FailureClass.OOM_GRAPH, attention="triton", chunk=4096)
    assert study.memory.set_aside == ()


def test_nothing_is_set_aside_while_no_rival_succeeds() -> None:
    study = Study().failed(FailureClass.OOM_GRAPH).failed(FailureClass.OOM_GRAPH, chunk=4096)
    assert study.memory.set_aside == ()


def test_where_most_trials_fail_anyway_two_failures_prove_nothing() -> None:
    study = Study().ok()
    for chunk in (16, 32, 64, 128):
        study.failed(FailureClass.OOM_GRAPH, chunk=chunk)
    study.failed(FailureClass.OOM_GRAPH, attention="triton", chunk=512)
    study.failed(FailureClass.OOM_GRAPH, attention="triton", chunk=1024)
    assert study.memory.set_aside == ()


def test_values_that_no_trial_tells_apart_are_set_aside_together_only() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.NCCL_HANG, attention="triton", p2p_level="SYS")
    study.failed(FailureClass.NCCL_HANG, attention="triton", p2p_level="SYS", chunk=4096)
    (aside,) = study.memory.set_aside
    assert set(aside.settings) == {("attention", "triton"), ("p2p_level", "SYS")}
    assert aside.covers(study.candidate(attention="triton", p2p_level="SYS", graphs=False))
    assert not aside.covers(study.candidate(attention="triton"))


def test_a_pair_is_set_aside_when_each_half_works_without_the_other() -> None:
    study = Study().ok().ok(attention="triton").ok(graphs=False).ok(chunk=4096)
    study.failed(FailureClass.GRAPH_CAPTURE, attention="triton", graphs=False)
    study.failed(FailureClass.GRAPH_CAPTURE, attention="triton", graphs=False, chunk=4096)
    (aside,) = study.memory.set_aside
    assert set(aside.settings) == {("attention", "triton"), ("graphs", "off")}
    assert not aside.covers(study.candidate(attention="triton", chunk=512))


def test_a_bystander_of_a_worse_value_is_not_set_aside() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton")
    study.failed(FailureClass.CUDA_FAULT, attention="triton", graphs=False)
    study.failed(FailureClass.CUDA_FAULT, attention="triton", graphs=False, chunk=4096)
    assert [aside.settings for aside in study.memory.set_aside] == [(("attention", "triton"),)]


def test_what_is_set_aside_waits_for_one_second_chance() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton")
    study.failed(FailureClass.CUDA_FAULT, attention="triton", chunk=4096)
    assert len(study.memory.second_chances()) == 1
    study.second_chance(FailureClass.CUDA_FAULT, attention="triton", graphs=False)
    assert study.memory.second_chances() == ()
    assert len(study.memory.set_aside) == 1


def test_engines_do_not_share_their_failures() -> None:
    study = Study().ok().ok(chunk=4096)
    study.failed(FailureClass.CUDA_FAULT, attention="triton")
    study.failed(FailureClass.CUDA_FAULT, attention="triton", chunk=4096)
    (aside,) = study.memory.set_aside
    assert not aside.covers(Candidate("sglang", {**Study.BASE, "attention": "triton"}))


# -- when to stop


@pytest.mark.parametrize(
    "failure_class", [c for c in FailureClass if FAILURES[c].fault == "study"], ids=lambda c: c.value
)
def test_a_class_that_every_trial_would_hit_stops_the_study(failure_class: FailureClass) -> None:
    advice = Study().failed(failure_class, chunk=4096).memory.advice()
    assert advice is not None
    assert advice.certain
    assert FAILURES[failure_class].words in advice.words


def test_two_unrelated_configurations_without_a_compiler_stop_the_study() -> None:
    related = Study().ok().failed(FailureClass.JIT_TOOLCHAIN, attention="flashinfer")
    related.failed(FailureClass.JIT_TOOLCHAIN, attention="flashinfer", chunk=4096)
    assert related.memory.advice() is None
    unrelated = related.failed(FailureClass.JIT_TOOLCHAIN, graphs=False).memory.advice()
    assert unrelated is not None
    assert unrelated.certain


def test_hangs_with_two_peer_to_peer_values_accuse_the_host() -> None:
    study = Study().ok().failed(FailureClass.NCCL_HANG, p2p_level="SYS")
    assert study.memory.advice() is None
    advice = study.failed(FailureClass.NCCL_HANG, p2p_level="PHB").memory.advice()
    assert advice is not None
    assert not advice.certain
    assert advice.trials == (1, 2)


def test_ordinary_failures_give_no_advice() -> None:
    assert (
        Study().ok().failed(FailureClass.OOM_GRAPH, chunk=1).failed(FailureClass.UNKNOWN, chunk=2).memory.advice()
        is None
    )
