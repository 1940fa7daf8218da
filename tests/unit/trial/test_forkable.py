"""What forbids a fork and what does not, with small libraries in place of NVIDIA's."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.domain.launch import LaunchPlan
from tuner.engines.definition import Warm
from tuner.trial import forkable
from tuner.trial.warm import ColdError, WarmParent, WarmParents

WARM = Warm(modules=("engine",))
CUDA = "int cuDeviceGetCount(int *count) { *count = 2; return %d; }"
# Counts its users and keeps a file open for them, as NVML does with its devices.
NVML = """
#include <fcntl.h>
#include <unistd.h>
static int users, file;
int nvmlInit(void) { if (!users++) file = open("%s", O_RDONLY); return 0; }
int nvmlShutdown(void) { if (!users) return 1; if (!--users) close(file); return 0; }
"""
THREAD = """
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static pthread_t pump;
static void *work(void *unused) { for (;;) pause(); }
static void stop(void) { pthread_cancel(pump); pthread_join(pump, 0); }
static void start(void) { pthread_create(&pump, 0, work, 0); pthread_setname_np(pump, "pump"); }
__attribute__((constructor)) static void load(void) { start(); %s; }
"""
ENGINE = "import ctypes\nlibrary = ctypes.CDLL({library!r})\n{more}"

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def parent_with(
    folder: Path, name: str, source: str, parents: WarmParents, more: str = "", warm: Warm = WARM
) -> WarmParent:
    """The warm parent of an engine that loads a library from a source."""
    (folder / "library.c").write_text(source)
    library = folder / name
    options = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-pthread"]
    subprocess.run(["cc", *options, "-o", library, folder / "library.c"], check=True)
    (folder / "engine.py").write_text(ENGINE.format(library=str(library), more=more))
    program = folder / "serve"
    program.write_text(f"#!{sys.executable}\nimport engine\n")
    plan = LaunchPlan("toy", (str(program),), {"PYTHONPATH": str(folder)}, "127.0.0.1", 1)
    return parents.parent_for(plan, warm, folder / "warm.log")


@needs_compiler
def test_cuda_that_is_only_loaded_forbids_nothing(tmp_path: Path, parents: WarmParents) -> None:
    assert parent_with(tmp_path, "libcuda.so.1", CUDA % 3, parents).is_alive


@needs_compiler
def test_cuda_that_is_initialised_forbids_forks(tmp_path: Path, parents: WarmParents) -> None:
    with pytest.raises(ColdError, match="CUDA is initialised since engine was imported"):
        parent_with(tmp_path, "libcuda.so.1", CUDA % 0, parents)


@needs_compiler
def test_nvml_is_shut_down_for_all_of_its_users(tmp_path: Path, parents: WarmParents) -> None:
    device = tmp_path / "device"
    device.touch()
    more = "library.nvmlInit()\nlibrary.nvmlInit()"
    parent = parent_with(tmp_path, "libnvidia-ml.so.1", NVML % device, parents, more)
    files = {str(entry.readlink()) for entry in Path(f"/proc/{parent.process.pid}/fd").iterdir()}
    assert str(device) not in files
    assert any(path.endswith("warm.log") for path in files)


@needs_compiler
def test_a_thread_of_a_library_forbids_forks_unless_it_is_known_to_be_ready(
    tmp_path: Path, parents: WarmParents
) -> None:
    with pytest.raises(ColdError, match=r"threads of a library run: 1 \(pump\)"):
        parent_with(tmp_path, "libpump.so", THREAD % "", parents)
    ready = WARM.model_copy(update={"ready_threads": ("pump",)})
    assert parent_with(tmp_path, "libpump.so", THREAD % "", parents, warm=ready).is_alive


@needs_compiler
def test_a_thread_of_the_driver_forbids_forks_only_once_cuda_is_initialised(
    tmp_path: Path, parents: WarmParents
) -> None:
    source = THREAD.replace('"pump"', '"cuda00001800007"') % ""
    assert parent_with(
        tmp_path, "libnvidia-ml.so.1", f"{source}\nint nvmlShutdown(void) {{ return 1; }}", parents
    ).is_alive
    (tmp_path / "second").mkdir()
    with pytest.raises(ColdError, match=r"CUDA is initialised since engine was imported; .*cuda00001800007"):
        parent_with(tmp_path / "second", "libcuda.so.1", source + CUDA % 0, WarmParents())


@needs_compiler
def test_a_library_that_ends_its_threads_before_a_fork_forbids_nothing(tmp_path: Path, parents: WarmParents) -> None:
    assert parent_with(tmp_path, "libpump.so", THREAD % "pthread_atfork(stop, 0, 0)", parents).is_alive


def test_what_nvml_opens_is_no_reason_and_another_runtime_s_device_is_named_with_its_module() -> None:
    nvml = {3: "/dev/null", 5: "/dev/nvidiactl", 6: "/dev/nvidia0", 7: "/dev/nvidia-uvm", 8: "/dev/nvidia-caps/x"}
    here = forkable.unfit({}, {}, ready_threads=threads_here())  # children of other tests, say
    assert forkable.unfit(nvml, {}, ready_threads=threads_here()) == here
    rocm = {**nvml, 9: "/dev/kfd"}
    assert sorted(forkable.unfit(rocm, {"/dev/kfd": "engine.kernels"}, ready_threads=threads_here())) == sorted(
        ["/dev/kfd is open since engine.kernels was imported", *here]
    )


def threads_here() -> set[str]:
    """Native threads that this test process has of its own."""
    return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}


def test_who_opens_a_device_or_initialises_cuda_is_noted_with_the_module_that_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "nvidiactl"
    device.touch()
    (tmp_path / "probing.py").write_text(f"kept = open({str(device)!r})\nimport json.tool\n")
    (tmp_path / "computing.py").write_text("import json.scanner\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forkable, "_DEVICES", (str(device),))
    monkeypatch.setattr(forkable, "cuda_is_initialised", lambda: "computing" in sys.modules)
    for name in ("json.tool", "json.scanner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with forkable.DeviceWatch() as watch:
        for name in ("probing", "computing"):
            importlib.import_module(name)
    sys.modules["probing"].kept.close()
    assert watch.opened_by == {str(device): "probing", "CUDA": "computing"}
