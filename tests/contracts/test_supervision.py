"""Whole trials on the simulated engine, a few of the fault matrix: nothing lost, left, held or misnamed.

`make faults` injects all of them, many times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults.catalogue import INJECTIONS
from benchmarks.faults.report import by_fault, counts
from benchmarks.faults.trials import Judged, Norm, inject
from tuner.domain.outcome import Phase

QUICK = (
    "crash_weights",
    "crash_serving",
    "oom_under_load",
    "hang_load_one_stream",
    "reparented_child",
    "child_keeps_port",
    "crash_leaving_child",
    "port_stolen",
    "error_in_stream",
    "server_killed",
    "guard_killed",
    "worker_killed",
    "log_on_full_disk",
    "no_file_on_full_disk",
)
# A hang costs its limit: shorter than a study would learn it, and still with room for a busy machine.
LIMITS = dict.fromkeys(Phase, 15.0)
GENEROUS_S = 240.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, "hang_nccl_init", "hang_warmup_noisy"])
def test_a_fault_is_named_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    injection = next(one for one in INJECTIONS if one.name == name)
    limits = LIMITS if name.startswith("hang") else {}
    judged = inject(injection, tmp_path, Norm(limits, GENEROUS_S))
    assert (judged.orphans, judged.ports_held, judged.trouble) == (0, 0, "")
    assert judged.said in injection.expected, judged
    assert not judged.is_over_bound


def test_every_fault_has_a_name_of_its_own_and_says_what_it_expects() -> None:
    names = [one.name for one in INJECTIONS]
    assert len(set(names)) == len(names)
    assert all(one.expected for one in INJECTIONS)


def judged(**changes: object) -> Judged:
    right = {
        "name": "fault",
        "said": "measured",
        "seconds": 1.0,
        "bound_s": 2.0,
        "orphans": 0,
        "ports_held": 0,
        "is_right": True,
        "where": Path("/nowhere"),
    }
    return Judged(**{**right, **changes})  # type: ignore[arg-type]


def test_the_report_counts_every_way_to_go_wrong() -> None:
    lost = judged(said="", is_right=False)
    late = judged(seconds=3.0)
    leaky = judged(orphans=2, ports_held=1)
    assert counts([judged(), lost, late, leaky]) == {
        "injections": 4,
        "lost": 1,
        "orphans": 2,
        "ports_held": 1,
        "wrong_class": 1,
        "over_bound": 1,
    }
    assert by_fault([judged(), late])["fault"]["seconds_max"] == 3.0
