"""What earlier launches of a study say about the next one."""

from __future__ import annotations

from support import records

from tuner.domain.study import AttemptRecord
from tuner.store.owner import this_process
from tuner.study.learned import learned_gpu_use


def launched(
    trial: int, used: str, gpus: tuple[int, ...], host: str = "rig", owner: str | None = None
) -> AttemptRecord:
    machine = {"hostname": host, "gpu_used_before_mib": used}
    report = records.measured_report(machine=machine, plan=records.plan(gpus=gpus))
    return records.attempt(trial, records.candidate(), report, lease_owner=owner or this_process())


def test_the_least_memory_in_use_before_a_launch_is_known_of_each_gpu_of_each_host() -> None:
    attempts = [
        launched(0, "615, 3000", (0, 1)),
        launched(1, "15248, 2990", (0, 1)),
        launched(2, "700, 20", (2, 0)),
        launched(3, "1", (0,), host="other"),
    ]
    assert learned_gpu_use(attempts) == {"rig": {0: 20, 1: 2990, 2: 700}, "other": {0: 1}}


def test_launches_before_the_machine_was_started_and_those_of_which_the_driver_said_nothing_teach_nothing() -> None:
    place, _, _ = this_process().rpartition(":")
    before = launched(0, "5", (0,), owner=f"{place.rpartition(':')[0]}:1:00000000+1")
    assert learned_gpu_use([before, launched(1, "", (0,))]) == {"rig": {}}
    assert learned_gpu_use([before]) == {}
