"""Whether the process behind a lease is surely gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tuner.store.owner import is_gone, since_boot, this_process


def test_this_process_is_not_gone() -> None:
    assert not is_gone(this_process())


def test_a_process_that_ended_is_gone_even_before_its_parent_looks() -> None:
    program = "from tuner.store.owner import this_process; print(this_process(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        owner = child.stdout.read().strip()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        assert is_gone(owner)
    assert is_gone(owner)


def test_a_pid_that_another_process_has_now_is_another_owner() -> None:
    name, _, _start = this_process().rpartition(":")
    assert is_gone(f"{name}:12.00")


def test_owners_on_other_machines_and_unknown_owners_may_be_alive() -> None:
    _host, rest = this_process().split(":", 1)
    assert not is_gone(f"elsewhere:{rest}")
    assert not is_gone("somebody")
    assert not is_gone("")


def test_owners_of_an_earlier_boot_another_machine_or_another_form_are_not_of_this_boot() -> None:
    place, _, start = this_process().rpartition(":")
    name = place.rpartition(":")[0]
    assert since_boot(f"{name}:1:{start.partition('+')[0]}+1")
    assert not since_boot(f"{name}:1:00000000+1")
    assert not since_boot(f"elsewhere:{this_process().split(':', 1)[1]}")
    assert not since_boot("")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the kernel's own count needs /proc")
def test_a_clock_that_was_set_does_not_make_a_living_owner_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = this_process()
    set_forward = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: set_forward(process) + 3600)
    assert not is_gone(owner)
