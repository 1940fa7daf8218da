"""One coordinator runs a study; what died lets go of it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from support.stores import TTL, Clock

from tuner.domain.study import Lease
from tuner.errors import StudyError
from tuner.store import Store, open_store
from tuner.store.owner import this_process


def test_only_one_coordinator_runs_a_study(night: Store) -> None:
    night.acquire_coordinator("night", "a:1:2:3", TTL)
    with pytest.raises(StudyError, match="study night is being run by a:1:2:3"):
        night.acquire_coordinator("night", "b:1:2:3", TTL)


def test_the_holder_prolongs_its_lease(night: Store, clock: Clock) -> None:
    night.acquire_coordinator("night", "a:1:2:3", TTL)
    clock.now += TTL - 1
    assert night.acquire_coordinator("night", "a:1:2:3", TTL) == Lease("a:1:2:3", clock.now + TTL)
    clock.now += TTL - 1
    assert night.coordinator("night") == Lease("a:1:2:3", clock.now + 1)


def test_a_lease_that_ran_out_passes_on(night: Store, clock: Clock) -> None:
    night.acquire_coordinator("night", "a:1:2:3", TTL)
    clock.now += TTL
    assert night.coordinator("night") is None
    night.acquire_coordinator("night", "b:1:2:3", TTL)
    with pytest.raises(StudyError, match="b:1:2:3"):
        night.acquire_coordinator("night", "a:1:2:3", TTL)


def test_the_lease_of_a_killed_process_of_this_machine_passes_on_at_once(night: Store) -> None:
    program = (
        "import time; from tuner.store.owner import this_process; print(this_process(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        owner = victim.stdout.readline().strip()
        night.acquire_coordinator("night", owner, 10_000)
        with pytest.raises(StudyError, match="is being run by"):
            night.acquire_coordinator("night", this_process(), TTL)
        victim.kill()
        victim.wait()
        night.acquire_coordinator("night", this_process(), TTL)


def test_only_the_holder_can_give_the_lease_back(night: Store) -> None:
    night.acquire_coordinator("night", "a:1:2:3", TTL)
    night.release_coordinator("night", "b:1:2:3")
    assert night.coordinator("night") is not None
    night.release_coordinator("night", "a:1:2:3")
    assert night.coordinator("night") is None


def test_of_coordinators_that_ask_at_the_same_moment_one_wins(storage_url: str, night: Store) -> None:
    barrier, won = threading.Barrier(4), []

    def ask(owner: str) -> None:
        with open_store(storage_url) as own:
            barrier.wait()
            try:
                own.acquire_coordinator("night", owner, TTL)
            except StudyError:
                return
            won.append(owner)

    threads = [threading.Thread(target=ask, args=(f"box{i}:1:2:3",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
