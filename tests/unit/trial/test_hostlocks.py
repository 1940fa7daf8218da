"""Two studies of one host never use the same GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.launches import eventually, rogue_plan

from tuner.errors import MachineUnfit
from tuner.trial import hostlocks
from tuner.trial.hostlocks import lock_gpus
from tuner.trial.process import launch

ROOT = Path(hostlocks.__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))


def is_free(index: int) -> bool:
    try:
        lock_gpus([index]).close()
    except MachineUnfit:
        return False
    return True


def test_a_gpu_is_locked_until_its_lease_is_closed() -> None:
    with lock_gpus([0, 1]):
        assert not is_free(1)
        assert is_free(2)
    assert is_free(1)


def test_the_message_names_the_gpu_and_who_holds_it() -> None:
    with lock_gpus([3]), pytest.raises(MachineUnfit, match=rf"gpu 3 is in use by another study.*pid {os.getpid()}"):
        lock_gpus([3])


def test_all_gpus_are_locked_or_none() -> None:
    with lock_gpus([5]):
        with pytest.raises(MachineUnfit):
            lock_gpus([4, 5])
        assert is_free(4)


def test_the_lock_of_a_killed_process_is_free_at_once() -> None:
    script = "from tuner.trial.hostlocks import lock_gpus as l; x = l([0]); print('locked', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert not is_free(0)
        other.kill()
    assert is_free(0)


def test_a_gpu_stays_locked_until_the_server_that_used_it_is_gone(tmp_path: Path) -> None:
    lease = lock_gpus([0])
    server = launch(rogue_plan("quiet"), tmp_path / "run", holds=lease.locks)
    lease.close()
    assert not is_free(0)
    server.close()
    assert eventually(lambda: is_free(0))
