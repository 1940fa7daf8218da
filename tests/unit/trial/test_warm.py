"""Servers forked from a process with the engine's imports: like any launch, and just as gone afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support import toy_engine
from support.launches import eventually, has_written, installed_plan

from tuner.domain.launch import LaunchPlan
from tuner.engines.definition import Warm
from tuner.trial.hostlocks import lock_gpus
from tuner.trial.process import ServerHandle, launch
from tuner.trial.proctree import MARK, identify, is_alive, read_stat
from tuner.trial.warm import ColdError, WarmParents, interpreter_of

WARM = Warm(modules=("toy_engine", "no_such_module"), fork_workers=True, spawn_when_set=("TOY_PLACES",))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A toy engine's program, installed where its interpreter finds the engine."""
    folder = tmp_path / "toy"
    folder.mkdir()
    shutil.copy(toy_engine.SOURCE, folder / "toy_engine.py")
    script = folder / "serve"
    script.write_text(f"#!{sys.executable}\nimport toy_engine\ntoy_engine.main()\n")
    script.chmod(0o755)
    return script


def started(plan: LaunchPlan, run_dir: Path, parents: WarmParents | None) -> ServerHandle:
    parent = None if parents is None else parents.parent_for(plan, WARM, run_dir.parent / "warm.log")
    return launch(plan, run_dir, warm=parent)


