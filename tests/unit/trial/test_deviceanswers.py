"""Engines that look at GPUs while they are imported: a child asks the driver, and the parent can still be forked.

In place of the hardware stand a small libcuda and the part of PyTorch that comes to it, with PyTorch's own names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.launches import eventually, has_written, installed_plan

from tuner.engines.definition import Warm
from tuner.trial.process import launch
from tuner.trial.warm import ColdError, WarmParents

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# Says whether it is initialised as the real one does, and counts who asked for it.
LIBCUDA = """
#include <stdlib.h>
static int begun;
int cuInit(unsigned flags) { if (getenv("NO_DRIVER")) return 100; begun = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return begun ? 0 : 3; }
"""

TORCH = """
import ctypes, os, threading, types
from collections import namedtuple
from pathlib import Path

driver = ctypes.CDLL(str(Path(__file__).with_name("libcuda.so.1")))
Properties = namedtuple("Properties", "name major minor multi_processor_count uuid")
device = namedtuple("device", "type")

def count():
    return 2 if driver.cuInit(0) == 0 else 0

def current():
    driver.cuInit(0)
    return 0

def accelerator():
    return device("cuda" if count() else "cpu")

_C = types.SimpleNamespace(_cuda_getDeviceCount=count, _cuda_getDevice=current, _get_accelerator=accelerator)
cuda = types.ModuleType("torch.cuda")
cuda._tls = threading.local()

def lazy_init():
    if hasattr(cuda._tls, "is_initializing"):
        return
    assert driver.cuInit(0) == 0, "no driver"
    cuda._get_device_properties = lambda number: Properties("H200", 9, 0, 132, object())

def properties(number=None):
    lazy_init()
    return cuda._get_device_properties(_C._cuda_getDevice() if number is None else number)

def initialised():
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0

cuda.is_available = lambda: _C._cuda_getDeviceCount() > 0
cuda.device_count = lambda: 2
cuda.get_device_properties = properties
"""

ENGINE = """
import json, multiprocessing, sys, time
import torch

def look():
    found = torch.cuda.get_device_properties()
    return [torch.cuda.is_available(), torch._C._get_accelerator().type, found.major, found.multi_processor_count]

AT_IMPORT = look()

def work():
    began = torch.initialised()
    print("worker", json.dumps([began, look(), torch.initialised()]), flush=True)
    time.sleep(600)

def main():
    if "greedy" in sys.argv:
        torch.driver.cuInit(0)
    print("server", json.dumps([AT_IMPORT, look(), torch.initialised()]), flush=True)
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    print("pid", process.pid, flush=True)
    time.sleep(600)
"""

WARM = Warm(modules=("looking",), fork_workers=True, answer_devices=True)
SEEN = [True, "cuda", 9, 132]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An engine that asks for GPUs at every turn, and where it is installed."""
    folder = tmp_path / "engine"
    (folder / "torch").mkdir(parents=True)
    (folder / "libcuda.c").write_text(LIBCUDA)
    library = folder / "torch" / "libcuda.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, folder / "libcuda.c"], check=True
    )
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "looking.py").write_text(ENGINE)
    script = folder / "serve"
    script.write_text(f"#!{sys.executable}\nimport looking\nif __name__ == '__main__':\n    looking.main()\n")
    script.chmod(0o755)
    return script


def said(run_dir: Path, who: str) -> Any:
    assert eventually(has_written(run_dir, f"{who} "))
    lines = (run_dir / "server.log").read_text().splitlines()
    return json.loads(next(line for line in lines if line.startswith(f"{who} ")).partition(" ")[2])


def test_an_engine_that_looks_at_gpus_while_imported_cannot_be_forked(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    silent = WARM.model_copy(update={"answer_devices": False})
    with pytest.raises(ColdError, match="CUDA is initialised"):
        parents.parent_for(installed_plan(program), silent, tmp_path / "warm.log")


def test_a_child_answers_in_parent_and_server_and_the_worker_asks_the_driver_itself(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    plan = installed_plan(program)
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    with launch(plan, tmp_path / "run", warm=parent):
        assert said(tmp_path / "run", "server") == [SEEN, SEEN, False]
        assert said(tmp_path / "run", "worker") == [False, SEEN, True]
        worker = said(tmp_path / "run", "pid")
        assert b"spawn_main" not in Path(f"/proc/{worker}/cmdline").read_bytes()


def test_workers_of_a_server_that_has_initialised_cuda_after_all_are_spawned(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    plan = installed_plan(program, "greedy")
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    with launch(plan, tmp_path / "run", warm=parent):
        assert said(tmp_path / "run", "server")[-1]
        worker = said(tmp_path / "run", "pid")
        assert eventually(lambda: b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes())
        # All the imports again, as in a plain launch: the driver is asked right there.
        assert said(tmp_path / "run", "worker") == [True, SEEN, True]


def test_without_a_driver_nothing_is_answered_for_it(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    source = program.parent / "looking.py"
    source.write_text(source.read_text().replace("AT_IMPORT = look()", "AT_IMPORT = torch.cuda.is_available()"))
    plan = installed_plan(program, NO_DRIVER="1")
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    assert parent.imported.missing == {}
    with launch(plan, tmp_path / "run", warm=parent):
        assert eventually(has_written(tmp_path / "run", "AssertionError: no driver"))
