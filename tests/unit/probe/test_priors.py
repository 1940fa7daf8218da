"""What the search hears of a probe."""

from __future__ import annotations

from typing import Any

from tuner.domain.probe import Backend, MessageSize, ProbeReport, ProbeRun, ProbeSetting
from tuner.domain.space import Space
from tuner.probe.priors import first_candidate, with_priors

SIZE = MessageSize(8192, "decode at C=1")
BASELINE = {"own": True, "proto": None, "channels": None}


def space(**knobs: Any) -> Space:
    usual = {
        "own": {"switch": True, "flag": "--disable-custom-all-reduce", "inverted": True},
        "proto": {
            "values": [None, "LL", "Simple"],
            "env": "NCCL_PROTO",
            "when": "own == off",
            "prior": {"likely": ["Simple"], "reason": "the author thinks so"},
        },
        "channels": {"values": [None, 4], "env": "NCCL_MAX_NCHANNELS", "when": "own == off"},
    }
    return Space.model_validate({"name": "s", "model": "m", "engines": {"vllm": {}}, "knobs": {**usual, **knobs}})


def report(backend: Backend = Backend.NCCL, *, ll_us: float = 8.0, own: int = 0) -> ProbeReport:
    """LL against a default of 12 µs; four runs each, half a percent apart."""
    base = {"default": 12.0, "proto=LL": ll_us, "channels=4": 12.0}
    runs = [
        ProbeRun(label, n, {SIZE.size_bytes: (us * (1 + 0.005 * (n % 2)),)})
        for label, us in base.items()
        for n in range(4)
    ]
    settings = (ProbeSetting(), ProbeSetting({"proto": "LL"}), ProbeSetting({"channels": 4}))
    return ProbeReport("vllm", backend, 2, "bfloat16", 32, (SIZE,), settings, tuple(runs), own_up_to_bytes=own)


def likely(of: Space, knob: str) -> tuple[object, ...] | None:
    prior = of.knobs_of("vllm")[knob].prior
    return None if prior is None else prior.likely


def test_what_was_faster_is_likely_before_what_the_author_named() -> None:
    found = with_priors(space(), report())
    assert likely(found, "proto") == ("LL", "Simple")
    prior = found.knobs_of("vllm")["proto"].prior
    assert prior is not None
    assert "probe" in prior.reason
    assert "the author thinks so" in prior.reason


def test_knobs_that_the_probe_says_nothing_about_stay_as_they_were() -> None:
    found = with_priors(space(), report())
    assert likely(found, "channels") is None
    assert list(found.knobs_of("vllm")) == list(space().knobs_of("vllm"))


def test_times_of_a_cpu_change_nothing() -> None:
    assert with_priors(space(), report(Backend.GLOO)) == space()
    assert first_candidate(space(), report(Backend.GLOO), BASELINE) is None


def test_the_best_setting_is_launched_early_with_the_switch_that_makes_it_act() -> None:
    found = first_candidate(space(), report(), BASELINE)
    assert found is not None
    assert found.values == {"own": False, "proto": "LL", "channels": None}


def test_nothing_is_launched_early_when_nothing_was_faster() -> None:
    assert first_candidate(space(), report(ll_us=12.0), BASELINE) is None
    assert likely(with_priors(space(), report(ll_us=12.0)), "proto") == ("Simple",)


def test_the_probe_does_not_speak_against_the_engines_own_all_reduce() -> None:
    carried = report(own=1 << 20)
    assert first_candidate(space(), carried, BASELINE) is None
    assert likely(with_priors(space(), carried), "proto") == ("LL", "Simple")


def test_a_rule_of_the_space_stands_above_the_probe() -> None:
    ruled = space().model_copy(update={"rules": space_rules()})
    assert first_candidate(ruled, report(), BASELINE) is None


def space_rules() -> tuple[Any, ...]:
    document = {"name": "s", "model": "m", "engines": {"vllm": {}}, "rules": [{"forbid": "proto == LL"}]}
    return Space.model_validate(document).rules