def holders_of_files_in(folder: Path) -> set[int]:
    """Other processes with open files there, as parents, guards and servers have."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink().is_relative_to(folder):
                found.add(int(link.parts[2]))
    return found - {os.getpid()}


def seen(run_dir: Path) -> dict[str, Any]:
    line = next(line for line in (run_dir / "server.log").read_text().splitlines() if line.startswith("view "))
    found: dict[str, Any] = json.loads(line.removeprefix("view "))
    return found


def test_a_warm_server_sees_what_a_plain_one_sees(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    with started(installed_plan(program, TOY_TAKEN_AT_IMPORT="x"), tmp_path / "first", parents):
        assert eventually(has_written(tmp_path / "first", "ready"))
    plan = installed_plan(program, "--flag", "two words", TOY_KNOB="three", TOY_TAKEN_AT_IMPORT="x")
    for name, kept in (("plain", None), ("warm", parents)):
        with started(plan, tmp_path / name, kept):
            assert eventually(has_written(tmp_path / name, "ready"))
    plain, warm = seen(tmp_path / "plain"), seen(tmp_path / "warm")
    assert plain.pop("folder") == str(tmp_path / "plain")
    assert warm.pop("folder") == str(tmp_path / "warm")
    folders = {view.pop("temporary_folder") for view in (plain, warm)}
    assert folders == {view["environment"].pop("TMPDIR") for view in (plain, warm)}
    assert len(folders) == 2, "each launch has a temporary folder of its own"
    assert warm["environment_of_children"] == "three"
    assert warm["environment"]["TOY_WRITTEN_AT_IMPORT"] == "by the engine"
    assert "TOY_TAKEN_AT_IMPORT" not in warm["environment"]
    assert warm == plain


def test_every_fork_draws_its_own_chance(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    draws = set()
    for name in ("one", "two"):
        with started(installed_plan(program), tmp_path / name, parents):
            assert eventually(has_written(tmp_path / name, "ready"))
        draws.add((tmp_path / name / "server.log").read_text().splitlines()[0])
    assert len(draws) == 2


@pytest.mark.parametrize(
    ("ask", "who"),
    [((), "itself"), (("toy_engine.no_such_function", "toy_engine.source_hash", "no_such_module.f"), "its parent")],
)
def test_what_the_parent_was_asked_before_is_kept_for_every_server(
    program: Path, tmp_path: Path, parents: WarmParents, ask: tuple[str, ...], who: str
) -> None:
    parent = parents.parent_for(installed_plan(program), WARM.model_copy(update={"ask": ask}), tmp_path / "warm.log")
    with launch(installed_plan(program), tmp_path / "run", warm=parent):
        assert eventually(has_written(tmp_path / "run", "ready"))
    assert f"hashed by {who}" in (tmp_path / "run" / "server.log").read_text().splitlines()


def test_the_collector_of_a_forked_server_walks_the_imports_once_it_is_due_as_that_of_a_plain_one(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    walked = []
    for name, kept in (("plain", None), ("warm", parents)):
        with started(installed_plan(program), tmp_path / name, kept):
            assert eventually(has_written(tmp_path / name, "ready"))
        found = re.search(r"^frozen (\d+) walked (\d+)$", (tmp_path / name / "server.log").read_text(), re.MULTILINE)
        assert found is not None
        assert int(found[1]) == 0, "whoever is spared the imports is stopped less often than a plain server"
        walked.append(int(found[2]))
    plain, warm = walked
    assert warm >= plain > 1000


def test_a_variable_that_importing_read_asks_for_a_plain_launch(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    parents.parent_for(installed_plan(program, TOY_READ_AT_IMPORT="a"), WARM, tmp_path / "warm.log")
    parents.parent_for(installed_plan(program, TOY_READ_AT_IMPORT="a", TOY_KNOB="b"), WARM, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="TOY_READ_AT_IMPORT is read while the engine is imported"):
        parents.parent_for(installed_plan(program, TOY_READ_AT_IMPORT="c"), WARM, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="TOY_READ_AT_IMPORT"):
        parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")


def test_a_variable_that_importing_sets_asks_for_a_plain_launch(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="TOY_WRITTEN_AT_IMPORT"):
        parents.parent_for(installed_plan(program, TOY_WRITTEN_AT_IMPORT="mine"), WARM, tmp_path / "warm.log")


def test_a_variable_whose_name_is_in_a_loaded_library_asks_for_a_plain_launch(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="MALLOC_ARENA_MAX may be read when"):
        parents.parent_for(installed_plan(program, MALLOC_ARENA_MAX="2"), WARM, tmp_path / "warm.log")


def test_an_engine_that_lists_every_variable_asks_for_a_plain_launch(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    engine = program.parent / "toy_engine"
    engine.mkdir()
    (program.parent / "toy_engine.py").rename(engine / "real.py")
    (engine / "__init__.py").write_text("import os\nSETTINGS = dict(os.environ)\n")
    parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="that toy_engine looks for"):
        parents.parent_for(installed_plan(program, TOY_KNOB="b"), WARM, tmp_path / "warm.log")
    known = WARM.model_copy(update={"lists": {"toy_engine": "OLD_"}})
    parents.parent_for(installed_plan(program), known, tmp_path / "warm.log")
    parents.parent_for(installed_plan(program, TOY_KNOB="b"), known, tmp_path / "warm.log")
    with pytest.raises(ColdError, match="OLD_KNOB"):
        parents.parent_for(installed_plan(program, OLD_KNOB="b"), known, tmp_path / "warm.log")


def test_an_engine_that_starts_a_thread_while_imported_is_not_forked(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    with (program.parent / "toy_engine.py").open("a") as source:
        source.write("\nthreading.Thread(target=time.sleep, args=(600,), name='pump', daemon=True).start()\n")
    with pytest.raises(ColdError, match="thread pump runs"):
        parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")


def test_the_exit_code_of_a_warm_server_is_told(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    server = started(installed_plan(program, "leave"), tmp_path / "run", parents)
    assert eventually(lambda: server.poll() is not None)
    assert server.poll() == 7
    assert server.close().is_clean


def test_workers_that_are_asked_to_be_spawned_are_forked_and_end_with_the_server(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    with started(installed_plan(program, "worker"), tmp_path / "run", parents) as server:
        assert eventually(has_written(tmp_path / "run", "ready"))
        worker = worker_of(tmp_path / "run")
        assert b"spawn_main" not in Path(f"/proc/{worker}/cmdline").read_bytes()
        assert {server.pid, worker} <= {member.pid for member in server.members()}
    assert server.proof is not None
    assert server.proof.is_clean
    assert (stat := read_stat(worker)) is None or stat.is_dead


def test_a_worker_whose_libraries_would_miss_a_variable_is_spawned(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    with started(installed_plan(program, "worker", "bound"), tmp_path / "run", parents) as server:
        assert eventually(has_written(tmp_path / "run", "ready"))
        worker = worker_of(tmp_path / "run")
        assert eventually(lambda: b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes())
        assert b"TOY_PLACES=0" in Path(f"/proc/{worker}/environ").read_bytes()
        assert eventually(lambda: worker in {member.pid for member in server.members()})
    assert server.close().is_clean


def worker_of(run_dir: Path) -> int:
    line = next(line for line in (run_dir / "server.log").read_text().splitlines() if line.startswith("worker "))
    return int(line.split()[1])


def test_the_launch_id_stands_where_the_kernel_shows_the_environment(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    with started(installed_plan(program), tmp_path / "run", parents) as server:
        assert eventually(has_written(tmp_path / "run", "ready"))
        shown = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert f"{MARK}={server.launch_id}".encode() in shown


def test_when_the_guard_is_killed_the_server_ends(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    server = started(installed_plan(program), tmp_path / "run", parents)
    assert eventually(has_written(tmp_path / "run", "ready"))
    process = identify(server.pid)
    assert process is not None
    os.kill(server.guard_pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(process))
    assert eventually(lambda: server.poll() is not None)
    assert server.guard_lost
    assert server.close().is_clean


def test_a_server_outlives_the_process_that_it_was_forked_from(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    plan = installed_plan(program)
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    with launch(plan, tmp_path / "run", warm=parent) as server:
        assert eventually(has_written(tmp_path / "run", "ready"))
        parent.process.kill()
        parent.process.wait()
        assert server.poll() is None
        assert server.close().is_clean
    with pytest.raises(ColdError):
        launch(plan, tmp_path / "again", warm=parent)
    assert parents.parent_for(plan, WARM, tmp_path / "warm.log") is not parent


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.02])
def test_a_parent_that_is_killed_while_it_forks_gives_a_server_or_asks_for_a_plain_launch_and_leaves_nothing(
    program: Path, tmp_path: Path, parents: WarmParents, delay_s: float
) -> None:
    plan = installed_plan(program)
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    assert parent.process.pid in holders_of_files_in(tmp_path)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    death = threading.Timer(delay_s, parent.process.kill)
    death.start()
    try:
        assert launch(plan, tmp_path / "run", warm=parent).close().is_clean
    except ColdError:
        assert not parent.is_alive
    death.join()
    parent.close()
    assert eventually(lambda: not holders_of_files_in(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) < descriptors, "the channel to the parent is closed, too"


def test_a_parent_that_ended_three_times_is_started_no_more(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    plan = installed_plan(program)
    for _ in range(3):
        parents.parent_for(plan, WARM, tmp_path / "warm.log").close()
    with pytest.raises(ColdError, match="ended 3 times"):
        parents.parent_for(plan, WARM, tmp_path / "warm.log")


def test_host_locks_are_held_by_the_guard_and_not_by_the_server(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    plan = installed_plan(program)
    parent = parents.parent_for(plan, WARM, tmp_path / "warm.log")
    with lock_gpus((73,)) as lease, launch(plan, tmp_path / "run", holds=lease.locks, warm=parent) as server:
        assert eventually(has_written(tmp_path / "run", "ready"))
        lock = str(Path(f"/proc/self/fd/{lease.locks[0].descriptor}").readlink())
        assert lock in _open_files(server.guard_pid)
        assert lock not in _open_files(server.pid)
        assert lock not in _open_files(parent.process.pid)


def _open_files(pid: int) -> set[str]:
    return {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}


def test_a_module_that_is_not_there_is_left_out(program: Path, tmp_path: Path, parents: WarmParents) -> None:
    parent = parents.parent_for(installed_plan(program), WARM, tmp_path / "warm.log")
    assert list(parent.imported.missing) == ["no_such_module"]


def test_what_is_for_gpus_is_imported_for_servers_on_gpus_only(
    program: Path, tmp_path: Path, parents: WarmParents
) -> None:
    warm = WARM.model_copy(update={"modules_gpu": ("no_gpu_module",), "modules_cpu": ("no_cpu_module",)})
    with_gpu = dataclasses.replace(installed_plan(program), gpus=(0,))
    for plan, missing in ((installed_plan(program), "no_cpu_module"), (with_gpu, "no_gpu_module")):
        imported = parents.parent_for(plan, warm, tmp_path / "warm.log").imported
        assert set(imported.missing) == {"no_such_module", missing}


def test_only_python_programs_can_be_forked(program: Path) -> None:
    assert interpreter_of([str(program), "serve"]) == sys.executable
    assert interpreter_of(["/env/bin/python3", "-m", "engine.serve"]) == "/env/bin/python3"
    for argv in (["/bin/sh"], ["/env/bin/python3", "-O", "-m", "engine"], ["/no/such/program"]):
        with pytest.raises(ColdError):
            interpreter_of(argv)


def test_an_engine_without_a_list_of_modules_is_launched_plainly(program: Path, tmp_path: Path) -> None:
    with pytest.raises(ColdError, match="nothing is known"):
        WarmParents().parent_for(installed_plan(program), None, tmp_path / "warm.log")
