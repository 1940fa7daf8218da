"""What the files of a verification launch say about each knob."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.knob import Knob
from tuner.domain.space import Space
from tuner.domain.trial import Activity, KnobActivity
from tuner.study.verify_knobs import KnobCheck, read_check

DATA = Path(__file__).parents[2] / "data" / "nccl"
SPACE = Space.model_validate(
    {
        "name": "toy",
        "model": "m",
        "engines": {"vllm": {}},
        "knobs": {
            "proto": {"values": ["LL", "Simple"], "env": "NCCL_PROTO"},
            "nvls": {"values": [0], "env": "NCCL_NVLS_ENABLE"},
            "seqs": {"values": [64], "flag": "--max-num-seqs"},
        },
        "workload": {"levels": [1, 128]},
    }
)


def check(folder: Path, proto: str, read: str | None, *, calls: bool = True, space: Space = SPACE) -> KnobCheck:
    log = folder / "nccl.node.705"
    shutil.copy(DATA / "tuning_2.28.9.log", log)
    text = log.read_text()
    if not calls:
        text = "\n".join(line for line in text.splitlines() if "AllReduce:" not in line)
    if read is not None:
        text += f"\nnode:705:705 [0] NCCL INFO NCCL_PROTO set by environment to {read}.\n"
    log.write_text(text)
    shutil.copy(DATA / "vllm_backends.log", folder / "server.log")
    said = tuple(KnobActivity(knob, Activity.UNKNOWN, "not reported") for knob in ("proto", "nvls", "seqs"))
    candidate = Candidate("vllm", {"proto": proto, "nvls": 0, "seqs": 64})
    return read_check(space, candidate, folder, records.measured_report(activity=said))


def states(found: KnobCheck) -> dict[str, Activity]:
    return {item.knob: item.state for item in found.activity}


def test_nccls_own_lines_decide_about_its_variables_and_leave_other_knobs_alone(tmp_path: Path) -> None:
    found = check(tmp_path, "LL", "LL")
    assert states(found) == {"proto": Activity.ACTIVE, "nvls": Activity.ACTIVE, "seqs": Activity.UNKNOWN}
    assert (found.own, found.nccl.version, found.failure) == ("CUSTOM", (2, 28, 9), None)


def test_a_variable_that_was_not_read_is_inactive(tmp_path: Path) -> None:
    assert states(check(tmp_path, "LL", None))["proto"] is Activity.INACTIVE


def test_settings_that_the_engines_own_all_reduce_bypasses_are_inactive_and_it_is_named(tmp_path: Path) -> None:
    found = check(tmp_path, "LL", "LL", calls=False)
    proto = next(item for item in found.activity if item.knob == "proto")
    assert proto.state is Activity.INACTIVE
    assert "CUSTOM" in proto.reason


def test_what_the_engines_own_all_reduce_bypasses_rests_on_its_switch_in_whichever_spelling(tmp_path: Path) -> None:
    switch = Knob.model_validate({"switch": True, "flag": "--disable_custom_all_reduce"})
    space = SPACE.model_copy(update={"knobs": {**SPACE.knobs, "own": switch}})
    found = check(tmp_path, "LL", "LL", calls=False, space=space)
    assert next(item for item in found.activity if item.knob == "proto").rests_on == ("own",)


def test_without_a_file_of_nccls_the_servers_word_stands(tmp_path: Path) -> None:
    said = (KnobActivity("proto", Activity.ACTIVE),)
    found = read_check(SPACE, Candidate("vllm", {"proto": "LL"}), tmp_path, records.measured_report(activity=said))
    assert (states(found), found.nccl.version) == ({"proto": Activity.ACTIVE}, None)
