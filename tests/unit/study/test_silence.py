"""What a server said does nothing is carried over to other configurations as far as the finding allows."""

from __future__ import annotations

from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity
from tuner.domain.values import Value
from tuner.study.silence import Silent, inactive_knobs, never_active, silent_settings, without_silent

SPACE = Space.model_validate(
    {
        "name": "toy",
        "model": "m",
        "engines": {"vllm": {}},
        "knobs": {
            "own": {"switch": True, "flag": "--disable-custom-all-reduce", "inverted": True},
            "proto": {"values": [None, "LL", "Simple"], "env": "NCCL_PROTO"},
            "steps": {"values": [1, 2, 4], "flag": "--steps"},
            "page": {"values": [1, 64], "flag": "--page", "default": 1},
        },
        "rules": [{"forbid": "steps == 4 and page == 1", "because": "four steps need large pages"}],
        "workload": {"levels": [1, 8]},
    }
)
BASELINE = Candidate("vllm", {"own": True, "proto": None, "steps": 1, "page": 1})


def config(**changes: Value) -> Candidate:
    return Candidate("vllm", {**BASELINE.values, **changes})


def said(
    number: int,
    candidate: Candidate,
    knob: str,
    state: Activity,
    reason: str = "",
    rests_on: tuple[str, ...] | None = None,
) -> AttemptRecord:
    report = records.measured_report(activity=(KnobActivity(knob, state, reason, rests_on),))
    return records.attempt(number, candidate, report, told=True)


def covered(silent: tuple[Silent, ...], **changes: Value) -> bool:
    return any(one.covers(config(**changes)) for one in silent)


def test_a_finding_that_names_what_it_rests_on_holds_for_every_value_wherever_that_is_so() -> None:
    found = silent_settings([said(3, config(proto="LL"), "proto", Activity.INACTIVE, "bypassed", ("own",))])
    assert covered(found, proto="Simple", steps=4, page=64)
    assert not covered(found, proto="LL", own=False)
    assert str(found[0]) == "proto does nothing where own is on: bypassed"
    assert found[0].trials == (3,)


def test_a_finding_that_rests_on_nothing_holds_everywhere() -> None:
    found = silent_settings([said(1, config(steps=2), "steps", Activity.INACTIVE, "nothing reads it", ())])
    assert covered(found, steps=4, own=False, page=64)
    assert str(found[0]) == "steps does nothing: nothing reads it"


def test_any_other_finding_holds_for_its_value_where_all_that_its_launches_shared_is_the_same() -> None:
    overridden = "asked 64, the server runs with 1"
    once = [said(1, config(page=64), "page", Activity.INACTIVE, overridden)]
    assert not covered(silent_settings(once), page=64, steps=2)
    twice = [*once, said(2, config(page=64, steps=2), "page", Activity.INACTIVE, overridden)]
    found = silent_settings(twice)
    assert covered(found, page=64, steps=4)
    assert not covered(found, page=64, steps=4, own=False)
    assert not covered(found, page=1, steps=4)


def test_a_launch_in_which_it_acted_takes_back_what_it_contradicts() -> None:
    idle = [
        said(1, config(page=64), "page", Activity.INACTIVE),
        said(2, config(page=64, steps=2), "page", Activity.INACTIVE),
    ]
    acted = said(3, config(page=64, steps=4), "page", Activity.ACTIVE)
    assert silent_settings(idle)
    assert silent_settings([*idle, acted]) == ()


def test_what_the_server_does_not_speak_of_says_nothing() -> None:
    assert silent_settings([said(1, config(proto="LL"), "proto", Activity.UNKNOWN, "not reported")]) == ()


def test_a_configuration_loses_what_it_changes_to_no_effect() -> None:
    silent = silent_settings([said(1, config(proto="LL"), "proto", Activity.INACTIVE, "bypassed", ("own",))])
    plain, idle = without_silent(SPACE, config(proto="Simple", steps=2), BASELINE, silent)
    assert plain == config(steps=2)
    assert [one.knob for one in idle] == ["proto"]
    kept = config(proto="Simple", own=False)
    assert without_silent(SPACE, kept, BASELINE, silent) == (kept, ())


def test_nothing_is_taken_out_that_a_rule_of_the_space_demands() -> None:
    silent = silent_settings([said(1, config(page=64), "page", Activity.INACTIVE, "nothing reads it", ())])
    assert without_silent(SPACE, config(page=64, steps=2), BASELINE, silent)[0] == config(steps=2)
    needed = config(page=64, steps=4)
    assert without_silent(SPACE, needed, BASELINE, silent) == (needed, ())


def test_all_launches_of_a_configuration_speak_of_its_knobs() -> None:
    winner = config(proto="LL", page=64)
    launches = [
        said(1, winner, "proto", Activity.UNKNOWN),
        said(2, winner, "proto", Activity.INACTIVE, "bypassed", ("own",)),
        said(3, winner, "page", Activity.INACTIVE, "overridden"),
        said(4, winner, "page", Activity.ACTIVE),
        said(5, BASELINE, "steps", Activity.INACTIVE, "another configuration"),
    ]
    assert inactive_knobs(launches, winner) == {"proto": "bypassed"}


def test_a_knob_that_acted_in_no_launch_is_known_as_such() -> None:
    launches = [
        said(1, config(proto="LL"), "proto", Activity.INACTIVE, "bypassed", ("own",)),
        said(2, config(proto="Simple"), "proto", Activity.UNKNOWN),
        said(3, config(page=64), "page", Activity.INACTIVE, "overridden"),
        said(4, config(page=64, steps=2), "page", Activity.ACTIVE),
        said(5, config(steps=2), "steps", Activity.UNKNOWN),
    ]
    assert never_active(launches) == {(BASELINE.engine, "proto")}
