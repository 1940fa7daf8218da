"""Shared memory that a launch made goes with it, whatever ended it; everybody else's stays."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launches import alive, eventually, has_written, is_gone, rogue_plan
from support.workers import KILLS, Kill, start_worker

from tuner.trial.process import launch
from tuner.trial.record import FILE, LaunchRecord
from tuner.trial.sharedmemory import FOLDER, Segment, SegmentWatch, mapped_by, present, remove
from tuner.trial.sweep import sweep


@pytest.fixture
def foreign() -> Iterator[str]:
    """Name of a segment that belongs to no launch."""
    name = f"foreign-{uuid.uuid4()}"
    (FOLDER / name).write_bytes(bytes(mmap.PAGESIZE))
    yield name
    (FOLDER / name).unlink(missing_ok=True)


def made_in(run_dir: Path) -> Path:
    """The segment that the server made, once the guard has told of it."""
    assert eventually(has_written(run_dir, "shared"))
    lines = (run_dir / "server.log").read_text().splitlines()
    path = FOLDER / next(line for line in lines if line.startswith("maps rogue-")).removeprefix("maps ")
    assert eventually(lambda: path.name in {segment.name for segment in recorded(run_dir)})
    return path


def recorded(run_dir: Path) -> frozenset[Segment]:
    record = LaunchRecord.read(run_dir / FILE)
    return frozenset() if record is None else record.segments


def test_what_a_server_leaves_there_goes_with_it_and_what_it_only_used_stays(tmp_path: Path, foreign: str) -> None:
    with launch(rogue_plan("share", foreign), tmp_path):
        made = made_in(tmp_path)
        assert made.exists()
        # Made by somebody else while the server runs.
        late = FOLDER / f"foreign-{uuid.uuid4()}"
        late.touch()
    try:
        assert not made.exists()
        assert (FOLDER / foreign).exists()
        assert late.exists()
    finally:
        late.unlink()


def test_what_was_made_just_before_the_end_goes_too(tmp_path: Path) -> None:
    before = present()
    with launch(rogue_plan("share"), tmp_path):
        assert eventually(has_written(tmp_path, "shared"))
    assert not {segment for segment in present() - before if segment.name.startswith("rogue-")}


@pytest.mark.parametrize("kill", KILLS)
def test_it_goes_whichever_process_is_killed(tmp_path: Path, kill: Kill) -> None:
    run_dir = tmp_path / "trial" / "1"
    worker, guard = start_worker(run_dir, "share")
    with worker:
        made = made_in(run_dir)
        kill(run_dir, worker, guard)
    assert eventually(lambda: alive(run_dir) == [] and is_gone(guard))
    sweep(tmp_path)
    assert not made.exists()


def test_it_goes_when_the_guard_is_killed(tmp_path: Path) -> None:
    with launch(rogue_plan("share"), tmp_path) as server:
        made = made_in(tmp_path)
        os.kill(server.guard_pid, signal.SIGKILL)
        assert eventually(lambda: server.guard_lost)
    assert not made.exists()


def test_a_file_that_is_mapped_only_at_the_second_look_is_still_found(foreign: str) -> None:
    watch = SegmentWatch()
    name = f"late-{uuid.uuid4()}"
    with (FOLDER / name).open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        try:
            assert not watch.look([os.getpid()])
            with mmap.mmap(file.fileno(), mmap.PAGESIZE):
                assert watch.look([os.getpid()])
                assert [segment.name for segment in watch.made] == [name]
                assert {segment.inode for segment in watch.made} <= mapped_by(os.getpid())
        finally:
            remove(watch.made)
    assert not (FOLDER / name).exists()
    assert (FOLDER / foreign).exists()


def test_a_named_semaphore_is_found_although_it_was_mapped_under_another_name() -> None:
    watch = SegmentWatch()
    name = f"rogue-{uuid.uuid4()}"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sem_open.restype = ctypes.c_void_p
    semaphore = libc.sem_open(f"/{name}".encode(), os.O_CREAT | os.O_EXCL, 0o600, 1)
    assert semaphore, os.strerror(ctypes.get_errno())
    try:
        assert watch.look([os.getpid()])
        assert [segment.name for segment in watch.made] == [f"sem.{name}"]
    finally:
        remove(watch.made)
        libc.sem_close(ctypes.c_void_p(semaphore))
    assert not (FOLDER / f"sem.{name}").exists()


def test_a_later_file_of_the_same_name_is_not_removed(foreign: str) -> None:
    (segment,) = (found for found in present() if found.name == foreign)
    remove([Segment(foreign, segment.inode + 1)])
    assert (FOLDER / foreign).exists()
