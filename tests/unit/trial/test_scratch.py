"""Each launch has a temporary folder of its own, and takes what lies in it along, whatever ended it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launches import alive, eventually, has_written, is_gone, rogue_plan
from support.workers import KILLS, Kill, start_worker

from tuner.trial.process import launch
from tuner.trial.record import LaunchRecord
from tuner.trial.scratch import remove, scratch_for
from tuner.trial.script import SCRIPT
from tuner.trial.sweep import sweep


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that nobody else uses, with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def littered_in(run_dir: Path) -> Path:
    """Where the server left its things."""
    assert eventually(has_written(run_dir, "littered"))
    lines = (run_dir / "server.log").read_text().splitlines()
    return Path(next(line for line in lines if line.startswith("in ")).removeprefix("in "))


def test_what_a_server_leaves_in_the_temporary_folder_goes_with_it(tmp_path: Path, temporary: Path) -> None:
    with launch(rogue_plan("litter"), tmp_path):
        folder = littered_in(tmp_path)
        assert folder.parent == temporary
        assert len(list(folder.iterdir())) == 2
    assert list(temporary.iterdir()) == []


def test_two_launches_at_a_time_have_a_folder_each(tmp_path: Path, temporary: Path) -> None:
    with launch(rogue_plan("litter"), tmp_path / "1"), launch(rogue_plan("litter"), tmp_path / "2"):
        assert littered_in(tmp_path / "1") != littered_in(tmp_path / "2")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("kill", KILLS)
def test_the_folder_goes_whichever_process_is_killed(tmp_path: Path, temporary: Path, kill: Kill) -> None:
    run_dir = tmp_path / "trial" / "1"
    worker, guard = start_worker(run_dir, "litter")
    with worker:
        assert littered_in(run_dir).parent == temporary
        kill(run_dir, worker, guard)
    assert eventually(lambda: alive(run_dir) == [] and is_gone(guard))
    sweep(tmp_path)
    assert list(temporary.iterdir()) == []


def test_the_folder_goes_when_the_guard_is_killed(tmp_path: Path, temporary: Path) -> None:
    with launch(rogue_plan("litter"), tmp_path) as server:
        littered_in(tmp_path)
        os.kill(server.guard_pid, signal.SIGKILL)
        assert eventually(lambda: server.guard_lost)
    assert list(temporary.iterdir()) == []


def test_what_a_restart_of_the_machine_cut_off_is_swept_too(tmp_path: Path, temporary: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path):
        record = LaunchRecord.read(tmp_path / "launch.json")
    assert record is not None
    assert record.scratch is not None
    Path(record.scratch).mkdir()
    # As it would stand there after a power cut.
    content = (tmp_path / "launch.json").read_text()
    gone = content.replace(record.boot, "another boot").replace('"ended": true', '"ended": false')
    (tmp_path / "launch.json").write_text(gone.replace(f'"worker": [{os.getpid()}', '"worker": [999999999'))
    sweep(tmp_path)
    assert list(temporary.iterdir()) == []


def test_what_engines_keep_between_launches_stays_where_it_was(tmp_path: Path, temporary: Path) -> None:
    plan = rogue_plan("litter", "torch_ann", env={"USER": "ann", "LOGNAME": "ann"})
    with launch(plan, tmp_path, shared_temp=("torch_{user}",)):
        folder = littered_in(tmp_path)
        assert (folder / "torch_ann").resolve() == temporary / "torch_ann"
    assert [path.name for path in temporary.iterdir()] == ["torch_ann"]
    assert (temporary / "torch_ann" / "kept").read_text() == "x"


def test_sockets_fit_although_the_temporary_folder_has_a_long_name(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 60)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with launch(rogue_plan("litter", "cache"), tmp_path, shared_temp=("cache",)):
        folder = littered_in(tmp_path)
        assert folder.parent == Path("/tmp")
    assert not folder.exists()
    assert (long / "cache" / "kept").is_file(), "what is kept stays below the folder that was asked for"


def test_a_folder_that_the_space_names_is_the_one_that_is_used(tmp_path: Path, temporary: Path) -> None:
    own = temporary / "own"
    own.mkdir()
    with launch(rogue_plan("litter", env={"TMPDIR": str(own)}), tmp_path):
        assert littered_in(tmp_path).parent == own
    assert list(own.iterdir()) == []


def test_the_script_that_repeats_a_launch_by_hand_knows_nothing_of_the_folder(tmp_path: Path, temporary: Path) -> None:
    with launch(rogue_plan("litter"), tmp_path):
        folder = littered_in(tmp_path)
    assert folder.name not in (tmp_path / SCRIPT).read_text()
    assert folder.name not in (tmp_path / "plan.json").read_text()


def test_a_relative_or_missing_temporary_folder_is_none(temporary: Path) -> None:
    found = scratch_for("0123456789abcdef", {"TMPDIR": "here"})
    assert found is not None
    assert found.home == Path("/tmp")
    found = scratch_for("0123456789abcdef", {"TMPDIR": str(temporary / "gone")})
    assert found is not None
    assert found.path == Path("/tmp/tuner-01234567")


def test_only_folders_of_launches_are_removed(temporary: Path) -> None:
    for name in ("mine", "tuner-locks", "tuner-0123456"):
        (temporary / name).mkdir()
        assert not remove(temporary / name)
        assert (temporary / name).is_dir()
    target = temporary / "mine"
    (temporary / "tuner-01234567").symlink_to(target)
    assert not remove(temporary / "tuner-01234567")
    assert target.is_dir()
