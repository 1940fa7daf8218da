"""Folders of Rays that were started here: whose they are, and what becomes of those that were left behind."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import MachineUnfit
from tuner.execution import rayfolder
from tuner.execution.rayfolder import RayFolder, sweep_folders


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only temporary folder; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        monkeypatch.setattr(rayfolder, "temporary_folders", lambda *_: [Path(folder)])
        yield Path(folder)


def died(folder: RayFolder) -> Path:
    """As the kernel leaves it when the process that made it dies."""
    (folder.path / "session").mkdir()
    os.close(folder._lock)
    return folder.path


def test_it_goes_with_all_that_is_in_it(home: Path) -> None:
    folder = RayFolder.make()
    (folder.path / "session" / "logs").mkdir(parents=True)
    folder.remove()
    assert list(home.iterdir()) == []


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_uses_is_not(home: Path) -> None:
    left, used = died(RayFolder.make()), RayFolder.make()
    assert sweep_folders() == [left]
    assert list(home.iterdir()) == [used.path]
    used.remove()


def test_what_could_not_be_removed_is_removed_by_the_next_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RayFolder.make()
    (folder.path / "session").mkdir()
    with monkeypatch.context() as late:
        # As it looks where a process of Ray's writes its last lines meanwhile.
        late.setattr(rayfolder.shutil, "rmtree", lambda *_, **__: None)
        folder.remove()
    assert (folder.path / "session").is_dir()
    assert sweep_folders() == [folder.path]
    assert list(home.iterdir()) == []


def test_what_was_kept_for_the_user_outlives_its_ray_for_a_day(home: Path) -> None:
    kept = RayFolder.make()
    (kept.path / "session").mkdir()
    kept.keep()
    kept.remove()
    assert sweep_folders() == []
    assert (kept.path / "session").is_dir()
    a_day_ago = time.time() - 24 * 3600 - 1
    os.utime(kept.path / "kept", (a_day_ago, a_day_ago))
    assert sweep_folders() == [kept.path]
    assert list(home.iterdir()) == []


def test_what_is_kept_is_not_removed_while_its_ray_still_runs(home: Path) -> None:
    kept = RayFolder.make()
    kept.keep()
    os.utime(kept.path / "kept", (0, 0))
    assert sweep_folders() == []
    kept.remove()
    assert sweep_folders() == [kept.path]


def test_a_folder_that_only_has_the_name_is_left_alone(home: Path) -> None:
    alien = home / "tuner-ray-alien"
    alien.mkdir()
    (alien / "logs").touch()
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner").touch()
    (home / "tuner-ray-link").symlink_to(elsewhere)
    (home / "tuner-ray-file").touch()
    assert sweep_folders() == []
    assert (elsewhere / "owner").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_another_user_s_folder_is_left_alone(home: Path) -> None:
    theirs = died(RayFolder.make())
    os.chown(theirs, 12345, 12345)
    assert sweep_folders() == []


def test_a_path_too_long_for_sockets_is_passed_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = home / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(rayfolder, "temporary_folders", lambda *_: [long, home])
    folder = RayFolder.make()
    assert folder.path.parent == home
    folder.remove()
    monkeypatch.setattr(rayfolder, "temporary_folders", lambda *_: [long])
    with pytest.raises(MachineUnfit, match="no folder"):
        RayFolder.make()
