"""Fault specs are read strictly, and every failure class has its last words."""

from __future__ import annotations

import pytest

from tuner.domain.outcome import FailureClass, Phase
from tuner.engines.simulated.crash_texts import CRASH_TEXTS, last_words
from tuner.engines.simulated.faults import PHASES, Faults, FaultSpecError, parse_all, parse_fault
from tuner.engines.simulated.journal import Journal

# Found from outside, not told by a server's log.
SEEN_FROM_OUTSIDE = {
    FailureClass.WRONG_OUTPUT,
    FailureClass.SHORT_OUTPUT,
    FailureClass.LOST_WORKER,
    FailureClass.HOST_STARVED,
    FailureClass.CLIENT_STARVED,
}


def test_a_spec_has_a_name_a_place_and_options() -> None:
    fault = parse_fault("crash@graph_capture:class=oom_graph,exit=3")
    assert (fault.name, fault.where, fault.failure_class, fault.number("exit")) == (
        "crash",
        "graph_capture",
        "oom_graph",
        3,
    )
    assert parse_fault("hang@load:streams=one").where == "serving"


@pytest.mark.parametrize(
    "spec",
    [
        "explode",
        "crash@nowhere",
        "crash:colour=red",
        "crash:class=none",
        "short@weights",
        "bundle:tokens=many",
        "hang:streams=two",
    ],
)
def test_a_wrong_spec_is_refused(spec: str) -> None:
    with pytest.raises(FaultSpecError):
        parse_fault(spec)


def test_flags_and_variable_add_up() -> None:
    assert [fault.name for fault in parse_all(["short"], " hang@weights ; close ;")] == ["short", "hang", "close"]


def test_each_phase_has_a_typical_crash() -> None:
    for phase in PHASES:
        assert parse_fault(f"crash@{phase}").failure_class in CRASH_TEXTS
    assert {parse_fault(f"oom@{phase}").failure_class for phase in PHASES} == {
        "oom_weights",
        "oom_graph",
        "oom_runtime",
    }


def test_phases_are_those_of_the_domain() -> None:
    assert set(PHASES) == {phase.value for phase in Phase} - {"preflight", "spawn", "teardown"}


def test_probability_decides_per_launch_and_per_request() -> None:
    rare = [parse_fault("crash@weights:p=0.25")]
    assert 60 < sum(bool(Faults(rare, seed).at("weights")) for seed in range(400)) < 140
    replies = Faults([parse_fault("short:p=0.25,skip=10,running=2")], 1)
    struck = [bool(replies.of_request(running=4)) for _request in range(410)]
    assert not any(struck[:10])
    assert 60 < sum(struck) < 140
    assert not any(replies.of_request(running=1) for _request in range(50))


def test_every_class_that_a_log_can_tell_has_its_text() -> None:
    assert set(CRASH_TEXTS) == {c.value for c in FailureClass if c not in SEEN_FROM_OUTSIDE}


@pytest.mark.parametrize("flavor", ["sglang", "vllm"])
@pytest.mark.parametrize("name", sorted(CRASH_TEXTS))
def test_last_words_end_as_the_engine_would(name: str, flavor: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = last_words(Journal(flavor), name, flavor=flavor, detail="No algorithm/protocol available")
    said = capfd.readouterr().err
    if name == "host_oom":
        assert (status, said) == (-9, "")
    elif name == "bad_flag":
        assert status == 2
    elif name in ("env_setup", "model_access"):
        assert status == 1
    else:
        assert status == (1 if flavor == "vllm" else -9)
        wrapper = "sigquit from a child process" if flavor == "sglang" else "EngineCore"
        assert wrapper in said
    assert "{" not in said.replace("{'EngineCore': 1}", "")
