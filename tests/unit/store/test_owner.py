"""Whether the process behind a lease is surely gone."""

from __future__ import annotations

import os
import subprocess
import sys

from tuner.store.owner import is_gone, this_process


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
