"""Whether a process that has imported an engine may be forked; part of `zygote`, standard library only.

A fork is as good as a fresh process unless something lives on in it that does not survive forking:

* CUDA that is initialised cannot be used in a forked process (cuInit there answers CUDA_ERROR_NOT_INITIALIZED). The
  driver itself tells: before cuInit, cuDeviceGetCount answers that error.
* NVML is made for counting GPUs without spoiling forks (so says PyTorch of PYTORCH_NVML_BASED_CUDA_CHECK, in its notes
  on CUDA). On two H200s (driver 580) it had opened /dev/nvidiactl, nvidia0, nvidia1, two files of nvidia-caps and even
  nvidia-uvm, and a thread `cuda00001800007` ran; CUDA was initialised in forked processes all the same. PyTorch leaves
  it open; here it is shut down, so that a server opens its own.
* A NCCL communicator needs CUDA and has threads: both are looked for.
* Threads are not forked. Libraries that are ready for forks (OpenBLAS) end theirs before one: a trial fork tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tuner.trial.importspy import module_of

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
_HARMFUL = ("/dev/kfd", "/dev/dri")
_CUDA = "CUDA"
_DRIVER = "libcuda.so.1"
_NVML = "libnvidia-ml.so.1"
_DRIVER_THREAD = re.compile(r"cuda[0-9a-f]+")
_CUDA_NOT_INITIALIZED = 3  # CUresult, cuda.h
_MOST_NVML_USERS = 1000
"""NVML counts its users; each must be signed off. It answers with an error once there are none."""


class DeviceWatch:
    """Notes which module was being imported when a GPU's device file was first seen open, or CUDA initialised.

    A finder on `sys.meta_path` that finds nothing: it is asked before each module that is loaded.

    Attributes:
        opened_by: device file, or "CUDA" → module.
    """

    def __init__(self) -> None:
        self.opened_by: dict[str, str] = {}

    def __enter__(self) -> Self:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, _name: str, _path: object = None, _target: object = None) -> None:
        """Look, and leave the finding to others."""
        self.look(sys._getframe(1))

    def look(self, frame: FrameType | None = None, name: str = "") -> None:
        """Note what is new, on behalf of a frame's module, or of a module by its name."""
        seen = {path for path in open_files().values() if path.startswith(_DEVICES)}
        # Initialising it opens such files; to ask the driver takes longer than to list them.
        if (seen or name) and _CUDA not in self.opened_by and cuda_is_initialised():
            seen.add(_CUDA)
        for thing in seen - self.opened_by.keys():
            self.opened_by[thing] = name or module_of(frame)


def open_files() -> dict[int, str]:
    """Open descriptors of this process and what they lead to."""
    files: dict[int, str] = {}
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - asked thousands of times
        with contextlib.suppress(OSError):
            files[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115 - likewise
    return files


def mapped_files() -> list[str]:
    """Program and libraries of this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({parts[5] for line in lines if len(parts := line.split(None, 5)) == 6 and parts[5].startswith("/")})


def cuda_is_initialised() -> bool:
    """Whether cuInit has succeeded in this process, as the driver's library says; it must be loaded to have been."""
    driver = _loaded(_DRIVER)
    if driver is None:
        return False
    count = ctypes.c_int()
    return int(driver.cuDeviceGetCount(ctypes.byref(count))) != _CUDA_NOT_INITIALIZED


def shut_nvml_down() -> None:
    """Close NVML for all of its users in this process; each opens it again when it asks for something."""
    library = _loaded(_NVML)
    if library is not None:
        for _ in range(_MOST_NVML_USERS):
            if library.nvmlShutdown() != 0:
                break


def _loaded(name: str) -> Any:
    """A library of this name, if this process has loaded it already: microseconds, where reading its map takes more."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except OSError:
        return None


def unfit(files: Mapping[int, str], opened_by: Mapping[str, str], ready_threads: Collection[str] = ()) -> list[str]:
    """Why a fork of this process would not be like a fresh one; empty if it would.

    Args:
        files: its open files, after NVML was shut down.
        opened_by: who opened GPU devices.
        ready_threads: names of threads whose library takes care of forks.
    """
    cuda = cuda_is_initialised()
    since = {thing: f"since {opened_by.get(thing, 'the start')} was imported" for thing in (_CUDA, *files.values())}
    reasons = [f"CUDA is initialised {since[_CUDA]}"] if cuda else []
    harmful = sorted({path for path in files.values() if path.startswith(_HARMFUL)})
    reasons += [f"{path} is open {since[path]}" for path in harmful]
    foreign = [(name, n) for name, n in _native_threads().items() if cuda or not _DRIVER_THREAD.fullmatch(name)]
    reasons += [f"thread {one.name} runs" for one in threading.enumerate() if one is not threading.main_thread()]
    reasons += [f"threads of a library run: {n} ({name})" for name, n in foreign if name not in ready_threads]
    return reasons + _children()


def _native_threads() -> dict[str, int]:
    """Name → number of threads that are not Python's and survive a fork in the forking process."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    python = {one.native_id for one in threading.enumerate()}
    native: dict[str, int] = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) not in python:
            with contextlib.suppress(OSError):  # it has ended
                name = (task / "comm").read_text().strip()
                native[name] = native.get(name, 0) + 1
    return native


def _children() -> list[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return ["importing started a process"] if any(children.read_text().split() for children in tasks) else []
